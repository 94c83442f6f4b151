"""A damaged database is refused or put into quarantine, as configured; it is never emptied, overwritten or ignored."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.logger import LogEvent

from holdfast.core.messages import RetainedChange
from holdfast.core.tickets import CommitTicket, FailureKind, StorageFailure
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.values import Selection
from holdfast.storage import sqlite
from holdfast.storage.location import StoreDamaged, StoreUnusable
from holdfast.storage.sqlite import OnCorruption
from tests.retained.store.contract import NOW, batches, message
from tests.storage.doubles import fresh_file, result_of
from tests.storage.sqlite.ruins import PAGE, contents, filled, garble, leaves, put, store, topics
from tests.storage.writing.test_writer import errors

__all__ = ["errors"]


def overwritten(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 1000)


def of_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 3 // 4)


def cut_in_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def without_schema(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:PAGE] = b"\xee" * (PAGE - 100)
    path.write_bytes(data)


def without_totals(path: Path) -> None:
    garble(path, root_of(path, "nodes"))


def without_messages_of_sessions(path: Path) -> None:
    garble(path, root_of(path, "session_messages"))


def marked(path: Path) -> None:
    sqlite.mark_of(path).write_text("malformed, at noon\n")


def emptied_beside_its_log(path: Path) -> None:
    path.with_name(path.name + "-wal").write_bytes(b"what was committed last")
    path.write_bytes(b"")


DAMAGES = [
    overwritten, of_zeros, short, cut_in_the_header, without_schema, without_totals, without_messages_of_sessions,
    marked, emptied_beside_its_log,
]  # fmt: skip


def root_of(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    return int(page)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound database with 2000 messages."""
    return filled(fresh_file(tmp_path_factory.mktemp("sound")), 2000)


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    """A copy of the sound database, for damaging."""
    return Path(shutil.copy(sound, tmp_path / "store.db"))


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_refused_by_default_with_a_remedy_and_not_changed(
    path: Path, damage: Callable[[Path], None]
) -> None:
    """Each start refuses it."""
    damage(path)
    before = files(path)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="damaged") as raised:
            store(path, OnCorruption.REFUSE).open()
        assert 'storage.on_corruption = "quarantine"' in str(raised.value)
        assert "restore a backup" in str(raised.value)
    assert files(path).items() >= {name: data for name, data in before.items() if not name.endswith("-wal")}.items()
    assert sqlite.quarantined(path) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_it_is_put_into_quarantine_byte_for_byte_and_the_store_opens(
    path: Path, damage: Callable[[Path], None], errors: list[LogEvent]
) -> None:
    """The log and the health name the file; the next start is a normal one."""
    damage(path)
    before = path.read_bytes()
    opened = store(path)
    opened.open()
    (aside,) = sqlite.quarantined(path)
    assert aside.read_bytes() == before
    assert [event["log_level"].name for event in errors] == ["critical", "critical"]
    assert errors[1]["where"] == aside
    assert opened.soundness() == {"damage": None, "quarantined": [aside.name]}
    told = opened.status()
    assert (told["damaged"], told["quarantined"]) == (0, 1)
    result_of(opened.close())
    assert not sqlite.mark_of(path).exists()
    found = contents(path)
    again = store(path, OnCorruption.REFUSE)
    again.open()
    result_of(again.close())
    assert contents(path) == found
    assert sqlite.quarantined(path) == [aside]
    assert set(found) <= set(topics(2000))
    if damage in (marked, without_totals, without_messages_of_sessions):
        assert set(found) == set(topics(2000))
    elif damage is short:
        assert len(found) > 300


def test_files_in_quarantine_are_never_overwritten(path: Path) -> None:
    """Two quarantines in one second get two names."""
    for _ in range(3):
        overwritten(path)
        opened = store(path)
        opened.open()
        result_of(opened.close())
    assert len(sqlite.quarantined(path)) == 3


def test_the_log_goes_into_quarantine_with_its_file(path: Path) -> None:
    """The write-ahead log goes with the file."""
    emptied_beside_its_log(path)
    store(path).open()
    (aside,) = sqlite.quarantined(path)
    assert aside.with_name(aside.name + "-wal").read_bytes() == b"what was committed last"


