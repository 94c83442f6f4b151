"""The Postgres database: how its connections are opened, and what its errors mean."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Dumper
from psycopg.rows import RowFactory
from sqlalchemy import Connection as SQLAlchemyConnection
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from holdfast.storage.database import Durability, StoreUnusable
from holdfast.storage.driver import Connection
from holdfast.storage.postgres.arrays import ARRAYS, Array
from holdfast.storage.url import shown
from holdfast.tickets import FailureKind, StorageFailure

OLDEST_SERVER = 13
#: Seconds to wait for a server that does not answer a connection attempt.
_CONNECT_TIMEOUT = 5
#: A server that is gone is noticed after this many milliseconds, rather than after the system's quarter of an hour.
_TCP_USER_TIMEOUT = 15_000
#: Every statement of ours is meant to walk an index, in its order. A planner that does not know yet how much is in a
#: table that has just been filled would read all of it and sort, for each thousand rows again.
_SETTINGS = "SELECT " + ", ".join(
    f"set_config('{name}', 'off', false)" for name in ("enable_seqscan", "enable_bitmapscan", "enable_sort", "jit")
)
#: How long to wait for the lock of a connection just closed, which the server may not have noticed yet (milliseconds).
_LOCK_TIMEOUT = 5_000
#: How long the schema is waited for where somebody else has it, or a table of it, locked (milliseconds).
_SCHEMA_LOCK_TIMEOUT = 30_000
#: The first of the two numbers of every advisory lock of ours ("hold"); the second is the node's, or 0 for the schema.
_LOCKS = 0x686F6C64
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction, StorageFailure)
#: Failures that the row itself is to blame for: written again, they would fail again.
_ROW_ERRORS = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded, UnicodeError)


class Cursor(psycopg.Cursor[Any]):
    """A cursor that takes parameters as the rest of the program writes them, ``?`` or ``:name``.

    Its results come in binary: of what is mostly bytes, text would be twice as long.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, row_factory: RowFactory[Any] | None = None) -> None:
        super().__init__(connection, row_factory=row_factory or connection.row_factory)
        self.format = pq.Format.BINARY

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Run one statement."""
        return super().execute(query if params is None else _translated(query), params, **options)


@lru_cache(maxsize=512)
def _translated(statement: str) -> str:
    """Return a statement with the driver's own parameters. None of ours has these characters in a literal."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement.replace("%", "%%").replace("?", "%s"))


class _ArrayDumper(Dumper):
    """Hands an array over as it is."""

    format = pq.Format.BINARY

    def dump(self, obj: Array) -> bytes:
        """Return what is sent."""
        return obj.data


_DUMPERS = [(array, type(f"{array.__name__}Dumper", (_ArrayDumper,), {"oid": array.array_oid})) for array in ARRAYS]


