"""Connections to the database for reading: one driver connection at a time, with the schema of this version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from attrs import frozen

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


class Cursor(Protocol):
    """A cursor of a driver that has executed a query."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return the next rows."""


@frozen
class Source:
    """A database to read.

    ``copy`` is the path of a copy of an SQLite database that nothing writes to. ``exported`` is the name of a snapshot
    that a Postgres transaction has exported.
    """

    url: str
    copy: str | None = None
    exported: str | None = None

    @property
    def is_sqlite(self) -> bool:
        """Whether the database is a file."""
        return file_of(self.url) is not None or parsed(self.url).get_backend_name() == "sqlite"

    @property
    def options(self) -> dict[str, str]:
        """The options of a Spark reader that make it read this source."""
        options = {"storage": self.url, "copy": self.copy, "exported": self.exported}
        return {name: value for name, value in options.items() if value is not None}

    @contextmanager
    def transaction(self) -> Iterator[ReadTransaction]:
        """Open a transaction that only reads. Raises :class:`PipelineError`."""
        try:
            database = database_at(self.url, Durability.FULL, 0, 5.0)
            with database.explaining_errors(), closing(self._connection(database)) as connection:
                yield ReadTransaction(connection, database.dialect)
        except StoreUnusable as error:
            raise PipelineError(str(error)) from error

    def _connection(self, database: Database) -> Any:
        if self.copy is not None:
            if not Path(self.copy).is_file():
                raise PipelineError(f"{self.copy}: this copy of the database does not exist any more; read it again")
            return sqlite3.connect(f"file:{quote(self.copy)}?mode=ro&immutable=1", uri=True, isolation_level=None)
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
