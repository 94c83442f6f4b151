"""SQLite: its files, its library, statements for many rows, backups, and damaged files."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from glob import escape
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.core.tickets import StorageFailure
from holdfast.storage import checkpoints, layouts
from holdfast.storage.checkpoints import FILE_HEADER, Checkpoints, OwnCheckpoints, missing_pages
from holdfast.storage.database import Database, Durability, engine_over
from holdfast.storage.driver import (
    MOST_ROWS,
    Connection,
    Cursor,
    Rows,
    insert_into,
    on_conflict_replace,
    split_in_powers_of_two,
)
from holdfast.storage.layout import Layout
from holdfast.storage.location import StoreDamaged, StoreUnusable
from holdfast.watch.lazy_log import LazyLog

if TYPE_CHECKING:
    from sqlalchemy import Connection as SQLAlchemyConnection
    from sqlalchemy import Engine


# The SQLite database file: how its connections are opened, how it is checked, and the meaning of its errors.


#: Python's own statement cache: enough for every shape of the hot statements.
_CACHED_STATEMENTS = 256
# The page size stays 4096 bytes. With 1024 bytes, scattered writes of 20-byte payloads were a fifth faster, but a
# replay was 17 % slower. With payloads of 300 bytes, which then need pages of their own, a replay took twice as long.

#: The page cache of a connection. A larger cache made nothing faster, measured with a million topics: a replay reads
#: each page once, writes are scattered over all pages, and the system's page cache is as fast.
_READER_CACHE_KIB = 4_096
_WRITER_CACHE_KIB = 8_192
# The driver of CPython 3.11 looks for an adapter of each bound value that is no number and no text. A value without one
# costs it half a microsecond: it makes an exception, with a text, and drops it. A retained row has up to seven such
# values. These two adapters are found at once, and return the value itself.
_NOTHING: dict[None, None] = {}
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(type(None), _NOTHING.get)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
#: Tables that can be long. A start reads only their ends, so the time of a start does not grow with them.
_LONG = (
    layouts.retained, layouts.retained_usage, layouts.retained_history, layouts.telemetry, layouts.retained_changes,
    layouts.users,
)  # fmt: skip
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

    _log = LazyLog("holdfast.storage.sqlite.SQLiteDatabase")

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
            mark_of(self.path).write_text(f"{failure}\n")
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
                    reader.execute(f"SELECT count(*), {columns} FROM {table.name}").fetchone()
                for end in ("min", "max"):
                    reader.execute(f"SELECT {end}({table.key[0]}) FROM {table.name}").fetchone()

    def check_present(self) -> None:
        """Prove that the database file exists. Creates and changes nothing. Raises :class:`StoreUnusable`."""
        try:
            with self.path.open("rb") as file:
                header = file.read(len(FILE_HEADER))
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
            finish(self.path)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "rb") as file:
                header = file.read(len(FILE_HEADER))
        except OSError as error:
            raise StoreUnusable(
                f"{self.path}: cannot be opened for writing ({error.strerror}); "
                f"the file and its directory must belong to the broker's user"
            ) from error
        self._check_header(header)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise StoreUnusable(f"{directory}: cannot be written; SQLite keeps its log beside the database file")

    def _check_header(self, header: bytes) -> None:
        if header not in (b"", FILE_HEADER):
            raise StoreDamaged(
                self.path,
                "is not an SQLite database, or its header is damaged",
                f"name another file, move it away to start empty, {_REMEDY}",
            )

    def _check_for_known_damage(self) -> None:
        """Look for damage that SQLite does not see when it opens the file.

        It takes a file of length 0 for a new database, and ignores its log.
        """
        mark, log = mark_of(self.path), self.path.with_name(self.path.name + "-wal")
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


# The SQLite library of this process, and whether it has the WAL-reset bug.
#
# The bug (SQLite 3.7.0 to 3.51.2): while one connection moves the write-ahead log into the file, another one commits
# and so lets the log begin anew. The first one may then note that pages of the *new* log are in the file already. They
# never get there, and the file is damaged. Only one connection may therefore move the log and commit, unless the
# library is known to be mended.
#
# Some distributions mend an older version and keep its number. That cannot be seen from here, so such a version counts
# as not mended: the cost is small (``checkpoints.py``).


#: the first mended version, and the versions of older branches to which the mend was ported
_MENDED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
_NAMES = ", ".join(".".join(map(str, version)) for version in _MENDED)


def is_mended(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Tell whether this version of SQLite is known to be without the WAL-reset bug."""
    first, *ports = _MENDED
    return version >= first or any(port <= version and version[:2] == port[:2] for port in ports)


