"""A database that cannot be used is refused with a reason and a remedy."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import text

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.storage.database import Durability
from holdfast.storage.location import StoreUnusable
from holdfast.storage.maintenance import open_database
from holdfast.storage.sqlite import SQLiteDatabase
from tests.storage.doubles import InjectedError, fresh_file


def opened(path: Path, durability: Durability = Durability.FULL) -> SQLiteDatabase:
    database = open_database(f"sqlite:///{path}", durability, busy_timeout=0)
    assert isinstance(database, SQLiteDatabase)
    return database


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_a_missing_directory_and_file_are_created_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "store.db"
    database = opened(path)
    writer = database.connect()
    writer.execute("CREATE TABLE t (x)")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file
    writer.close()


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    path = fresh_file(tmp_path)
    path.chmod(0o640)
    opened(path)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("durability", "synchronous"), [(Durability.FULL, 2), (Durability.PROCESS, 1), (Durability.ASYNC, 1)]
)
def test_the_writers_connection_has_the_configured_durability(
    tmp_path: Path, durability: Durability, synchronous: int
) -> None:
    writer = opened(tmp_path / "x.db", durability).connect()
    assert pragma(writer, "journal_mode") == "wal"
    assert pragma(writer, "synchronous") == synchronous
    assert pragma(writer, "foreign_keys") == 0
    assert pragma(writer, "mmap_size") == 0
    assert writer.isolation_level is None
    writer.close()


def test_the_writer_keeps_temporary_pages_in_memory(tmp_path: Path) -> None:
    """In a temporary file, every page that goes to the log would be written twice."""
    writer = opened(tmp_path / "x.db").connect()
    assert pragma(writer, "temp_store") == 2
    writer.close()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    database = opened(fresh_file(tmp_path))
    reader = database.connect_reader()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM nodes")
    reader.close()


def test_an_engines_transaction_covers_ddl(tmp_path: Path) -> None:
    engine = opened(tmp_path / "x.db").engine()
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE t (x)"))
        connection.rollback()
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(*) FROM sqlite_master")).scalar() == 0


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:secret@h/x",
        "mysql://u@h/x?password=secret",
        "postgresql+psycopg//u:secret@h/x",
        "postgresql+psycopg://u:p@x:secret@h/x",
        "postgresql+psycopg://u:secret@h:port/x",
        "sqlite://",
        "sqlite:///relative.db",
        "sqlite:///:memory:",
        "nonsense",
    ],
)
def test_only_absolute_paths_and_postgres_are_taken_and_passwords_are_not_shown(url: str) -> None:
    with pytest.raises(StoreUnusable, match="write sqlite:////absolute/path") as raised:
        open_database(url, Durability.FULL)
    assert "secret" not in str(raised.value)


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"hello, this is not a database at all")
    with pytest.raises(StoreUnusable, match=r"is not an SQLite database.*move it away"):
        opened(path)
    assert path.read_bytes().startswith(b"hello")


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = fresh_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[16:100] = b"\xff" * 84
    path.write_bytes(data)
    with pytest.raises(StoreUnusable, match=r"is damaged.*restore a backup"):
        opened(path)


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnusable, match="cannot be opened for writing"):
        opened(tmp_path / "file" / "x.db")


def test_a_directory_in_the_files_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.db").mkdir()
    with pytest.raises(StoreUnusable, match="cannot be opened for writing"):
        opened(tmp_path / "x.db")


def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fresh_file(tmp_path)

    def denied(*_arguments: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", denied)  # the superuser, as whom tests may run, is never denied
    with pytest.raises(StoreUnusable, match=r"Permission denied.*must belong to the broker's user"):
        opened(path)


def test_a_directory_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_arguments: False)
    with pytest.raises(StoreUnusable, match="cannot be written; SQLite keeps its log"):
        opened(fresh_file(tmp_path))


def test_a_database_locked_by_another_process_is_refused(tmp_path: Path) -> None:
    path = fresh_file(tmp_path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnusable, match="is locked by another process"):
        opened(path)
    other.execute("ROLLBACK")
    other.close()
    opened(path)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_FULL, "no space left"),
        (sqlite3.SQLITE_READONLY, "read-only"),
        (sqlite3.SQLITE_IOERR, "cannot be used"),
    ],
)
def test_other_errors_of_the_first_transaction_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    def failing(_self: SQLiteDatabase) -> sqlite3.Connection:
        raise InjectedError(code)

    monkeypatch.setattr(SQLiteDatabase, "connect", failing)
    with pytest.raises(StoreUnusable, match=words):
        opened(fresh_file(tmp_path))


def test_a_file_that_cannot_be_logged_ahead_is_refused(tmp_path: Path) -> None:
    path = fresh_file(tmp_path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA journal_mode=DELETE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnusable, match="locked"):
        opened(path)
    other.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InjectedError(sqlite3.SQLITE_FULL), FailureKind.FULL),
        (InjectedError(sqlite3.SQLITE_BUSY), FailureKind.UNAVAILABLE),
        (InjectedError(sqlite3.SQLITE_READONLY), FailureKind.UNAVAILABLE),
        (InjectedError(sqlite3.SQLITE_IOERR | 4 << 8), FailureKind.UNAVAILABLE),
        (sqlite3.DatabaseError("malformed"), FailureKind.UNAVAILABLE),
        (OSError("gone"), FailureKind.UNAVAILABLE),
        (MemoryError(), FailureKind.UNAVAILABLE),
        (sqlite3.IntegrityError("check"), FailureKind.REFUSED),
        (sqlite3.DataError("too big"), FailureKind.REFUSED),
        (sqlite3.InterfaceError("unsupported type"), FailureKind.REFUSED),
        (OverflowError("too large"), FailureKind.REFUSED),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogate"), FailureKind.REFUSED),
    ],
)
def test_errors_are_of_the_database_or_of_the_row(tmp_path: Path, error: Exception, kind: FailureKind) -> None:
    failure = SQLiteDatabase(tmp_path / "x.db", Durability.FULL).failure(error)
    assert failure.kind is kind
    assert type(error).__name__ in str(failure)


@pytest.mark.parametrize(
    ("code", "away"),
    [
        (sqlite3.SQLITE_BUSY, True),
        (sqlite3.SQLITE_BUSY | 2 << 8, True),
        (sqlite3.SQLITE_LOCKED, True),
        (sqlite3.SQLITE_FULL, False),
        (sqlite3.SQLITE_READONLY, False),
        (sqlite3.SQLITE_IOERR, False),
        (sqlite3.SQLITE_CORRUPT, False),
    ],
)
def test_only_a_lock_is_waited_for(tmp_path: Path, code: int, away: bool) -> None:
    """A lock ends by itself; all other errors are reported to the publisher."""
    assert SQLiteDatabase(tmp_path / "x.db", Durability.FULL).is_away(InjectedError(code)) is away


def test_a_storage_failure_is_not_classified_again(tmp_path: Path) -> None:
    failure = StorageFailure(FailureKind.FULL, "quota")
    assert SQLiteDatabase(tmp_path / "x.db", Durability.FULL).failure(failure) is failure


def test_each_durability_names_its_possible_loss() -> None:
    windows = [durability.loss_window(0.25) for durability in Durability]
    assert len(set(windows)) == 3
    assert "no loss when killed, none when power fails" in Durability.FULL.loss_window(0.25)
    assert "0.25 s" in Durability.ASYNC.loss_window(0.25)
