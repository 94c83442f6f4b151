"""The SQLite database file: where it is, how its connections are opened, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy import Connection as SQLAlchemyConnection
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.pool import NullPool

from holdfast.storage.database import Durability, StoreUnusable
from holdfast.storage.driver import Connection
from holdfast.tickets import FailureKind, StorageFailure

_HEADER = b"SQLite format 3\0"
#: Python's own statement cache: enough for every shape of the hot statements.
_CACHED_STATEMENTS = 256
_READER_CACHE_KIB = 16_384
_WRITER_CACHE_KIB = 32_768
_CHECKPOINT_PAGES = 8_000
_ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


class SQLiteDatabase:
    """An SQLite file in WAL mode, with connections for one writer and any number of readers.

    ``busy_timeout`` (seconds) is how long a statement waits for a lock held by another process.
    """

    begin_statement = "BEGIN IMMEDIATE"
    dialect = "sqlite"
    errors = sqlite3.Error
    remote = False

    def __init__(self, path: Path, durability: Durability, busy_timeout: float = 5.0) -> None:
        self.path = path
        self.durability = durability
        self._busy_timeout = busy_timeout

    @property
    def location(self) -> str:
        """The file's path."""
        return str(self.path)

    def connect(self) -> sqlite3.Connection:
        """Open the writer's connection. It may be used in another thread. Raises sqlite3.Error."""
        connection = self._open(_WRITER_CACHE_KIB)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal":
                raise sqlite3.OperationalError(f"write-ahead logging is not possible here (journal mode {mode})")
            connection.execute(f"PRAGMA synchronous={'FULL' if self.durability is Durability.FULL else 'NORMAL'}")
            connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_reader(self) -> sqlite3.Connection:
        """Open a connection that only reads. Raises sqlite3.Error."""
        connection = self._open(_READER_CACHE_KIB)
        connection.execute("PRAGMA query_only=ON")
        return connection

    def engine(self) -> Engine:
        """Return an SQLAlchemy engine over writing connections, each closed when given back.

        A tool may write with it only while no broker runs on the file: there is one writer at a time.
        """
        engine = create_engine("sqlite://", creator=self.connect, poolclass=NullPool)

        # The driver is in autocommit mode, so that DDL is transactional too: the transaction begins here.
        @event.listens_for(engine, "begin")
        def begin(connection: SQLAlchemyConnection) -> None:
            connection.exec_driver_sql(self.begin_statement)

        return engine

    def checkpoint(self, connection: Connection) -> None:
        """Move the write-ahead log into the database file and empty it."""
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def is_away(self, error: BaseException) -> bool:
        """A file is never away: what fails is told at once."""
        return False

    def is_conflict(self, error: BaseException) -> bool:
        """There is one writer, so there are no conflicts."""
        return False

    def failure(self, error: BaseException) -> StorageFailure:
        """Say why a write failed: FULL, UNAVAILABLE, or REFUSED for what only this row can be blamed for."""
        if isinstance(error, StorageFailure):
            return error
        if not isinstance(error, sqlite3.Error):
            kind = FailureKind.UNAVAILABLE if isinstance(error, (OSError, MemoryError)) else FailureKind.REFUSED
        elif isinstance(error, _ROW_ERRORS):
            kind = FailureKind.REFUSED
        elif _primary_code(error) == sqlite3.SQLITE_FULL:
            kind = FailureKind.FULL
        else:
            kind = FailureKind.UNAVAILABLE
        return StorageFailure(kind, f"{self.path}: {type(error).__name__}: {error}")

    def check(self) -> None:
        """Create the file if need be, and prove that it can be read and written.

        A missing directory is created with mode 0700, a missing file with 0600 (the files SQLite puts beside it
        follow). Raises :class:`StoreUnusable`.
        """
        self._check_file()
        try:
            connection = self.connect()
            try:
                connection.execute(self.begin_statement)
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                connection.execute("ROLLBACK")
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise StoreUnusable(self._explain(error)) from error

    def _check_file(self) -> None:
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "rb") as file:
                header = file.read(len(_HEADER))
        except OSError as error:
            raise StoreUnusable(
                f"{self.path}: cannot be opened for writing ({error.strerror}); "
                f"the file and its directory must belong to the broker's user"
            ) from error
        if header not in (b"", _HEADER):
            raise StoreUnusable(
                f"{self.path}: is not an SQLite database, or its header is damaged; "
                f"move it away to start empty, or restore a backup"
            )
        if not os.access(directory, os.W_OK | os.X_OK):
            raise StoreUnusable(f"{directory}: cannot be written; SQLite keeps its log beside the database file")

    def _explain(self, error: sqlite3.Error) -> str:
        code = _primary_code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"{self.path}: is locked by another process; stop the other broker or tool that uses it"
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return f"{self.path}: is damaged ({error}); restore a backup, or move it away to start empty"
        if code == sqlite3.SQLITE_READONLY:
            return f"{self.path}: is read-only; the file must be writable by the broker's user"
        if code == sqlite3.SQLITE_FULL:
            return f"{self.path}: there is no space left on its disk; make room"
        return f"{self.path}: cannot be used ({error})"

    def _open(self, cache_kib: int) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("PRAGMA mmap_size=0")
        connection.execute(f"PRAGMA cache_size=-{cache_kib}")
        return connection


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte of an extended code
