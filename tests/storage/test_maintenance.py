"""A database of an older version is upgraded with all its rows or not changed; a check changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.storage import schema
from holdfast.storage.committer import read_totals
from holdfast.storage.database import Durability
from holdfast.storage.location import StoreUnusable
from holdfast.storage.maintenance import DatabaseCondition, examine, upgrade_schema
from holdfast.storage.sqlite import SQLiteDatabase
from tests.migrations.later import BASE, BYTES, LATER, LIVE, TITLES, later_program, left_by_this_program
from tests.storage.doubles import Bench, fresh_file, result_of


@pytest.fixture
def later(tmp_path: Path) -> Iterator[Path]:
    """The folder with the migrations of a later program, which this process is meanwhile."""
    with later_program(tmp_path) as migrations:
        yield migrations


def old_file(folder: Path) -> Path:
    """Return the path of a used database, as a program before the later one has left it."""
    path = folder / "holdfast.db"
    left_by_this_program(SQLiteDatabase(path, Durability.PROCESS))
    return path


def rows(path: Path, table: str = "retained") -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    found = connection.execute(f"SELECT * FROM {table}").fetchall()
    connection.close()
    return found


def database(path: Path) -> SQLiteDatabase:
    return SQLiteDatabase(path, Durability.FULL, busy_timeout=0)


def upgraded(path: Path) -> list[str]:
    said: list[str] = []
    upgrade_schema(database(path), said.append)
    return said


@pytest.mark.usefixtures("later")
def test_an_upgrade_reports_its_steps_and_the_store_opens(tmp_path: Path) -> None:
    path = old_file(tmp_path)
    before = rows(path)
    assert upgraded(path) == [
        f"{path}: has the schema {BASE}, this version of the broker works with {LATER[-1]}",
        *(f"running {revision}: {title}" for revision, title in zip(LATER, TITLES, strict=True)),
        f"upgraded to {LATER[-1]}",
    ]
    assert rows(path) == before
    bench = Bench(path)
    bench.store.open()
    assert bench.store.parts is not None
    assert bench.store.parts.totals.retained_count == len(LIVE) - 1  # the other node cleared one
    assert bench.store.parts.totals.retained_bytes == BYTES
    result_of(bench.store.close())


def test_a_current_database_is_not_changed(tmp_path: Path) -> None:
    path = fresh_file(tmp_path)
    before = path.read_bytes()
    assert upgraded(path)[1:] == ["up to date, nothing to do"]
    assert path.read_bytes() == before


@pytest.mark.usefixtures("later")
def test_a_migration_that_fails_does_not_change_the_database(tmp_path: Path) -> None:
    """A table of the next migration exists already, because another program has changed the schema."""
    path = old_file(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE colours (x)")
    connection.close()
    before = rows(path, "sqlite_master")
    with pytest.raises(StoreUnusable, match="table colours already exists"):
        upgraded(path)
    assert rows(path, "sqlite_master") == before
    assert rows(path, "alembic_version") == [(BASE,)]


@pytest.mark.usefixtures("later")
def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_file(tmp_path)
    connect = SQLiteDatabase.connect_exclusive

    def small(self: SQLiteDatabase) -> sqlite3.Connection:
        connection = connect(self)
        connection.execute("PRAGMA max_page_count=1")  # as many as there are, and not one more
        return connection

    monkeypatch.setattr(SQLiteDatabase, "connect_exclusive", small)
    with pytest.raises(StoreUnusable, match=r"no space left on its disk; free some space"):
        upgraded(path)
    assert rows(path, "alembic_version") == [(BASE,)]


@pytest.mark.parametrize("operation", [upgraded, lambda path: examine(database(path))])
class TestRefusals:
    """An unusable database leads to one line with a remedy, and is not changed."""

    def refusal(self, operation: object, path: Path) -> str:
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(StoreUnusable) as caught:
            operation(path)  # type: ignore[operator]
        assert (path.read_bytes() if path.is_file() else None) == before
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(f"{path}: ")
        return str(caught.value).removeprefix(f"{path}: ")

    def test_a_missing_file(self, operation: object, tmp_path: Path) -> None:
        """No empty file is created."""
        message = "there is no such file; name the broker's own with --config, --data-dir or --storage"
        assert self.refusal(operation, tmp_path / "x.db") == message
        assert list(tmp_path.iterdir()) == []

    def test_a_newer_schema(self, operation: object, tmp_path: Path) -> None:
        path = fresh_file(tmp_path)
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.close()
        assert "start the newer version of the broker" in self.refusal(operation, path)

    def test_the_database_of_another_program(self, operation: object, tmp_path: Path) -> None:
        """Not even the journal mode is changed."""
        path = tmp_path / "x.db"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE bookmarks (url)")
        connection.close()
        assert "belongs to another program" in self.refusal(operation, path)

    def test_no_database_at_all(self, operation: object, tmp_path: Path) -> None:
        path = tmp_path / "x.db"
        path.write_text("hello, this is not a database at all")
        assert "is not an SQLite database" in self.refusal(operation, path)

    def test_a_damaged_one(self, operation: object, tmp_path: Path) -> None:
        path = fresh_file(tmp_path)
        data = bytearray(path.read_bytes())
        data[100:4096] = b"\xff" * 3996
        path.write_bytes(data)
        assert "is damaged" in self.refusal(operation, path)

    def test_a_folder_in_its_place(self, operation: object, tmp_path: Path) -> None:
        path = tmp_path / "x.db"
        path.mkdir()
        message = "cannot be opened (Is a directory); run this as the broker's user"
        assert self.refusal(operation, path) == message

    def test_no_permission(self, operation: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = fresh_file(tmp_path)

        def denied(*_arguments: object) -> None:
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", denied)  # the superuser, as whom tests may run, is never denied
            with pytest.raises(
                StoreUnusable, match=r"cannot be opened \(Permission denied\); run this as the broker's"
            ):
                operation(path)  # type: ignore[operator]


def test_an_empty_file_is_not_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.touch()
    with pytest.raises(StoreUnusable, match="is empty; the broker builds the schema when it starts"):
        upgraded(path)
    assert path.stat().st_size == 0


@pytest.mark.usefixtures("later")
def test_a_file_that_may_only_be_read_is_not_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_file(tmp_path)
    monkeypatch.setattr(SQLiteDatabase, "connect_exclusive", SQLiteDatabase.connect_read_only)
    with pytest.raises(StoreUnusable, match="is read-only; the file must be writable by the broker's user"):
        upgraded(path)


def test_no_other_program_may_have_the_file_open_during_an_upgrade(tmp_path: Path) -> None:
    """This is also true for a tool with another data directory than the broker's."""
    path = old_file(tmp_path)
    other = database(path).connect_reader()
    other.execute("SELECT * FROM retained").fetchall()
    with pytest.raises(StoreUnusable, match="is locked by another process; stop the other broker or tool"):
        upgraded(path)
    other.close()
    assert upgraded(path)


