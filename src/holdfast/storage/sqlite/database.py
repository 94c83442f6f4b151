"""The SQLite database file: how its connections are opened, how it is checked, and the meaning of its errors."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.log.lazy_log import LazyLog
from holdfast.storage import layouts
from holdfast.storage.database import Database, Durability, engine_over
from holdfast.storage.driver import Connection
from holdfast.storage.errors import StoreDamaged, StoreUnusable
from holdfast.storage.sqlite import checkpoints, quarantine
from holdfast.storage.sqlite.checkpoints import Checkpoints, OwnCheckpoints
from holdfast.storage.sqlite.library import is_mended, verdict
from holdfast.storage.sqlite.page_counts import HEADER, missing_pages
from holdfast.tickets import StorageFailure

if TYPE_CHECKING:
    from sqlalchemy import Connection as SQLAlchemyConnection
    from sqlalchemy import Engine

#: Python's own statement cache: enough for every shape of the hot statements.
_CACHED_STATEMENTS = 256
# The page size stays 4096 bytes. With 1024 bytes, scattered writes of 20-byte payloads were a fifth faster, but a
# replay was 17 % slower. With payloads of 300 bytes, which then need pages of their own, a replay took twice as long.

#: The page cache of a connection. A larger cache made nothing faster, measured with a million topics: a replay reads
#: each page once, writes are scattered over all pages, and the system's page cache is as fast.
_READER_CACHE_KIB = 4_096
_WRITER_CACHE_KIB = 8_192
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
#: Tables that can be long. A start reads only their ends, so the time of a start does not grow with them.
_LONG = (layouts.retained, layouts.retained_usage, layouts.retained_history, layouts.retained_changes, layouts.users)
_REMEDY = (
    'restore a backup, or set storage.on_corruption = "quarantine": the broker then moves the file aside and '
    "starts with the data that can still be read"
)


class SQLiteDatabase(Database):
    """An SQLite file in WAL mode, with connections for one writer and any number of readers.

    ``busy_timeout`` (seconds) is how long a statement waits for a lock that another process holds. ``mended`` tells
    whether the library is without the WAL-reset bug: otherwise only the writer's connection moves the log.
    """

    begin_statement = "BEGIN IMMEDIATE"
    dialect = "sqlite"
    errors = sqlite3.Error
    remote = False
    row_errors = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)

    _log = LazyLog("holdfast.storage.sqlite.database.SQLiteDatabase")

    def __init__(
        self, path: Path, durability: Durability, busy_timeout: float = 5.0, mended: bool | None = None
    ) -> None:
        self.path = path
        self.durability = durability
        self._busy_timeout = busy_timeout
        self._checkpoints: Checkpoints | OwnCheckpoints = (
            Checkpoints(path, self._connect_for_checkpoints)
            if (is_mended() if mended is None else mended)
            else OwnCheckpoints(path)
        )

    @property
    def location(self) -> str:
        """The file's path."""
        return str(self.path)

    @property
    def library(self) -> str:
        """The version of SQLite, and whether it has the WAL-reset bug."""
        return verdict()

    def connect(self) -> sqlite3.Connection:
        """Open the writer's connection. Any thread may use it. Raises sqlite3.Error."""
        connection = self._open(_WRITER_CACHE_KIB)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
            if mode != "wal":
                raise sqlite3.OperationalError(f"write-ahead logging is not possible here (journal mode {mode})")
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            self._checkpoints.begin(connection)
            connection.execute(f"PRAGMA journal_size_limit={checkpoints.LONGEST_FILE}")
            # SQLite keeps the old content of each page that a statement of many rows changes, until the statement has
            # succeeded. On disk, that would double the writes of a commit.
            connection.execute("PRAGMA temp_store=MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_for_checkpoints(self) -> sqlite3.Connection:
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

    def connect_exclusive(self) -> sqlite3.Connection:
        """Open an existing file for a change that excludes all other connections: any other one makes it fail.

        The journal mode is not changed: the file may turn out to belong to another program. Raises sqlite3.Error.
        """
        connection = self._open(_WRITER_CACHE_KIB, "rw")
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def connect_read_only(self) -> sqlite3.Connection:
        """Open an existing file for reading. A broker may use it meanwhile. Raises sqlite3.Error."""
        return self._open(_READER_CACHE_KIB, "ro")

    def engine(self) -> Engine:
        """Return an SQLAlchemy engine over writing connections.

        A tool may write with it only while no broker uses the file: there is one writer at a time.
        """
        return engine_over("sqlite://", self.connect, _begin)

    def exclusive_engine(self) -> Engine:
        """Return an engine whose transactions fail while another process has the file open."""
        return engine_over("sqlite://", self.connect_exclusive, _begin)

    def reading_engine(self) -> Engine:
        """Return an engine that only reads. A broker may use the file meanwhile."""
        return engine_over("sqlite://", self.connect_read_only, lambda connection: _begin(connection, "BEGIN"))

    def relations(self, connection: Connection) -> set[str]:
        """Return the names of all tables and views."""
        cursor = connection.cursor()
        cursor.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT GLOB 'sqlite_*'")
        return {name for (name,) in cursor.fetchall()}

    def find_damage(self) -> dict[str, list[str]]:
        """Read the whole file; return descriptions of the damage by kind of check. Raises sqlite3.Error."""
        with closing(self.connect_read_only()) as connection:
            integrity = [found for (found,) in connection.execute("PRAGMA integrity_check") if found != "ok"]
            dangling = [
                f"row {row} of {table} refers to no row of {parent}"
                for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check")
            ]
        return {"integrity_check": integrity, "foreign_key_check": dangling}

    def maintain(self, connection: Connection) -> None:
        """Move a long log into the database file."""
        self._checkpoints.maintain(connection)

    def checkpoint(self, connection: Connection) -> None:
        """Move the write-ahead log into the database file and empty it."""
        self._checkpoints.finish()
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def is_away(self, error: BaseException) -> bool:
        """Tell whether another process holds a lock on the file. All other errors are reported at once."""
        return _primary_code(error) in _LOCKED

    def failure(self, error: BaseException) -> StorageFailure:
        """Classify an error. The first sign of damage also stops all writing."""
        failure = super().failure(error)
        if _primary_code(error) in _DAMAGED and self.damage is None:
            self.damage = failure
            self._report_damage(failure)
        return failure

    def _report_damage(self, failure: StorageFailure) -> None:
        """Log the damage, and leave a mark for the next start.

        Nothing is written from now on: the next write of a damaged page would lose the pages that it refers to.
        """
        self._log.critical(
            "{failure}: the database is damaged. The broker stores no more changes and refuses those that must be"
            " stored; undamaged data can still be read. Stop the broker and run: holdfast db check. Then {remedy}",
            failure=failure,
            remedy=_REMEDY,
        )
        try:
            quarantine.mark(self.path).write_text(f"{failure}\n")
        except OSError as error:
            self._log.critical("{path}: cannot be marked as damaged: {error}", path=self.path, error=error)

    def check(self) -> None:
        """Create the file if necessary, and prove that it can be read and written.

        A missing directory is created with mode 0700, a missing file with 0600 (SQLite gives the same mode to the files
        beside it). The time does not grow with the file. Raises :class:`StoreUnusable`, or :class:`StoreDamaged`.
        """
        self._check_file()
        self._check_for_known_damage()
        with self.explaining_errors(), closing(self.connect()) as connection:
            connection.execute(self.begin_statement)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.execute("ROLLBACK")

    def inspect(self) -> None:
        """Prove that the file is there, belongs to this broker's user, and has no known damage."""
        self.check_present()
        self._check_for_known_damage()
        for path in (self.path, self.path.parent):
            if not os.access(path, os.R_OK | os.W_OK):
                raise StoreUnusable(f"{path}: cannot be written; it must belong to the broker's user")

    def check_readable(self) -> None:
        """Prove that the short tables and both ends of the long tables can be read.

        Raises :class:`StoreDamaged`. Damage in the middle of a long table is found when that part is read.
        """
        with self.explaining_errors(), closing(self.connect_reader()) as reader:
            reader.text_factory = bytes
            for table in layouts.TABLES:
                columns = ", ".join(f"max({name})" for name in table.columns)
                if table not in _LONG:
                    reader.execute(f"SELECT count(*), {columns} FROM {table.name}").fetchone()  # noqa: S608 - our names
                for end in ("min", "max"):
                    reader.execute(f"SELECT {end}({table.key[0]}) FROM {table.name}").fetchone()  # noqa: S608

    def check_present(self) -> None:
        """Prove that the database file exists. Creates and changes nothing. Raises :class:`StoreUnusable`."""
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
                self.path,
                "is not an SQLite database, or its header is damaged",
                f"name another file, move it away to start empty, {_REMEDY}",
            )

    def _check_for_known_damage(self) -> None:
        """Look for damage that SQLite does not see when it opens the file.

        It takes a file of length 0 for a new database, and ignores its log.
        """
        mark, log = quarantine.mark(self.path), self.path.with_name(self.path.name + "-wal")
        try:
            if mark.exists():
                found = mark.read_text(errors="replace").strip()
                raise StoreDamaged(
                    self.path,
                    f"was found damaged while the broker ran ({found})",
                    f"run: holdfast db check. If that finds nothing, remove {mark}; else {_REMEDY}",
                )
            if self.path.stat().st_size == 0 and log.exists() and log.stat().st_size > 0:
                raise StoreDamaged(self.path, "is damaged (it is empty, but has a log beside it)", _REMEDY)
            missing = missing_pages(self.path)
        except OSError as error:
            raise StoreUnusable(f"{self.path}: cannot be read ({error.strerror})") from error
        if missing:
            raise StoreDamaged(self.path, f"is damaged ({missing} pages are missing at its end)", _REMEDY)

    def _is_full(self, error: BaseException) -> bool:
        return _primary_code(error) == sqlite3.SQLITE_FULL

    def _explained(self, error: BaseException) -> StoreUnusable:
        code = _primary_code(error)
        if code in _DAMAGED:
            return StoreDamaged(self.path, f"is damaged ({error})", _REMEDY)
        if code in _LOCKED:
            text = "is locked by another process; stop the other broker or tool that uses it"
        elif code == sqlite3.SQLITE_READONLY:
            text = "is read-only; the file must be writable by the broker's user"
        elif code == sqlite3.SQLITE_CANTOPEN:
            text = f"cannot be opened ({error}); the file and its directory must belong to the broker's user"
        elif code == sqlite3.SQLITE_FULL:
            text = "there is no space left on its disk; free some space"
        else:
            text = f"cannot be used ({error})"
        return StoreUnusable(f"{self.path}: {text}")

    def _open(self, cache_kib: int, mode: str = "rwc") -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}",
            uri=True,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
        connection.execute("PRAGMA wal_autocheckpoint=0")  # only the writer moves the log
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("PRAGMA mmap_size=0")
        connection.execute(f"PRAGMA cache_size=-{cache_kib}")
        return connection


def _begin(connection: SQLAlchemyConnection, statement: str = SQLiteDatabase.begin_statement) -> None:
    # The driver is in autocommit mode, so that DDL is transactional too: the transaction begins here.
    connection.exec_driver_sql(statement)


def _primary_code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte of an extended code