def test_a_quarantine_that_was_cut_short_is_finished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kill between any two renames, the next start has the saved messages, and the damaged file is kept."""
    marked(path)
    before = contents(path)
    rename, unlink = Path.rename, Path.unlink
    for left in range(10):
        calls = 0

        def counted(self: Path, *arguments: Path, left: int = left) -> object:
            nonlocal calls
            calls += 1
            if calls > left:
                raise KeyboardInterrupt
            return rename(self, *arguments) if arguments else unlink(self, missing_ok=True)

        folder = path.parent / str(left)
        folder.mkdir()
        for file in (path, sqlite.mark_of(path)):
            shutil.copy(file, folder / file.name)
        copy = folder / path.name
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", counted)
            patched.setattr(sqlite, "discard", lambda _: None)
            patched.setattr(Path, "unlink", lambda self, missing_ok=False: counted(self))
            try:
                store(copy).open()
            except KeyboardInterrupt:
                finished = False
            else:
                finished = True
        opened = store(copy)
        opened.open()
        result_of(opened.close())
        assert contents(copy) == before
        assert len(sqlite.quarantined(copy)) == 1
        if finished:
            return
    raise AssertionError("it never ends")


def test_a_replacement_that_was_not_completed_is_made_anew(path: Path) -> None:
    """An incomplete replacement is removed."""
    marked(path)
    sqlite.replacement(path).write_bytes(b"half")
    opened = store(path)
    opened.open()
    result_of(opened.close())
    assert set(contents(path)) == set(topics(2000))


def test_an_unusable_but_undamaged_database_is_always_refused(path: Path) -> None:
    """Another program's database and a newer schema are good data."""
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = 'later'")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnusable, match="does not know"):
        store(path).open()
    assert sqlite.quarantined(path) == []


def test_a_damaged_database_is_refused_if_its_replacement_does_not_fit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not changed."""
    marked(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast.storage.store.salvage", full)
    with pytest.raises(StoreUnusable, match=r"cannot be replaced \(No space left"):
        store(path).open()
    assert set(contents(path)) == set(topics(2000))


# --- damage met while the broker runs -------------------------------------------------------------------------------


def put_one(retained: SQLRetainedStore, topic: str) -> CommitTicket:
    stored = message(topic, b"x", retained.next_revision())
    return retained.put(RetainedChange(topic, stored.revision, NOW, stored))


def test_damage_found_later_stops_all_writing_and_is_remembered(path: Path, errors: list[LogEvent]) -> None:
    """Damage is logged once and shown in the health; changes are refused; reads still work; the next start knows it."""

    page = leaves(path)[20]
    garble(path, page)
    opened = store(path, OnCorruption.REFUSE)
    retained = SQLRetainedStore(opened)
    opened.open()
    assert errors == []
    put(retained, ["another"], b"is stored")
    with pytest.raises(StorageFailure, match="malformed"):
        list(batches(retained, Selection("#", 4, 1 << 62, 1, NOW)))
    assert [event["log_level"].name for event in errors] == ["critical"]
    ticket = put_one(retained, "refused")
    assert ticket.settled
    assert ticket.failure is not None
    assert ticket.failure.kind is FailureKind.UNAVAILABLE
    assert result_of(retained.get("another")) is not None
    assert "malformed" in str(opened.soundness()["damage"])
    assert opened.status()["damaged"] == 1
    result_of(opened.close())
    with pytest.raises(StoreDamaged, match=r"was found damaged while the broker ran.*holdfast db check"):
        store(path, OnCorruption.REFUSE).open()
    saved = store(path)
    saved.open()
    result_of(saved.close())
    found = contents(path)
    assert set(found) < {*topics(2000), "another"}
    assert len(found) > 1950
    assert "another" in found


def test_damage_found_in_a_commit_refuses_its_changes_and_all_later_ones(path: Path) -> None:
    """No damaged page is overwritten."""

    for page in leaves(path)[5:-5]:  # a start reads the ends
        garble(path, page)
    opened = store(path, OnCorruption.REFUSE)
    retained = SQLRetainedStore(opened)
    opened.open()
    for name in (topics(2000)[1000], "elsewhere"):
        ticket = put_one(retained, name)
        assert ticket.settled
        assert ticket.failure is not None
    result_of(opened.close())
    assert sqlite.mark_of(path).exists()