def test_a_sound_database(tmp_path: Path) -> None:
    condition = examine(database(fresh_file(tmp_path)))
    assert condition == DatabaseCondition(schema.newest_version(), {"integrity_check": [], "foreign_key_check": []})
    assert condition.is_current
    assert condition.is_sound


@pytest.mark.usefixtures("later")
def test_an_old_one_is_not_current_but_sound(tmp_path: Path) -> None:
    condition = examine(database(old_file(tmp_path)))
    assert (condition.version, condition.is_current, condition.is_sound) == (BASE, False, True)


def test_an_empty_one_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    assert examine(database(tmp_path / "x.db")).version is None


def test_a_check_while_a_broker_writes(tmp_path: Path) -> None:
    """The check finds a sound database, and does not delay the writer."""
    path = fresh_file(tmp_path)
    writer = database(path).connect()
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE nodes SET revision_mark = 7")
    assert examine(database(path)).is_sound
    writer.execute("COMMIT")
    assert read_totals(writer.cursor()).revision_mark == 7
    assert examine(database(path)).is_sound
    writer.close()


def test_a_check_finds_the_damage_that_sqlite_finds(tmp_path: Path) -> None:
    """It finds an index without a row, and a row with a missing parent."""
    path = old_file(tmp_path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    connection.execute("CREATE TABLE child (id REFERENCES parent)")
    connection.execute("INSERT INTO child VALUES (5)")
    connection.execute("PRAGMA writable_schema=ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, '= 1', '= 0') WHERE name = 'retained_tombstones'")
    connection.close()
    condition = examine(database(path))
    assert not condition.is_sound
    assert any("retained_tombstones" in found for found in condition.faults["integrity_check"])
    assert condition.faults["foreign_key_check"] == ["row 1 of child refers to no row of parent"]


def test_a_check_needs_no_permission_to_write(tmp_path: Path) -> None:
    path = fresh_file(tmp_path)
    onlooker = database(path).connect_read_only()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        onlooker.execute("UPDATE nodes SET revision_mark = 7")
    onlooker.close()
    before = path.read_bytes()
    examine(database(path))
    assert path.read_bytes() == before
