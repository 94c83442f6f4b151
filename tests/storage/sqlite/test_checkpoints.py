"""Checkpoints: the log does not grow, nothing is lost, and no commit fails because of them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from holdfast.storage import checkpoints
from holdfast.storage.checkpoints import OWN_PAGES, PAGES_OF_LOG, Checkpoints, OwnCheckpoints
from holdfast.storage.committer import Committer
from holdfast.storage.database import Durability
from holdfast.storage.sqlite import SQLiteDatabase

_PAGE = 4096
_LONG = 50


class Log:
    """A database with a log and its checkpoints."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path.with_name(path.name + "-wal")
        self.broken = False
        self.connection = SQLiteDatabase(path, Durability.FULL).connect()
        self.connection.execute("PRAGMA wal_autocheckpoint=0")
        self.connection.execute("CREATE TABLE t (number INTEGER PRIMARY KEY, content BLOB)")
        self.checkpoints = Checkpoints(path, self._connect, _LONG, 0)

    def _connect(self) -> sqlite3.Connection:
        if self.broken:
            raise sqlite3.OperationalError("no way in")
        return sqlite3.connect(self.path, check_same_thread=False)

    def write(self, pages: int) -> None:
        """Commit a row of at least ``pages`` pages."""
        self.connection.execute("INSERT INTO t (content) VALUES (?)", (bytes(_PAGE * pages),))
        self.checkpoints.maintain(self.connection)

    def moved(self) -> None:
        """Wait for the checkpoint in progress; the writer's next commit completes it."""
        self.checkpoints.finish()
        self.write(1)

    def salt(self) -> bytes:
        """Return the salt, which changes when a log begins anew."""
        return self.log.read_bytes()[16:24]

    def rows_of_file(self) -> int:
        """Return the number of rows in the file without its log."""
        alone = self.path.with_name("alone.db")
        alone.write_bytes(self.path.read_bytes())
        with closing(sqlite3.connect(alone)) as connection:
            return int(connection.execute("SELECT count(*) FROM t").fetchone()[0])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    found = Log(tmp_path / "a.db")
    yield found
    found.checkpoints.finish()
    found.connection.close()


def test_a_log_that_was_very_long_gives_its_space_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the reader that has kept it from being moved. Else its alarm, and that of the disk, would stay."""
    monkeypatch.setattr(checkpoints, "LONGEST_FILE", 20 * _PAGE)
    log = Log(tmp_path / "a.db")
    with closing(sqlite3.connect(log.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM t").fetchone()
        for _ in range(4):
            log.write(_LONG)
            log.checkpoints.finish()
        assert log.log.stat().st_size > 4 * _LONG * _PAGE
    for _ in range(4):
        log.write(_LONG)
        log.moved()
    log.write(1)
    assert log.log.stat().st_size <= 2 * _LONG * _PAGE
    assert log.connection.execute("SELECT count(*) FROM t").fetchone() == (13,)
    log.checkpoints.finish()
    log.connection.close()


def test_a_short_log_stays(log: Log) -> None:
    log.write(1)
    log.checkpoints.finish()
    assert log.path.stat().st_size <= _PAGE


def test_a_long_log_is_moved_and_begins_anew(log: Log) -> None:
    """The file keeps its length; the next commits overwrite it from its beginning."""
    log.write(_LONG + 1)
    log.checkpoints.finish()
    assert log.rows_of_file() == 1
    salt, length = log.salt(), log.log.stat().st_size
    log.moved()
    for _ in range(3):
        log.write(2)
    assert log.salt() != salt
    assert log.log.stat().st_size == length


def test_again_and_again(log: Log) -> None:
    """A long log begins a checkpoint each time."""
    salts = set()
    for _ in range(5):
        log.write(_LONG + 1)
        log.moved()
        log.write(1)
        salts.add(log.salt())
    assert len(salts) == 5
    log.write(_LONG + 1)
    log.checkpoints.finish()
    assert log.rows_of_file() == 16


@contextmanager
def reading(log: Log) -> Iterator[sqlite3.Connection]:
    """Open a transaction that keeps its snapshot."""
    with closing(sqlite3.connect(log.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM t").fetchone()
        yield reader


def test_a_reader_keeps_its_snapshot(log: Log) -> None:
    """Later pages stay in the log. The next attempt is made when the log is longer by half, not at each commit."""
    log.write(1)
    with reading(log) as reader:
        log.write(_LONG + 1)
        log.moved()
        salt = log.salt()
        log.write(1)
        log.write(_LONG // 2)
        log.moved()
        assert reader.execute("SELECT count(*) FROM t").fetchone() == (1,)
        assert log.salt() == salt
    log.write(_LONG // 2 + 1)
    log.moved()
    log.write(1)
    assert log.salt() != salt
    assert log.connection.execute("SELECT count(*) FROM t").fetchone() == (9,)


def test_a_log_that_has_begun_anew_is_moved_at_the_usual_length(log: Log) -> None:
    """A reader had delayed the checkpoint of the earlier log, which another connection has completed since."""
    log.write(1)
    with reading(log):
        for _ in range(6):
            log.write(_LONG + 1)
            log.moved()
    log.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()  # as SQLite does within a commit
    log.write(1)
    before = log.rows_of_file()
    log.write(_LONG + 1)
    log.checkpoints.finish()
    assert log.rows_of_file() == before + 2


def test_a_lasting_failure_is_not_logged_at_each_commit(log: Log) -> None:
    """On a full disk, the broker's log could fail too."""
    log.broken = True
    with capturedLogs() as events:
        for _ in range(6):
            log.write(_LONG + 1)
            log.checkpoints.finish()
    assert len(events) == 1


