"""All readable data of a damaged database is saved, and all saved data is sound."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.storage.database import Durability
from holdfast.storage.salvage import Salvaged, salvage
from holdfast.storage.sqlite import SQLiteDatabase, replacement
from tests.storage.sqlite.ruins import PAGE, contents, copy_of, filled, fresh_file, garble, leaves, topics

COUNT = 3000


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound database."""
    return filled(fresh_file(tmp_path_factory.mktemp("sound")), COUNT)


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    """A copy of the sound database, for damaging."""
    return Path(shutil.copy(sound, tmp_path / "store.db"))


def saved(path: Path) -> tuple[Salvaged, dict[str, bytes]]:
    """Salvage; return the result and the saved messages, which must be sound."""
    salvaged = salvage(SQLiteDatabase(path, Durability.FULL), 1)
    found = contents(replacement(path))
    assert salvaged.messages == len(found)
    assert salvaged.messages == COUNT or salvaged.gaps or salvaged.unsound
    return salvaged, found


def rows_on(path: Path, pages: list[int]) -> int:
    """Count the messages on these pages by their topics."""
    data = path.read_bytes()
    return sum(data[(page - 1) * PAGE :][:PAGE].count(b"/sensor/") for page in pages)


def test_all_of_a_sound_one(path: Path) -> None:
    """Nothing is missing, and the result says so."""
    salvaged, found = saved(path)
    assert list(found) == topics(COUNT)
    assert (salvaged.gaps, salvaged.unsound, salvaged.sessions) == (False, 0, 0)


@pytest.mark.parametrize("number", [1, 2, 7, 20])
def test_all_but_the_damaged_pages(path: Path, number: int) -> None:
    """Each damaged page costs its own messages and at most one more."""
    pages = random.Random(number).sample(leaves(path), number)
    lost = rows_on(path, pages)
    for page in pages:
        garble(path, page)
    salvaged, found = saved(path)
    assert salvaged.gaps
    assert COUNT - lost - number <= len(found) < COUNT
    assert set(found) < set(topics(COUNT))
    assert set(found.values()) == {b"x" * 100}


@pytest.mark.parametrize("cut", [1, 100, PAGE // 2, PAGE - 1])
def test_the_rest_of_a_torn_page_is_left_out(path: Path, cut: int) -> None:
    """SQLite reads the missing bytes as zeros, and would find messages that end with zeros."""
    page = leaves(path)[70]
    before = path.read_bytes()
    path.write_bytes(before[: page * PAGE - cut])
    salvaged, found = saved(path)
    assert salvaged.gaps
    assert len(found) > 500
    assert set(found.values()) == {b"x" * 100}
    assert path.read_bytes() == before[: page * PAGE - cut]
    assert {file.name for file in path.parent.iterdir()} <= {"store.db", "store.db.salvaged", "store.db-shm"}


def test_the_log_is_salvaged_too(path: Path, tmp_path: Path) -> None:
    """Commits in the log are part of the database."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA wal_autocheckpoint=0")
    other.execute("UPDATE retained SET payload = zeroblob(100)")
    copy = copy_of(path, tmp_path / "crashed")
    other.close()
    _, found = saved(copy)
    assert set(found.values()) == {bytes(100)}
    assert copy.with_name(copy.name + "-wal").stat().st_size > 0


def test_a_row_that_makes_no_sense_is_left_out(path: Path) -> None:
    """Pages have no checksums, but a row contains its lengths three times."""
    data = bytearray(path.read_bytes())
    for topic in (topics(COUNT)[5], topics(COUNT)[1005]):
        place = data.index(topic.encode())
        data[place : place + len(topic)] = b"\xff" * len(topic)
    place = data.index(topics(COUNT)[2005].encode())
    data[place : place + 5] = b"////\0"
    path.write_bytes(data)
    salvaged, found = saved(path)
    assert salvaged.unsound >= 1
    assert len(set(topics(COUNT)) - set(found)) >= 3
    assert set(found) < set(topics(COUNT))
    assert len(found) > COUNT - 100


def test_session_state_is_saved_as_a_whole(path: Path) -> None:
    """All of it must be readable."""
    fill_sessions(path)
    salvaged, found = saved(path)
    assert salvaged.sessions == 1
    assert len(found) == COUNT
    connection = sqlite3.connect(replacement(path))
    assert connection.execute("SELECT client_id FROM sessions").fetchall() == [("c",)]
    assert connection.execute("SELECT count(*), sum(length(payload)) FROM session_messages").fetchone() == (50, 150_000)
    (mark,) = connection.execute("SELECT max(revision_mark) FROM nodes").fetchone()
    connection.close()
    assert mark >= 1 << 60


def test_session_state_that_is_damaged_is_left_behind(path: Path) -> None:
    """A Client is better served with no Session than with an incomplete one."""
    fill_sessions(path)
    data = path.read_bytes()
    garble(path, data.index(b"the message 25 ") // PAGE + 1)
    salvaged, found = saved(path)
    assert salvaged.sessions is None
    assert "no Session, because not all Session State could be read" in str(salvaged)
    assert len(found) == COUNT
    connection = sqlite3.connect(replacement(path))
    for table in ("sessions", "session_messages"):
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    connection.close()


def fill_sessions(path: Path) -> None:
    """Keep a Session with 50 messages."""
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO sessions VALUES (?, 'c', NULL, 'l', 5, NULL, NULL, 1)", (1 << 60,))
    for number in range(50):
        payload = b"the message %d " % number
        row = ((1 << 60) + number, "t", 1, 0, "p", None, None, b"\0", payload.ljust(3000))
        connection.execute(f"INSERT INTO session_messages VALUES ({', '.join('?' * len(row))})", row)
    connection.commit()
    connection.close()


def test_with_every_other_page_damaged_the_others_are_saved(path: Path) -> None:
    """Sound pages among damaged ones are found."""
    pages = leaves(path)[1:-1:2]
    lost = rows_on(path, pages)
    for page in pages:
        garble(path, page)
    salvaged, found = saved(path)
    assert salvaged.gaps
    assert COUNT - lost - len(pages) <= len(found) < COUNT


def test_with_every_page_damaged_it_ends(path: Path) -> None:
    """Only the messages in the interior pages are left."""
    pages = leaves(path)
    for page in pages:
        garble(path, page)
    salvaged, found = saved(path)
    assert salvaged.gaps
    assert len(found) <= len(pages)


@given(st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=300)), min_size=1, max_size=10))
@settings(max_examples=40)
def test_saved_messages_are_sound_for_any_overwritten_bytes(wounds: list[tuple[float, bytes]]) -> None:
    """There is no error and no invented message; the topics are those of the sound database."""
    with TemporaryDirectory() as directory:
        path = Path(shutil.copy(_SOUND.made(), Path(directory) / "store.db"))
        data = bytearray(path.read_bytes())
        for where, what in wounds:
            place = int(where * (len(data) - len(what)))
            data[place : place + len(what)] = what
        path.write_bytes(data)
        salvage(SQLiteDatabase(path, Durability.FULL), 1)
        found = contents(replacement(path))
        wounded = sum(len(what) for _, what in wounds)
        assert len(set(found) - set(topics(COUNT))) <= wounded  # a topic may have got other letters


class _Sound:
    """A sound database for the property above."""

    def __init__(self) -> None:
        self._directory: TemporaryDirectory[str] | None = None

    def made(self) -> Path:
        if self._directory is None:
            self._directory = TemporaryDirectory()
            filled(fresh_file(Path(self._directory.name)), COUNT)
        return Path(self._directory.name) / "store.db"


_SOUND = _Sound()
