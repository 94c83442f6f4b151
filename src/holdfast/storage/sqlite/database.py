"""The SQLite database file: where it is, how its connections are opened, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection as SQLAlchemyConnection
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from twisted.logger import Logger

from holdfast.storage import tables
from holdfast.storage.database import Durability, StoreDamaged, StoreUnusable
from holdfast.storage.driver import Connection
from holdfast.storage.sqlite import quarantine
from holdfast.storage.sqlite.checkpoints import PAGES, Checkpoints
from holdfast.storage.sqlite.file_size import HEADER, missing_pages
from holdfast.tickets import FailureKind, StorageFailure

#: Python's own statement cache: enough for every shape of the hot statements.
_CACHED_STATEMENTS = 256
#: Pages a connection keeps. More of them make nothing faster, measured with a million topics: a replay reads each page
#: once, what is written is scattered over all of them, and the system's own cache is as near.
_READER_CACHE_KIB = 4_096
_WRITER_CACHE_KIB = 8_192
#: Where the checkpoints beside the writer do not keep up, it does its own: a log takes its time to read at start.
_CHECKPOINT_PAGES = 3 * PAGES
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
#: Tables that may be long: a start reads nothing of them, so that it takes no longer the more there is.
_LONG = (tables.retained, tables.retained_usage, tables.retained_history)
_REMEDY = (
    'restore a backup, or set storage.on_corruption = "quarantine": the broker then moves the file aside and '
    "starts with what can be read of it"
)
_ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


class SQLiteDatabase:
    """An SQLite file in WAL mode, with connections for one writer and any number of readers.

    ``busy_timeout`` (seconds) is how long a statement waits for a lock held by another process.
    """

    begin_statement = "BEGIN IMMEDIATE"
    dialect = "sqlite"
    errors = sqlite3.Error
    remote = False

    _log = Logger()

    def __init__(self, path: Path, durability: Durability, busy_timeout: float = 5.0) -> None:
        self.path = path
        self.durability = durability
        self.damage: StorageFailure | None = None
        self._busy_timeout = busy_timeout
        self._checkpoints = Checkpoints(path, self._connect_mover)

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
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
            # Every page that a statement of many rows changes is kept as it was until the statement has succeeded.
            # In a file, that would be a second write of as many pages as go to the log.
            connection.execute("PRAGMA temp_store=MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_mover(self) -> sqlite3.Connection:
        connection = self._open(_READER_CACHE_KIB)
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        return connection

    @property
    def _synchronous(self) -> str:
        return "FULL" if self.durability is Durability.FULL else "NORMAL"

    def connect_reader(self) -> sqlite3.Connection:
        """Open a connection that only reads. Raises sqlite3.Error."""
        connection = self._open(_READER_CACHE_KIB)
        connection.execute("PRAGMA query_only=ON")
        return connection

    def connect_alone(self) -> sqlite3.Connection:
        """Open an existing file for a change that nobody else may look on: any other connection makes it fail.

        The journal mode stays as it is: the file may turn out to be somebody else's. Raises sqlite3.Error.
        """
        connection = self._open(_WRITER_CACHE_KIB, "rw")
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def connect_onlooker(self) -> sqlite3.Connection:
        """Open an existing file to look at it only, also while a broker runs on it. Raises sqlite3.Error."""
        return self._open(_READER_CACHE_KIB, "ro")

    def engine(
        self, connect: Callable[[], sqlite3.Connection] | None = None, begin_statement: str | None = None
    ) -> Engine:
        """Return an SQLAlchemy engine over writing connections, or those of ``connect``, each closed when given back.

        A tool may write with it only while no broker runs on the file: there is one writer at a time.
        """
        engine = create_engine("sqlite://", creator=connect or self.connect, poolclass=NullPool)

        # The driver is in autocommit mode, so that DDL is transactional too: the transaction begins here.
        @event.listens_for(engine, "begin")
        def begin(connection: SQLAlchemyConnection) -> None:
            connection.exec_driver_sql(begin_statement or self.begin_statement)

        return engine

    def exclusive(self) -> Engine:
        """Return an engine whose transactions fail while anybody else has the file open."""
        return self.engine(self.connect_alone)

    def looking(self) -> Engine:
        """Return an engine that only reads, also while a broker runs on the file."""
        return self.engine(self.connect_onlooker, "BEGIN")

    def damages(self) -> dict[str, list[str]]:
        """Read everything, and return what is wrong with it by kind of check. Raises sqlite3.Error."""
        with closing(self.connect_onlooker()) as onlooker:
            integrity = [found for (found,) in onlooker.execute("PRAGMA integrity_check") if found != "ok"]
            dangling = [
                f"row {row} of {table} refers to no row of {parent}"
                for table, row, parent, _ in onlooker.execute("PRAGMA foreign_key_check")
            ]
        return {"integrity_check": integrity, "foreign_key_check": dangling}

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise :class:`StoreUnusable`, with what to do, for an error of the database."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(error) from error
        except DBAPIError as error:
            raise self._explained(error.orig) from error

    def _explained(self, error: BaseException | None) -> StoreUnusable:
        kind = StoreDamaged if _primary_code(error) in _DAMAGED else StoreUnusable
        return kind(self._explain(error))

    def committed(self, connection: Connection) -> None:
        """Have the log moved into the database file where it has become long."""
        self._checkpoints.committed(connection)

    def checkpoint(self, connection: Connection) -> None:
        """Move the write-ahead log into the database file and empty it."""
        self._checkpoints.finish()
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def is_away(self, error: BaseException) -> bool:
        """Tell whether somebody else has the file locked: that passes. All else is told at once."""
        return _primary_code(error) in _LOCKED

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
        failure = StorageFailure(kind, f"{self.path}: {type(error).__name__}: {error}")
        if _primary_code(error) in _DAMAGED and self.damage is None:
            self.damage = failure
            self._tell_damage(failure)
        return failure

    def _tell_damage(self, failure: StorageFailure) -> None:
        """Say so, and leave a mark for the next start.

        Nothing is written from now on: what hangs on a damaged page would be lost the next time that is written.
        """
        self._log.critical(
            "{failure}: the database is damaged. Nothing is stored any more, and what has to be is refused; what can be"
            " read goes on being read. Stop the broker and run: holdfast db check. Then {remedy}",
            failure=failure,
            remedy=_REMEDY,
        )
        try:
            quarantine.mark(self.path).write_text(f"{failure}\n")
        except OSError as error:
            self._log.critical("{path}: cannot be marked as damaged: {error}", path=self.path, error=error)

    def check(self) -> None:
        """Create the file if need be, and prove that it can be read and written.

        A missing directory is created with mode 0700, a missing file with 0600 (the files SQLite puts beside it
        follow). Raises :class:`StoreUnusable`, or :class:`StoreDamaged`. Takes no longer the more is in it.
        """
        self._check_file()
        self._check_extent()
        with self.explained(), closing(self.connect()) as connection:
            connection.execute(self.begin_statement)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.execute("ROLLBACK")

    def check_beginning(self) -> None:
        """Prove that what is read at start can be read: all but the long tables, and their ends.

        Raises :class:`StoreDamaged`. What is damaged in the midst of the long tables is found when it is read.
        """
        with self.explained(), closing(self.connect_reader()) as reader:
            reader.text_factory = bytes
            for table in tables.metadata.sorted_tables:
                columns = ", ".join(f"max({column.name})" for column in table.columns)
                if table not in _LONG:
                    reader.execute(f"SELECT count(*), {columns} FROM {table.name}").fetchone()  # noqa: S608 - our names
                for key in table.primary_key:
                    reader.execute(f"SELECT min({key.name}) FROM {table.name}").fetchone()  # noqa: S608
                    reader.execute(f"SELECT max({key.name}) FROM {table.name}").fetchone()  # noqa: S608
                    break

    def check_present(self) -> None:
        """Prove that there is a database file, without making or changing one. Raises :class:`StoreUnusable`."""
        try:
            with self.path.open("rb") as file:
                header = file.read(len(HEADER))
        except FileNotFoundError as error:
            raise StoreUnusable(
                f"{self.path}: there is no such file; name the broker's own with --config, --data-dir or --storage"
            ) from error
        except OSError as error:
            raise StoreUnusable(
                f"{self.path}: cannot be opened ({error.strerror}); run this as the broker's user"
            ) from error
        self._check_header(header)

    def _check_file(self) -> None:
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            quarantine.finish(self.path)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "rb") as file:
                header = file.read(len(HEADER))
        except OSError as error:
            raise StoreUnusable(
                f"{self.path}: cannot be opened for writing ({error.strerror}); "
                f"the file and its directory must belong to the broker's user"
            ) from error
        self._check_header(header)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise StoreUnusable(f"{directory}: cannot be written; SQLite keeps its log beside the database file")

    def _check_header(self, header: bytes) -> None:
        if header not in (b"", HEADER):
            raise StoreDamaged(
                f"{self.path}: is not an SQLite database, or its header is damaged; "
                f"name another file, move it away to start empty, {_REMEDY}"
            )

    def _check_extent(self) -> None:
        """Find what a start would not: SQLite takes a file of length 0 for a new one, whatever is in its log."""
        mark, log = quarantine.mark(self.path), self.path.with_name(self.path.name + "-wal")
        try:
            if mark.exists():
                found = mark.read_text(errors="replace").strip()
                raise StoreDamaged(
                    f"{self.path}: was found damaged while the broker ran ({found}); run: holdfast db check. "
                    f"If that finds nothing, remove {mark}; else {_REMEDY}"
                )
            if self.path.stat().st_size == 0 and log.exists() and log.stat().st_size > 0:
                raise StoreDamaged(f"{self.path}: is damaged (it is empty, but has a log beside it); {_REMEDY}")
            missing = missing_pages(self.path)
        except OSError as error:
            raise StoreUnusable(f"{self.path}: cannot be looked at ({error.strerror})") from error
        if missing:
            raise StoreDamaged(f"{self.path}: is damaged ({missing} pages are missing at its end); {_REMEDY}")

    def _explain(self, error: BaseException | None) -> str:
        code = _primary_code(error)
        if code in _LOCKED:
            return f"{self.path}: is locked by another process; stop the other broker or tool that uses it"
        if code in _DAMAGED:
            return f"{self.path}: is damaged ({error}); {_REMEDY}"
        if code == sqlite3.SQLITE_READONLY:
            return f"{self.path}: is read-only; the file must be writable by the broker's user"
        if code == sqlite3.SQLITE_CANTOPEN:
            return (
                f"{self.path}: cannot be opened ({error}); the file and its directory must belong to the broker's user"
            )
        if code == sqlite3.SQLITE_FULL:
            return f"{self.path}: there is no space left on its disk; make room"
        return f"{self.path}: cannot be used ({error})"

    def _open(self, cache_kib: int, mode: str = "rwc") -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("PRAGMA mmap_size=0")
        connection.execute(f"PRAGMA cache_size=-{cache_kib}")
        return connection


def _primary_code(error: BaseException | None) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte of an extended code