def verdict(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> str:
    """Return the version and the verdict, for the log and for ``holdfast db check``."""
    text = ".".join(map(str, version))
    if is_mended(version):
        return f"SQLite {text}: without the WAL-reset bug"
    return (
        f"SQLite {text}: may have the WAL-reset bug (mended in {_NAMES} and later), so the writer itself moves the "
        "log into the database, between commits"
    )


# Many rows in few statements, for SQLite: all rows of a statement are in one VALUES.
#
# The driver gives up the interpreter lock and takes it back at every step of a statement. An INSERT is one step,
# however many rows it has, so one statement with 256 rows is much cheaper than 256 statements.


# Built from table definitions and counts alone: values are always bound.
# ruff: noqa: S608


class SQLiteBulk:
    """Writes and deletes with one VALUES for up to 256 rows."""

    def upsert(self, cursor: Cursor, table: Layout, rows: Rows) -> None:
        """Insert or replace."""
        for part in split_in_powers_of_two(rows, MOST_ROWS):
            cursor.execute(_upsert(table, len(part)), list(chain.from_iterable(part)))

    def delete(self, cursor: Cursor, table: Layout, key: tuple[str, ...], keys: Rows) -> None:
        """Delete by key."""
        for part in split_in_powers_of_two(keys, MOST_ROWS):
            cursor.execute(delete_statement(table, key, len(part)), list(chain.from_iterable(part)))


@lru_cache(maxsize=256)
def _upsert(table: Layout, rows: int) -> str:
    parameters = f"({', '.join('?' * len(table.columns))})"
    return (
        f"{insert_into(table)} VALUES {', '.join([parameters] * rows)} {on_conflict_replace(table.columns, table.key)}"
    )


@lru_cache(maxsize=256)
def delete_statement(table: Layout, key: tuple[str, ...], rows: int) -> str:
    """Return the statement that deletes this number of rows by their keys."""
    if len(key) == 1:
        return f"DELETE FROM {table.name} WHERE {key[0]} IN ({', '.join('?' * rows)})"
    parameters = f"({', '.join('?' * len(key))})"
    columns = ", ".join(f"column{number}" for number in range(1, len(key) + 1))
    # SQLite seeks in the index for each pair of a subquery. For pairs listed directly it scans the table.
    return (
        f"DELETE FROM {table.name} WHERE ({', '.join(key)}) IN "
        f"(SELECT {columns} FROM (VALUES {', '.join([parameters] * rows)}) AS gone)"
    )


# Backups of an SQLite database. A broker may write to it meanwhile.


#: The number of pages of one step: some megabytes.
_PAGES = 1000

#: called with the number of copied pages and the number of all pages
Report = Callable[[int, int], None]


def back_up(database: SQLiteDatabase, target: Path, report: Report) -> None:
    """Copy the present state of the database to a new file.

    A broker may write meanwhile without delay, but its log grows until the copy is complete. The file gets its name
    when it is complete and synced to disk. Raises :class:`StoreUnusable`.
    """
    database.check_present()
    if target.exists():
        raise StoreUnusable(f"{target}: exists already; name another file, or move this file away")
    unfinished = target.with_name(target.name + ".partial")
    try:
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        with database.explaining_errors():
            _copy(database, unfinished, report)
        _keep(unfinished, target)
    except OSError as error:
        raise StoreUnusable(f"{target}: cannot be written ({error.strerror})") from error
    finally:
        for rest in ("", "-wal", "-shm", "-journal"):
            unfinished.with_name(unfinished.name + rest).unlink(missing_ok=True)


def _copy(database: SQLiteDatabase, path: Path, report: Report) -> None:
    with closing(database.connect_read_only()) as source, closing(sqlite3.connect(path)) as copy:
        # An open transaction keeps the snapshot. Without it, each commit of the broker would restart the copy.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
        source.backup(copy, pages=_PAGES, progress=lambda _status, left, total: report(total - left, total), sleep=0)
        copy.execute("PRAGMA journal_mode=DELETE")  # a single file, without a log beside it


def _keep(unfinished: Path, target: Path) -> None:
    """Sync a file to disk, then give it its name. An existing file is never replaced."""
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    os.link(unfinished, target)
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


# Quarantine: a damaged SQLite file is renamed, never emptied or overwritten, and a new file takes its place.
#
# Names beside the database ``NAME``: ``NAME.corrupt-YYYYMMDDTHHMMSS`` is a file in quarantine. ``NAME.salvaged`` is the
# replacement. ``NAME.damaged`` is a mark: the running broker has found damage that a start, which reads almost nothing,
# would not find.
#
# The steps are in an order that can be interrupted anywhere. The next start sees which files exist, and goes on:
#
# 1. the replacement is complete and synced: ``NAME.salvaged``
# 2. ``NAME`` is renamed to ``NAME.corrupt-...`` (first: without its log, the file would look like a sound database that
#    lacks the last commits)
# 3. its log and the other companions are renamed likewise; the mark is removed
# 4. ``NAME.salvaged`` is renamed to ``NAME``


_COMPANIONS = ("-wal", "-shm", "-journal")


class OnCorruption(Enum):
    """What the broker does with a damaged database when it starts."""

    REFUSE = "refuse"
    QUARANTINE = "quarantine"


def mark_of(path: Path) -> Path:
    """Return the path of a database's mark."""
    return _beside(path, ".damaged")


def replacement(path: Path) -> Path:
    """Return the path of the database that will replace a damaged one."""
    return _beside(path, ".salvaged")


def quarantined(path: Path) -> list[Path]:
    """Return the files in quarantine beside a database, the oldest first."""
    found = path.parent.glob(f"{escape(path.name)}.corrupt-*")
    return sorted(file for file in found if not file.name.endswith(_COMPANIONS))


def set_aside(path: Path, now: int) -> Path:
    """Move the database into quarantine and put its replacement in its place; return its new path.

    ``now`` is in milliseconds since the epoch. After an interruption, :func:`finish` does the rest. Raises OSError.
    """
    moment = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y%m%dT%H%M%S")
    target = _beside(path, f".corrupt-{moment}")
    number = 1
    while target.exists():
        number += 1
        target = _beside(path, f".corrupt-{moment}-{number}")
    path.rename(target)  # step 2
    finish(path)
    return target


def finish(path: Path) -> None:
    """Complete an interrupted :func:`set_aside`; remove a replacement that is not complete. Raises OSError."""
    new = replacement(path)
    if path.exists():
        discard(new)
        return
    if not new.exists():
        return
    target = quarantined(path)[-1]
    for companion in _COMPANIONS:
        file = _beside(path, companion)
        if file.exists():
            file.rename(_beside(target, companion))
    mark_of(path).unlink(missing_ok=True)
    _sync(path.parent)
    new.rename(path)
    _sync(path.parent)


def discard(path: Path) -> None:
    """Remove a database and its companions."""
    for companion in ("", *_COMPANIONS):
        _beside(path, companion).unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