def test_a_failed_checkpoint_is_logged_and_no_commit_fails(log: Log) -> None:
    log.broken = True
    with capturedLogs() as events:
        log.write(_LONG + 1)
        log.checkpoints.finish()
    assert [formatEvent(event) for event in events] == [f"{log.log}: cannot be moved into the database now: no way in"]
    log.broken = False
    log.moved()
    log.write(1)
    log.moved()
    assert log.rows_of_file()


def test_with_a_library_that_may_have_the_bug_only_the_writer_moves_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread starts, no second connection checkpoints, and the log stays as short as its pages and one commit."""
    checkpoints: list[int] = []
    connect = sqlite3.connect

    def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        number = len(opened)
        opened.append(connection)
        connection.set_trace_callback(
            lambda statement: checkpoints.append(number) if "wal_checkpoint" in statement else None
        )
        return connection

    opened: list[sqlite3.Connection] = []
    monkeypatch.setattr(sqlite3, "connect", watched)
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    database = SQLiteDatabase(tmp_path / "a.db", Durability.FULL, mended=False)
    database._checkpoints = OwnCheckpoints(database.path, period=0)
    committer = Committer(database, 1)
    committer.transact(lambda connection: connection.cursor().execute("CREATE TABLE t (content BLOB)"))
    reader = database.connect_reader()
    (limit,) = reader.execute("PRAGMA wal_autocheckpoint").fetchone()
    assert limit == 0
    row = (bytes(_PAGE * 20),)
    for _ in range(100):
        committer.transact(lambda connection: connection.cursor().execute("INSERT INTO t VALUES (?)", row))
        committer.maintain()
    log = database.path.with_name("a.db-wal")
    assert log.stat().st_size < (OWN_PAGES + 2 * 25) * (_PAGE + 24)
    assert database.path.stat().st_size > 1500 * _PAGE
    assert started == []
    assert set(checkpoints) <= {0}
    reader.close()
    committer.close()
    assert not log.exists()


def test_a_reader_that_ends_lets_the_writer_move_the_whole_log(tmp_path: Path) -> None:
    """While a backup reads, the log grows and no commit fails. Then it is moved after the next commit."""
    database = SQLiteDatabase(tmp_path / "a.db", Durability.FULL, mended=False)
    database._checkpoints = OwnCheckpoints(database.path, period=0)
    committer = Committer(database, 1)
    committer.transact(lambda connection: connection.cursor().execute("CREATE TABLE t (content BLOB)"))
    row = (bytes(_PAGE * 20),)
    with closing(database.connect_read_only()) as backup:
        backup.execute("BEGIN")
        backup.execute("SELECT count(*) FROM t").fetchone()
        for _ in range(50):
            committer.transact(lambda connection: connection.cursor().execute("INSERT INTO t VALUES (?)", row))
            committer.maintain()
        assert backup.execute("SELECT count(*) FROM t").fetchone() == (0,)
    assert database.path.stat().st_size < 20 * _PAGE
    committer.transact(lambda connection: connection.cursor().execute("INSERT INTO t VALUES (?)", row))
    committer.maintain()
    assert database.path.stat().st_size > 1000 * _PAGE
    committer.close()


def test_a_log_that_the_writer_cannot_move_is_reported(tmp_path: Path) -> None:
    """No commit fails because of it, and the failure is not reported after each commit."""
    path = tmp_path / "a.db"
    checkpoints = OwnCheckpoints(path, pages=10, period=0)

    class Failing:
        def cursor(self) -> Failing:
            return self

        def execute(self, statement: str) -> None:
            raise sqlite3.OperationalError("disk I/O error")

    with closing(SQLiteDatabase(path, Durability.FULL, mended=False).connect()) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("CREATE TABLE t (content BLOB)")
        with capturedLogs() as events:
            checkpoints.maintain(Failing())  # type: ignore[arg-type]  # the log is short
            assert events == []
            connection.execute("INSERT INTO t VALUES (?)", (bytes(_PAGE * 100),))
            for _ in range(5):
                checkpoints.maintain(Failing())  # type: ignore[arg-type]
    assert [formatEvent(event) for event in events] == [
        f"{path}-wal: cannot be moved into the database now: disk I/O error"
    ]


@pytest.mark.parametrize("mended", [False, True])
def test_the_writer_starts_checkpoints(tmp_path: Path, mended: bool) -> None:
    """Nothing is lost when a store is closed during a checkpoint."""
    database = SQLiteDatabase(tmp_path / "a.db", Durability.FULL, mended=mended)
    batches = Committer(database, 1)
    batches.transact(lambda connection: connection.cursor().execute("CREATE TABLE t (content BLOB)"))
    content = (bytes(_PAGE * (PAGES_OF_LOG + 1)),)
    batches.transact(lambda connection: connection.cursor().execute("INSERT INTO t VALUES (?)", content))
    batches.maintain()
    batches.close()
    assert not database.path.with_name("a.db-wal").exists()
    with closing(database.connect_reader()) as reader:
        assert reader.execute("SELECT length(content) FROM t").fetchall() == [(len(content[0]),)]
        assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
