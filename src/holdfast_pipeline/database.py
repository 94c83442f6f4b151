"""Connections to the database of the broker, for reading, and what a job asks of it first."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock, Timer
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from attrs import define, field, frozen

from holdfast.changes.api import confirm, read_periods, read_state, read_telemetry_state
from holdfast.commands.api import Inaccessible, access_to
from holdfast.core.units import database_url
from holdfast.storage.api import (
    Database,
    DirectoryUnusable,
    Durability,
    StoreUnusable,
    database_at,
    file_of,
    newest_version,
    open_database,
    own_version,
    parsed,
    prepare,
)
from holdfast_pipeline.errors import PipelineError, WrongUsage

if TYPE_CHECKING:
    from holdfast.config import Config


#: The store tells Postgres' planner to use indexes only. A job reads whole tables, so it allows scans and sorts again.
_ALLOW_SCANS = "SELECT " + ", ".join(
    f"set_config('{name}', 'on', false)" for name in ("enable_seqscan", "enable_bitmapscan", "enable_sort")
)
#: Seconds after which a held transaction goes on in a copy: meanwhile the broker's log only grows.
_HELD = 30.0
#: The copy of an SQLite database proceeds by so many pages; Python handles signals between them.
_PAGES = 4096


class Cursor(Protocol):
    """A cursor of a driver that has executed a query."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return the next rows."""


@frozen
class Source:
    """A database to read.

    ``copy`` is the path of a copy of an SQLite database that nothing writes to. ``exported`` is the name of a snapshot
    that a Postgres transaction has exported. ``held`` is a transaction of this process, in which everything is read.
    """

    url: str
    copy: str | None = None
    exported: str | None = None
    held: HeldTransaction | None = None

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file."""
        return file_of(self.url) is not None or parsed(self.url).get_backend_name() == "sqlite"

    @property
    def options(self) -> dict[str, str]:
        """The options of a Spark reader that make it read this source."""
        copy = self.copy if self.held is None else self.held.copy()  # tasks cannot use another process's transaction
        options = {"storage": self.url, "copy": copy, "exported": self.exported}
        return {name: value for name, value in options.items() if value is not None}

    @contextmanager
    def transaction(self) -> Iterator[ReadTransaction]:
        """Open a transaction that only reads. Raises :class:`PipelineError`."""
        try:
            database = database_at(self.url, Durability.FULL, 0, 5.0)
            if self.held is not None:
                with database.explaining_errors(), self.held.used() as connection:
                    yield ReadTransaction(connection, database.dialect)
                return
            with database.explaining_errors(), closing(self._connection(database)) as connection:
                yield ReadTransaction(connection, database.dialect)
        except StoreUnusable as error:
            raise PipelineError(str(error)) from error

    def _connection(self, database: Database) -> Any:
        if self.copy is not None:
            if not Path(self.copy).is_file():
                raise PipelineError(f"{self.copy}: this copy of the database does not exist any more; read it again")
            return _copy_at(self.copy)
        if database.dialect == "sqlite":
            onlooker: Any = database.connect_read_only()  # type: ignore[attr-defined]  # only SQLite's class has it
            onlooker.execute("BEGIN")
            return onlooker
        connection: Any = database.connect_reader()
        connection.execute(_ALLOW_SCANS)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if self.exported is not None:
            connection.execute(f"SET TRANSACTION SNAPSHOT '{self.exported}'")
        return connection

    @contextmanager
    def holding(self, folder: Path) -> Iterator[HeldTransaction]:
        """Hold a transaction of an SQLite database while the block runs; files with its rows go to ``folder``."""
        try:
            database = database_at(self.url, Durability.FULL, 0, 5.0)
            with database.explaining_errors():
                connection = self._connection(database)
                connection.execute("SELECT count(*) FROM sqlite_master").fetchall()  # the moment that it sees is now
        except StoreUnusable as error:
            raise PipelineError(str(error)) from error
        held = HeldTransaction(self.url, folder, connection)
        try:
            yield held
        finally:
            held.close()


@define(eq=False)
class HeldTransaction:
    """A transaction of an SQLite database that only reads. Threads use it in turn.

    While it is open, the broker's log (the file -wal) cannot begin anew, and grows. So it goes on in a copy after 30
    seconds: what is read then is the same.
    """

    url: str
    folder: Path
    _connection: Any
    _lock: RLock = field(factory=RLock, init=False)
    _copy: Path | None = field(default=None, init=False)
    _failure: PipelineError | None = field(default=None, init=False)
    _is_ending: bool = field(default=False, init=False)
    _timer: Timer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._timer = Timer(_HELD, self._go_on)
        self._timer.daemon = True
        self._timer.start()

    @property
    def target(self) -> Path:
        """The path of the copy, also before it is made."""
        return self.folder / "retained.db"

    @property
    def _ended(self) -> str:
        return f"{self.url}: this snapshot has ended; take a new one"

    @contextmanager
    def used(self) -> Iterator[Any]:
        """Give the connection to this thread. Raises :class:`PipelineError` if a copy was needed and failed."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            yield self._connection

    def copy(self) -> str:
        """Return the path of a copy of what the transaction sees; from then on, it is that of the copy.

        Raises :class:`PipelineError`.
        """
        with self._lock:
            if self._copy is None:
                with self.used() as connection:
                    self._copy_to(connection)
                    connection.close()
                self._copy = self.target
                self._connection = _copy_at(str(self.target))
        return str(self._copy)

    def close(self) -> None:
        """End the transaction, and a read or a copy that another thread is at."""
        self._timer.cancel()
        self._is_ending = True
        with suppress(sqlite3.ProgrammingError):  # it is closed already
            self._connection.interrupt()
        with self._lock:
            self._failure = PipelineError(self._ended)
            self._connection.close()

    def _copy_to(self, connection: Any) -> None:
        """Copy what the transaction sees to a new file."""
        try:
            os.close(os.open(self.target, os.O_WRONLY | os.O_CREAT, 0o600))
            with closing(sqlite3.connect(self.target, isolation_level=None)) as copy:
                copy.execute("PRAGMA synchronous=OFF")  # the file does not outlive this process
                connection.backup(copy, pages=_PAGES, progress=self._proceed)
        except (OSError, sqlite3.Error) as error:
            raise PipelineError(
                f"{self.target}: the copy of {self.url} failed ({error}); it needs as much space as the database: "
                "name a folder with enough space (--snapshot-dir)"
            ) from error

    def _proceed(self, *_pages: int) -> None:
        if self._is_ending:
            raise PipelineError(self._ended)

    def _go_on(self) -> None:
        with self._lock:
            if self._copy is None and self._failure is None:
                try:
                    self.copy()
                except PipelineError as error:
                    self._connection.close()  # the log must not grow further
                    self._failure = error


