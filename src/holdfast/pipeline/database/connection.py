"""The database as the pipeline reads it: one driver connection at a time, read only, with the schema it expects."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attrs import frozen
from sqlalchemy.engine import make_url

from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.sources.arrow_batches import Cursor
from holdfast.storage.database import Database, Durability, StoreUnusable
from holdfast.storage.engine import database_at
from holdfast.storage.schema import newest_version, own_version

#: What turns a Postgres connection of the store's into one for large reads: its planner may scan and sort again.
_SCANNING = "SELECT " + ", ".join(
    f"set_config('{name}', 'on', false)" for name in ("enable_seqscan", "enable_bitmapscan", "enable_sort")
)


@frozen
class Source:
    """A database, and how to look at it.

    ``copy`` is a copy of an SQLite database that nobody writes to; ``exported`` the name of a Postgres snapshot.
    """

    url: str
    copy: str | None = None
    exported: str | None = None

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a file."""
        return make_url(self.url).get_backend_name() == "sqlite"

    @property
    def options(self) -> dict[str, str]:
        """What a format is told, so that it reads this."""
        said = {"storage": self.url, "copy": self.copy, "exported": self.exported}
        return {name: value for name, value in said.items() if value is not None}

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """Open a transaction that reads. Raises :class:`PipelineError`."""
        try:
            database = database_at(self.url, Durability.FULL, 0, 5.0)
            with database.explaining_errors(), closing(self._connection(database)) as connection:
                yield Reading(connection, database.dialect)
        except StoreUnusable as error:
            raise PipelineError(str(error)) from error

    def _connection(self, database: Database) -> Any:
        if self.copy is not None:
            if not Path(self.copy).is_file():
                raise PipelineError(f"{self.copy}: the copy of the database is not there any more; read it again")
            return sqlite3.connect(f"file:{quote(self.copy)}?mode=ro&immutable=1", uri=True, isolation_level=None)
        if database.dialect == "sqlite":
            onlooker: Any = database.connect_read_only()  # type: ignore[attr-defined]  # SQLite's alone has it
            onlooker.execute("BEGIN")
            return onlooker
        connection: Any = database.connect_reader()
        connection.execute(_SCANNING)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if self.exported is not None:
            connection.execute(f"SET TRANSACTION SNAPSHOT '{self.exported}'")
        return connection


@frozen
class Reading:
    """A transaction that reads, on a connection of the ``dialect`` "sqlite" or "postgresql"."""

    connection: Any
    dialect: str

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of a short answer; parameters are ``?``."""
        return list(self.connection.cursor().execute(statement, tuple(values)).fetchall())

    @contextmanager
    def streamed(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Cursor]:
        """Give a cursor over a long answer, which is never in memory as a whole."""
        if self.dialect == "sqlite":
            yield self.connection.execute(statement, tuple(values))
            return
        with self.connection.cursor("pipeline") as cursor:
            cursor.execute(statement.replace("%", "%%").replace("?", "%s"), tuple(values), binary=True)
            yield cursor


def check(url: str) -> None:
    """Raise :class:`PipelineError` unless there is a database with the schema of this version at a URL."""
    try:
        database = database_at(url, Durability.FULL, 0, 5.0)
        database.check_present()
        with database.explaining_errors(), database.reading_engine().begin() as connection:
            version = own_version(connection, database.location)
    except StoreUnusable as error:
        raise PipelineError(str(error)) from error
    if version != newest_version():
        raise PipelineError(
            f"{database.location}: has the schema {version or '(none)'}, this version reads {newest_version()}; "
            "stop the broker, take a backup and run: holdfast db upgrade"
        )
