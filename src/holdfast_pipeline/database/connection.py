"""Connections to the database for reading: one driver connection at a time, with the schema of this version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import RLock, Timer
from typing import Any, Protocol
from urllib.parse import quote

from attrs import define, field, frozen

from holdfast.storage.api import (
    Database,
    Durability,
    StoreUnusable,
    database_at,
    file_of,
    newest_version,
    own_version,
    parsed,
)
from holdfast_pipeline.errors import PipelineError

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