def _copy_at(path: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(path)}?mode=ro&immutable=1", uri=True, isolation_level=None, check_same_thread=False
    )


@frozen
class ReadTransaction:
    """A transaction that only reads; ``dialect`` is "sqlite" or "postgresql"."""

    connection: Any
    dialect: str

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a small result. Parameters are written ``?``."""
        return list(self.connection.cursor().execute(statement, tuple(values)).fetchall())

    @contextmanager
    def streamed(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Cursor]:
        """Give a cursor over a large result, which is never in memory as a whole."""
        if self.dialect == "sqlite":
            yield self.connection.execute(statement, tuple(values))
            return
        # A cursor with a name stays in the server; psycopg would fetch all rows of another one at once.
        with self.connection.cursor("pipeline") as cursor:
            cursor.execute(statement.replace("%", "%%").replace("?", "%s"), tuple(values), binary=True)
            yield cursor


def check(url: str) -> None:
    """Raise :class:`PipelineError` unless there is a database with the schema of this version at a URL."""
    try:
        database = database_at(url, Durability.FULL, 0, 5.0)
        database.check_present()
        with Source(url).transaction() as transaction:
            version = own_version(transaction.connection, database)
    except StoreUnusable as error:
        raise PipelineError(str(error)) from error
    if version != newest_version():
        raise PipelineError(
            f"{database.location}: has the schema {version or '(none)'}, this version reads {newest_version()}; "
            "stop the broker, take a backup and run: holdfast db upgrade"
        )


# The ranges of the history and of the telemetry that the database holds, and whether entries are missing from them.
#
# How it works. Each change has a number, ``seq``, in the order of commits, without gaps. Two kinds of numbers have no
# entry: pruning deletes entries, and the first number of a period has none, because the period itself takes it. With
# periods that begin at 1 and 6, the entries 2 3 4 5 7 8 are complete. So entries are counted: a range of n numbers
# with p beginnings of periods must hold n - p entries. If it holds fewer, a binary search finds the first missing
# number; each step is one count on the primary key.
#
# The telemetry has no periods, and pruning deletes its first messages only. So a message is missing if its number is
# lower than the first one that is there.

_COUNT = "SELECT count(*) FROM retained_history WHERE seq > ? AND seq <= ?"
_FIRST = "SELECT coalesce(min(seq), 0) FROM {table}"


@frozen
class HistoryRange:
    """The entries later than ``before``, up to ``last``. Up to ``pruned``, some may be missing."""

    before: int
    last: int
    pruned: int


@frozen
class MissingEntries:
    """``count`` entries are missing; ``first`` is the ``seq`` of the first one."""

    first: int
    count: int


def history_range(transaction: ReadTransaction) -> HistoryRange:
    """Return the range of the entries in the database."""
    cursor = transaction.connection.cursor()
    last = read_state(cursor).last_seq
    ((first,),) = transaction.rows(_FIRST.format(table="retained_history"))
    pruned = max((period.pruned_anywhere() for period in read_periods(cursor)), default=0)
    before = first - 1 if first else last
    return HistoryRange(before, last, max(pruned, before))


def telemetry_range(transaction: ReadTransaction) -> HistoryRange:
    """Return the range of the recorded messages in the database."""
    last = read_telemetry_state(transaction.connection.cursor()).last_seq
    ((first,),) = transaction.rows(_FIRST.format(table="telemetry"))
    before = first - 1 if first else last
    return HistoryRange(before, last, before)


def missing_entries(transaction: ReadTransaction, after: int, upto: int) -> MissingEntries | None:
    """Return the entries that are missing from those later than ``after``, up to ``upto``; None if all are there."""
    begun = [period.first_seq for period in read_periods(transaction.connection.cursor())]

    def missing(low: int, high: int) -> int:
        ((count,),) = transaction.rows(_COUNT, (low, high))
        expected = high - low - sum(low < seq <= high for seq in begun)
        return int(expected - count)

    lost = missing(after, upto)
    if lost <= 0:
        return None
    low, high = after, upto  # the first missing number is later than low, and at most high
    while high - low > 1:
        middle = (low + high) // 2
        if missing(low, middle) > 0:
            high = middle
        else:
            low = middle
    return MissingEntries(high, lost)


# The URL of the database that a user names: by the URL itself, or by the broker's configuration file.
#
# Each Python worker of Spark imports this module. Of the broker's modules it takes no more than a URL needs.


def url_of(storage: str | None, config: str | None, context: str = "") -> str:
    """Return the URL of a database, with an absolute path.

    ``storage`` is a URL and ``config`` the path of a broker's file; exactly one of them must be given. Messages start
    with ``context``. Raises :class:`PipelineError`.
    """
    if (storage is None) == (config is None):
        raise WrongUsage(f"{context}name the database: either by storage (its URL) or by config (the broker's file)")
    if storage is None:
        assert config is not None
        from holdfast.config import ConfigError, load

        try:
            return load(Path(config), allow_anonymous=True).storage.url
        except ConfigError as error:
            raise PipelineError(str(error)) from error
    storage = database_url(storage)
    if file_of(storage) is not None:
        return storage
    try:
        url = parsed(storage)
    except StoreUnusable as error:
        raise WrongUsage(f"{context}storage: {error}") from error
    if url.get_backend_name() == "sqlite" and url.database:
        # Executors have other working directories.
        return f"sqlite:///{Path(url.database).absolute()}"
    return storage


# Temporary folders that are removed at the end, or by the next command if their owner was killed.
#
# How it works. The owner of ``/tmp/holdfast-snapshot-k3x9`` holds a lock on the file ``owner.lock`` in it. The lock
# ends with the process, also after ``kill -9`` and on other hosts. So a folder whose lock can be taken has no owner,
# and anybody may remove it. The lock file appears under its name only after it is locked; a folder without it is
# being made, and stays. The lock file is removed last: if a removal is interrupted, a later command repeats it.

_PREFIX = "holdfast-snapshot-"
_LOCK = "owner.lock"


@contextmanager
def temporary_folder(parent: str | None) -> Iterator[Path]:
    """Give a new folder in ``parent`` (by default the system's temporary folder), and remove abandoned ones there.

    Raises OSError if the folder cannot be made.
    """
    remove_abandoned(Path(parent or tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    unnamed = folder / "new.lock"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unnamed.rename(folder / _LOCK)
        yield folder
    finally:
        _remove(folder)
        os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove the folders whose owners have ended."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.geteuid() or folder.is_symlink():
                continue  # it belongs to another user
            lock = os.open(folder / _LOCK, os.O_RDWR)
        except OSError:
            continue  # another process is making or removing it
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(folder)
        except BlockingIOError:
            continue  # its owner is running
        finally:
            os.close(lock)


def _remove(folder: Path) -> None:
    with suppress(FileNotFoundError):
        for file in folder.iterdir():
            if file.name == _LOCK:
                continue
            if file.is_dir() and not file.is_symlink():  # a program may have made one there
                shutil.rmtree(file, ignore_errors=True)
            else:
                file.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


# Whether a database is so small that a job on it is short: Spark is then started and set for that.

#: Retained messages and entries of the history together. With more, a job is taken for a long one.
MOST_SMALL = 50_000
_MESSAGES = "SELECT coalesce(sum(retained_count), 0) FROM nodes"


def is_small(source: Source, telemetry: bool = False) -> bool:
    """Tell whether a database has few messages and a short history, or a short ``telemetry``.

    Raises :class:`PipelineError`.
    """
    with source.transaction() as transaction:
        messages = message_count(transaction)
        there = (telemetry_range if telemetry else history_range)(transaction)
    return messages + there.last - there.before <= MOST_SMALL


def message_count(transaction: ReadTransaction) -> int:
    """Return the number of retained messages; those that have expired and were not deleted yet count."""
    ((messages,),) = transaction.rows(_MESSAGES)
    return int(messages)


# Tells the database which entries of its history are in a lake. The broker prunes no other entries.


def confirm_in_lake(config: Config, seq: int) -> None:
    """Record that a lake has all entries up to ``seq``; 0 if it has none.

    Only its broker writes an SQLite file: a running broker is asked to do it. If none runs, this process takes the lock
    of the data directory while it writes. Raises :class:`PipelineError`.
    """
    try:
        database = database_at(config.storage.url, Durability.FULL, 0, 5.0)
        if not database.remote:
            with access_to(config) as access:
                access.call("POST", "/history/archived", body=json.dumps({"seq": str(seq)}).encode())
            return
        with database.explaining_errors(), closing(database.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(database.begin_statement)
            last_seq = confirm(cursor, seq).last_seq
            connection.commit()
    except (Inaccessible, StoreUnusable, DirectoryUnusable) as error:
        done = f"the lake has all entries up to {seq}, but this" if seq else "nothing was read: a new lake"
        raise PipelineError(f"{done} could not be confirmed: {error}") from error
    if seq > last_seq:
        raise PipelineError(f"the history ends at {last_seq}, the lake has {seq}: it belongs to another database")


def broker_of(url: str, config: str | None) -> Config:
    """Return the configuration of the broker of a database: in a file, or one whose data directory has the database.

    Raises :class:`PipelineError`.
    """
    from holdfast.config import ConfigError, default, load

    try:
        if config is not None:
            return load(Path(config), allow_anonymous=True)
        file = file_of(url) or parsed(url).database or ""
        folder = str(Path(file).parent) if Source(url).is_sqlite else None
        return default().override([], folder, url, allow_anonymous=True, cwd=Path.cwd())
    except ConfigError as error:
        raise PipelineError(str(error)) from error


# Creating the database of an import, as the first start of a broker does.


def create_missing(url: str, make_folder: bool) -> str | None:
    """Create the database at a URL if there is none, or build the schema of an empty one. Name the new thing.

    None: the database existed. An SQLite file is created in a folder that exists; with ``make_folder``, the folder is
    created, too. A Postgres server must have the database. A broker that starts meanwhile does no harm: the schema is
    built in one transaction, which looks first. Raises :class:`PipelineError`.
    """
    file = file_of(url)
    try:
        database = database_at(url, Durability.FULL)
        if file is None or Path(file).exists():
            database.check_present()
            with database.explaining_errors(), database.reading_engine().begin() as connection:
                if own_version(connection.connection, database) is not None:
                    return None
        elif not make_folder and not Path(file).parent.is_dir():
            raise PipelineError(
                f"{file}: cannot be created, because there is no folder {Path(file).parent}; create the folder, or "
                "name the broker's own database with --config or --storage"
            )
        prepare(open_database(url, Durability.FULL))
    except StoreUnusable as error:
        raise PipelineError(str(error)) from error
    return database.location