class PostgresDatabase:
    """A Postgres database, with connections for this node's one writer and any number of readers.

    ``node`` (0 for tools) is what its writer locks: no two writers of one node work on a database.
    """

    begin_statement = "BEGIN"
    dialect = "postgresql"
    errors = psycopg.Error
    remote = True
    damage = None  #: the server looks after what is stored

    def __init__(self, url: URL, durability: Durability, node: int = 0) -> None:
        self.durability = durability
        self._node = node
        self._url = url

    @property
    def location(self) -> str:
        """The URL without its password."""
        return shown(self._url)

    def connect(self) -> psycopg.Connection[Any]:
        """Open the writer's connection and lock the node. Raises psycopg.Error, or :class:`StorageFailure`."""
        connection = self._open()
        try:
            if self.durability is not Durability.FULL:
                connection.execute("SET synchronous_commit = off")
            if self._node and not self._lock(connection):
                raise StorageFailure(
                    FailureKind.UNAVAILABLE,
                    f"{self.location}: another broker with node.id = {self._node} uses this database; "
                    "give each broker an id of its own",
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_reader(self) -> Connection:
        """Open a connection that only reads. Raises psycopg.Error."""
        connection = self._open()
        connection.execute("SET default_transaction_read_only = on")
        return connection

    def engine(self) -> Engine:
        """Return an SQLAlchemy engine over writing connections, each closed when given back.

        Its transactions exclude each other: of brokers that start together, one builds the schema.
        """
        engine = create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(**self._parameters()), poolclass=NullPool
        )

        @event.listens_for(engine, "begin")
        def begin(connection: SQLAlchemyConnection) -> None:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_SCHEMA_LOCK_TIMEOUT}")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCKS,))

        return engine

    def exclusive(self) -> Engine:
        """Return an engine whose transactions fail while a broker uses the database."""
        engine = self.engine()

        @event.listens_for(engine, "begin")
        def begin(connection: SQLAlchemyConnection) -> None:
            brokers = connection.exec_driver_sql(
                "SELECT string_agg(CAST(objid AS text), ', ') FROM pg_locks WHERE locktype = 'advisory' AND granted "
                "AND objid <> 0 AND classid = %s AND database = (SELECT oid FROM pg_database "
                "WHERE datname = current_database())",
                (_LOCKS,),
            ).scalar()
            if brokers:
                raise StoreUnusable(f"{self.location}: is used by brokers (node.id {brokers}); stop them")

        return engine

    def looking(self) -> Engine:
        """Return an engine that only reads, also while brokers use the database."""
        parameters = {**self._parameters(), "options": "-c default_transaction_read_only=on"}
        return create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(**parameters), poolclass=NullPool)

    def damages(self) -> dict[str, list[str]]:
        """Return which indexes are not valid: the server looks after everything else."""
        with self.looking().begin() as connection:
            rows = connection.exec_driver_sql(
                "SELECT CAST(indexrelid AS regclass) || ' of ' || CAST(indrelid AS regclass) FROM pg_index "
                "WHERE NOT indisvalid"
            )
            return {"invalid indexes": [str(row[0]) for row in rows]}

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise :class:`StoreUnusable`, with what to do, for an error of the database."""
        try:
            yield
        except StorageFailure as failure:
            raise StoreUnusable(str(failure)) from failure
        except psycopg.Error as error:
            raise StoreUnusable(self._explain(error)) from error
        except DBAPIError as error:
            raise StoreUnusable(self._explain(error.orig or error)) from error

    def _explain(self, error: BaseException) -> str:
        if isinstance(error, errors.LockNotAvailable):
            return (
                f"{self.location}: its schema has been locked by somebody else for {_SCHEMA_LOCK_TIMEOUT / 1000:g} "
                "seconds (another upgrade, or a session that holds a table); end that, or try again later"
            )
        if isinstance(error, errors.DiskFull):
            return f"{self.location}: there is no space left on its disk; make room"
        return f"{self.location}: cannot be used ({_first_line(error)})"

    def check_present(self) -> None:
        """Prove that the database can be reached. Raises :class:`StoreUnusable`."""
        with self._reached():
            self._open().close()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except StorageFailure as failure:
            raise StoreUnusable(str(failure)) from failure
        except psycopg.Error as error:
            raise StoreUnusable(
                f"{self.location}: cannot be reached ({_first_line(error)}); start the server or correct storage.url"
            ) from error

    def committed(self, connection: Connection) -> None:
        """There is nothing to do: the server does."""

    def checkpoint(self, connection: Connection) -> None:
        """There is nothing to bring in order: the server does."""

    def is_away(self, error: BaseException) -> bool:
        """Tell whether the server is gone, stops, starts, takes no connection now, or has become one that only reads.

        The latter is what a primary is after a failover: the next connection may lead to the new one.
        """
        return isinstance(error, _AWAY) and not isinstance(
            error, (errors.DiskFull, errors.QueryCanceled, errors.ProgramLimitExceeded)
        )

    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether another node's transaction was in the way."""
        return isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected))

    def failure(self, error: BaseException) -> StorageFailure:
        """Say why something failed: FULL, UNAVAILABLE, or REFUSED for what only this row can be blamed for."""
        if isinstance(error, StorageFailure):
            return error
        if isinstance(error, errors.DiskFull):
            kind = FailureKind.FULL
        elif isinstance(error, _ROW_ERRORS):
            kind = FailureKind.REFUSED
        elif isinstance(error, (psycopg.Error, OSError, MemoryError)):
            kind = FailureKind.UNAVAILABLE
        else:
            kind = FailureKind.REFUSED
        return StorageFailure(kind, f"{self.location}: {type(error).__name__}: {_first_line(error)}")

    def check_beginning(self) -> None:
        """There is nothing to look for: the server does."""

    def check(self) -> None:
        """Prove that the database is there and can be written. Raises :class:`StoreUnusable`."""
        with self._reached():
            connection = self.connect()
        try:
            self._check(connection)
        finally:
            connection.close()

    def _check(self, connection: psycopg.Connection[Any]) -> None:
        version = connection.info.server_version // 10_000
        if version < OLDEST_SERVER:
            raise StoreUnusable(f"{self.location}: is Postgres {version}; {OLDEST_SERVER} or newer is needed")
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreUnusable(
                f"{self.location}: has the encoding {encoding}, which cannot hold every topic; "
                "create a database with ENCODING 'UTF8'"
            )
        row = connection.execute(
            "SELECT pg_is_in_recovery(), has_schema_privilege(current_schema(), 'CREATE')"
        ).fetchone()
        standby, allowed = row or (False, False)
        if standby:
            raise StoreUnusable(f"{self.location}: is a standby, which cannot be written; name the primary")
        if not allowed:
            raise StoreUnusable(
                f"{self.location}: its user may not create tables; GRANT CREATE ON SCHEMA public to it, or make it "
                "the owner of the database"
            )

    def _lock(self, connection: psycopg.Connection[Any]) -> bool:
        connection.execute(f"SET lock_timeout = {_LOCK_TIMEOUT}")
        try:
            connection.execute("SELECT pg_advisory_lock(?, ?)", (_LOCKS, self._node))
        except errors.LockNotAvailable:
            return False
        connection.execute("SET lock_timeout = 0")
        return True

    def _open(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(**self._parameters(), autocommit=True, prepare_threshold=1)
        connection.cursor_factory = Cursor
        for array, dumper in _DUMPERS:
            connection.adapters.register_dumper(array, dumper)
        connection.execute(_SETTINGS)
        return connection

    def _parameters(self) -> dict[str, Any]:
        given = self._url.translate_connect_args(username="user", database="dbname")
        return {
            "connect_timeout": _CONNECT_TIMEOUT,
            "tcp_user_timeout": _TCP_USER_TIMEOUT,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "application_name": "holdfast",
            "client_encoding": "utf8",
            **given,
            **{name: value for name, value in self._url.query.items() if isinstance(value, str)},
        }


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
