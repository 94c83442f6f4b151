"""The Postgres database: how its connections are opened, how it is checked, and the meaning of its errors."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Self

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Dumper
from psycopg.rows import RowFactory
from sqlalchemy import Connection as SQLAlchemyConnection
from sqlalchemy import Engine
from sqlalchemy.engine import URL

from holdfast.core.tickets import FailureKind, StorageFailure, Superseded
from holdfast.storage.database import Database, Durability, engine_over, first_line
from holdfast.storage.driver import Connection
from holdfast.storage.location import StoreLate, StoreUnusable, shown
from holdfast.storage.postgres_values import ARRAYS, COMPANY, LIVING_NODES, LOCKS, Array

OLDEST_SERVER = 13
#: Seconds to wait for a server that does not answer a connection attempt.
_CONNECT_TIMEOUT = 5
#: A connection to a dead server fails after this many milliseconds. The system's default is a quarter of an hour.
_TCP_USER_TIMEOUT = 15_000
#: Every statement of this program walks an index, in its order. Without statistics for a table that was filled a moment
#: ago, the planner would instead read and sort the whole table, again for each thousand rows; and for a part of the
#: history, whose size it cannot know, it would read all of the history.
#:
#: So the plan does not depend on the values, and it is made once for a connection. With statistics, the
#: server would make it anew for each batch of a replay, which took a third of its time.
_SETTINGS = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', false)"
    for name, value in {
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_sort": "off",
        "jit": "off",
        "plan_cache_mode": "force_generic_plan",
    }.items()
)
#: How long to wait for the lock of a node (milliseconds): the server may not have noticed yet that the connection of a
#: broker that was just killed is closed.
_LOCK_TIMEOUT = 5_000
#: How long to wait for a schema, or a table in it, that another session has locked (milliseconds).
_SCHEMA_LOCK_TIMEOUT = 30_000
#: a server that stops, has crashed, or starts
_STARTING = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)
#: the version of the protocol, 3.0
_PROTOCOL = 3 << 16
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction, StorageFailure)


class PostgresCursor(psycopg.Cursor[Any]):
    """A cursor that takes the parameters of the rest of the program, ``?`` or ``:name``.

    Its results are binary, because most results are bytes, which would be twice as long as text.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, row_factory: RowFactory[Any] | None = None) -> None:
        super().__init__(connection, row_factory=row_factory or connection.row_factory)
        self.format = pq.Format.BINARY

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        """Run one statement."""
        return super().execute(query if params is None else _translated(query), params, **options)


@lru_cache(maxsize=512)
def _translated(statement: str) -> str:
    """Return a statement with the driver's own parameters. No statement has these characters in a literal."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement.replace("%", "%%").replace("?", "%s"))


class _ArrayDumper(Dumper):
    """Sends an array that is already encoded."""

    format = pq.Format.BINARY

    def dump(self, obj: Array) -> bytes:
        """Return the encoded array."""
        return obj.data


DUMPERS = [(array, type(f"{array.__name__}Dumper", (_ArrayDumper,), {"oid": array.array_oid})) for array in ARRAYS]


class PostgresDatabase(Database):
    """A Postgres database, with connections for this node's one writer and any number of readers.

    The writer locks its ``node`` (0 for tools, which lock nothing), so each node has one writer at a time.
    """

    begin_statement = "BEGIN"
    dialect = "postgresql"
    remote = True
    row_errors = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded)
    errors = psycopg.Error

    def __init__(self, url: URL, durability: Durability, node: int = 0) -> None:
        self.durability = durability
        self.node = node
        self.url = url

    @property
    def location(self) -> str:
        """The URL without its password."""
        return shown(self.url)

    def connect(self) -> psycopg.Connection[Any]:
        """Open the writer's connection and lock the node. Raises psycopg.Error, or :class:`StorageFailure`."""
        connection = self.open_connection()
        try:
            if self.durability is not Durability.FULL:
                connection.execute("SET synchronous_commit = off")
            if self.node:
                self._take_place(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_reader(self) -> Connection:
        """Open a connection that only reads. Raises psycopg.Error."""
        connection = self.open_connection()
        connection.execute("SET default_transaction_read_only = on")
        return connection

    def engine(self) -> Engine:
        """Return an SQLAlchemy engine over writing connections.

        Its transactions exclude each other: if several brokers start together, one of them builds the schema.
        """
        return self._engine(self._lock_schema)

    def exclusive_engine(self) -> Engine:
        """Return an engine whose transactions fail while a broker uses the database."""

        def begin(connection: SQLAlchemyConnection) -> None:
            self._lock_schema(connection)
            nodes = connection.exec_driver_sql(f"{LIVING_NODES} ORDER BY objid").scalars()
            brokers = ", ".join(map(str, nodes))
            if brokers:
                raise StoreUnusable(f"{self.location}: is used by brokers (node.id {brokers}); stop them")

        return self._engine(begin)

    def reading_engine(self) -> Engine:
        """Return an engine that only reads. Brokers may use the database meanwhile."""
        return self._engine(None, options="-c default_transaction_read_only=on")

    def _engine(self, on_begin: Callable[[SQLAlchemyConnection], None] | None, **more: str) -> Engine:
        parameters = {**self.parameters(), **more}
        return engine_over("postgresql+psycopg://", lambda: psycopg.connect(**parameters), on_begin)

    @staticmethod
    def _lock_schema(connection: SQLAlchemyConnection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {_SCHEMA_LOCK_TIMEOUT}")
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, 0)", (LOCKS,))

    def relations(self, connection: Connection) -> set[str]:
        """Return the names of all tables and views of the schema."""
        cursor = connection.cursor()
        cursor.execute(
            "SELECT CAST(relname AS text) FROM pg_class WHERE relkind IN ('r', 'p', 'f', 'v') "
            "AND relnamespace = CAST(current_schema() AS regnamespace)"
        )
        return {name for (name,) in cursor.fetchall()}

    def find_damage(self) -> dict[str, list[str]]:
        """Return the indexes that are not valid. The server checks everything else itself."""
        with self.reading_engine().begin() as connection:
            rows = connection.exec_driver_sql(
                "SELECT CAST(indexrelid AS regclass) || ' of ' || CAST(indrelid AS regclass) FROM pg_index "
                "WHERE NOT indisvalid"
            )
            return {"invalid indexes": [str(row[0]) for row in rows]}

    def _explained(self, error: BaseException) -> StoreUnusable:
        if self._is_late(error):
            return StoreLate(f"{self.location}: cannot be reached ({first_line(error)})")
        if isinstance(error, errors.LockNotAvailable):
            return StoreUnusable(
                f"{self.location}: another session has locked its schema for {_SCHEMA_LOCK_TIMEOUT / 1000:g} seconds "
                "(an upgrade, or a transaction that uses a table); end that session, or try again later"
            )
        if self._is_full(error):
            return StoreUnusable(f"{self.location}: there is no space left on its disk; free some space")
        return StoreUnusable(f"{self.location}: cannot be used ({first_line(error)})")

    def check_present(self) -> None:
        """Prove that the database can be reached. Raises :class:`StoreUnusable`."""
        with self._reached():
            self.open_connection().close()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except StorageFailure as failure:
            raise StoreUnusable(str(failure)) from failure
        except psycopg.Error as error:
            kind = StoreLate if self._is_late(error) else StoreUnusable
            raise kind(
                f"{self.location}: cannot be reached ({first_line(error)}); start the server or correct storage.url"
            ) from error

    def _is_late(self, error: BaseException) -> bool:
        """Tell whether the server is not up yet: nothing answers, its name is not known, or it starts.

        The driver does not tell the SQLSTATE of a refused connection, and the server translates the text.
        """
        if isinstance(error, (*_STARTING, errors.ConnectionTimeout)):
            return True
        if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
            return False
        return error.pgconn is None or _is_starting(error.pgconn)  # None: the driver found no address for the name

    def is_away(self, error: BaseException) -> bool:
        """Tell whether the server cannot be reached, stops, starts, refuses connections, or has become read-only.

        A former primary is read-only after a failover: the next connection may lead to the new primary.
        """
        return isinstance(error, _AWAY) and not isinstance(
            error, (errors.DiskFull, errors.QueryCanceled, errors.ProgramLimitExceeded)
        )

    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether another node's transaction caused the error."""
        return isinstance(error, (errors.SerializationFailure, errors.DeadlockDetected))

    def _is_full(self, error: BaseException) -> bool:
        return isinstance(error, errors.DiskFull)

    def check(self) -> None:
        """Prove that the database exists and can be written. Raises :class:`StoreUnusable`."""
        with self._reached():
            connection = self.open_connection()
        try:
            self._check(connection)
        finally:
            connection.close()

    def inspect(self) -> None:
        """Make all checks: they change nothing."""
        self.check()

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

    def _take_place(self, connection: psycopg.Connection[Any]) -> None:
        """Lock the node for as long as this connection lasts. Raises :class:`StorageFailure`."""
        if not lock_within(connection, _LOCK_TIMEOUT, "pg_advisory_lock", LOCKS, self.node):
            raise self._unavailable(
                f"another broker with node.id = {self.node} uses this database; give each broker an id of its own"
            )

    def _unavailable(self, message: str) -> StorageFailure:
        return StorageFailure(FailureKind.UNAVAILABLE, message, self.location)

    def open_connection(self) -> psycopg.Connection[Any]:
        """Open a connection that locks nothing. Raises psycopg.Error."""
        connection = psycopg.connect(**self.parameters(), autocommit=True, prepare_threshold=1)
        connection.cursor_factory = PostgresCursor
        for array, dumper in DUMPERS:
            connection.adapters.register_dumper(array, dumper)
        connection.execute(_SETTINGS)
        return connection

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of each connection, as libpq names them."""
        given = self.url.translate_connect_args(username="user", database="dbname")
        return {
            "connect_timeout": _CONNECT_TIMEOUT,
            "tcp_user_timeout": _TCP_USER_TIMEOUT,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "application_name": "holdfast",
            **given,
            **{name: value for name, value in self.url.query.items() if isinstance(value, str)},
            "client_encoding": "utf8",  # not a parameter of the URL: statements rely on it
        }


def lock_within(connection: psycopg.Connection[Any], milliseconds: int, function: str, *numbers: int) -> bool:
    """Take an advisory lock by this function, until the connection ends; return False if others have it for so long."""
    connection.execute(f"SET lock_timeout = {milliseconds}")
    taken = True
    try:
        connection.execute(f"SELECT {function}({', '.join(map(str, numbers))})")
    except errors.LockNotAvailable:
        taken = False
    connection.execute("SET lock_timeout = 0")
    return taken


# Which brokers may use a database: one alone, or the members of a cluster.
#
# A broker alone has the lock ``COMPANY`` for itself, members share it. So it never happens that a broker without a
# lease writes beside others, whichever of them starts first, and without a race between two that start together.


_INCARNATION = "SELECT incarnation FROM cluster_members WHERE node ="


class LonePostgres(PostgresDatabase):
    """The database of a broker without ``[cluster]``: no other broker may use it meanwhile."""

    @classmethod
    def of(cls, database: Database) -> LonePostgres:
        """Return the same database for a broker that is alone."""
        assert isinstance(database, PostgresDatabase)
        return cls(database.url, database.durability, database.node)

    def _take_place(self, connection: psycopg.Connection[Any]) -> None:
        super()._take_place(connection)
        if not lock_within(connection, _LOCK_TIMEOUT, "pg_advisory_lock", COMPANY, 0):
            raise self._unavailable(
                f"another broker uses this database ({_company(connection)}); to run several brokers on one"
                ' database, add two lines to the configuration of each: [cluster] and name = "NAME"; if that broker is'
                f" dead, end what is left of it: {_ENDING}"
            )


class MemberPostgres(PostgresDatabase):
    """The database of a member of a cluster: each transaction compares the member's incarnation before it writes.

    An incarnation is over when another one has begun. Whoever begins it ends the connection of this one, and waits for
    the node's lock, before it relies on anything: so each commit of this incarnation is visible to it, or void.
    """

    incarnation = 0

    @classmethod
    def of(cls, database: Database, incarnation: int) -> MemberPostgres:
        """Return the same database for a member with this incarnation."""
        assert isinstance(database, PostgresDatabase)
        made = cls(database.url, database.durability, database.node)
        made.incarnation = incarnation
        return made

    def begin(self, connection: Any) -> None:
        """Begin a transaction of the writer. Raises :class:`Superseded` if this incarnation is over.

        Both statements take one round trip.
        """
        cursor = psycopg.Cursor(connection)
        cursor.execute(f"BEGIN; {_INCARNATION} {self.node}", prepare=False)
        cursor.nextset()
        self._compare(cursor.fetchone())

    def _take_place(self, connection: psycopg.Connection[Any]) -> None:
        self._require_own(connection)
        # An earlier connection of this process may hold the lock: the server has not noticed its end.
        if not lock_within(connection, _LOCK_TIMEOUT, "pg_advisory_lock", LOCKS, self.node):
            end_holders(connection, self.node, self.location)
        super()._take_place(connection)
        if not shares_company(connection):
            raise self._unavailable(alone_here(connection))
        self._require_own(connection)

    def _require_own(self, connection: psycopg.Connection[Any]) -> None:
        self._compare(connection.execute(f"{_INCARNATION} {self.node}").fetchone())

    def _compare(self, found: tuple[Any, ...] | None) -> None:
        if found != (self.incarnation,):
            raise Superseded(
                FailureKind.UNAVAILABLE,
                f"another incarnation of node {self.node} has begun, because the lease of this one had ended",
                self.location,
            )


#: how an operator ends the connection of a broker that is dead, before the server notices that by itself
_ENDING = "SELECT pg_terminate_backend(CONNECTION)"


def shares_company(connection: psycopg.Connection[Any]) -> bool:
    """Note as long as the connection lasts that members of a cluster use the database; False if a broker is alone."""
    return lock_within(connection, _LOCK_TIMEOUT, "pg_advisory_lock_shared", COMPANY, 0)


def alone_here(connection: psycopg.Connection[Any]) -> str:
    """Return the sentence for a member that finds a broker without ``[cluster]``."""
    return (
        f"a broker without [cluster] uses this database ({_company(connection)}); stop it, and add [cluster] to its"
        f" configuration, with the name that this one has; if it is dead, end what is left of it: {_ENDING}"
    )


def _company(connection: psycopg.Connection[Any]) -> str:
    """Name the brokers that use the database, and their connections."""
    return ", ".join(f"node.id {node}, by connection {pid}" for node, pid in _holders(connection)) or "just started"


def end_holders(connection: psycopg.Connection[Any], node: int, where: str) -> None:
    """End the connections of other processes that hold the lock of a node. Raises :class:`StorageFailure`."""
    try:
        for held, pid in _holders(connection):
            if held == node:
                connection.execute("SELECT pg_terminate_backend(CAST(? AS integer))", (pid,))
    except errors.InsufficientPrivilege as error:
        raise StorageFailure(
            FailureKind.UNAVAILABLE,
            f"the connection of node {node} cannot be ended; let all members use one database user",
            where,
        ) from error


def _holders(connection: psycopg.Connection[Any]) -> list[tuple[int, int]]:
    """Return the nodes whose locks other connections hold, with the server's numbers of these connections."""
    return connection.execute(
        "SELECT objid, pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = ? AND objid <> 0 "
        "AND pid <> pg_backend_pid() AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "ORDER BY objid",
        (LOCKS,),
    ).fetchall()


def _is_starting(tried: pq.abc.PGconn) -> bool:
    """Tell whether nothing answers where a connection was tried, or a server that starts (57P03).

    It begins a session as the protocol's StartupMessage does, without TLS, so that a server which demands TLS answers
    too. (``PQping`` of libpq would do the same, but its binding stops all threads meanwhile.)
    """
    host, port = (tried.hostaddr or tried.host).decode(), tried.port.decode()
    path = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else None
    family = socket.AF_UNIX if path is not None else socket.AF_INET6 if ":" in host else socket.AF_INET
    names = b"user\0%s\0database\0%s\0\0" % (tried.user, tried.db)
    try:
        with socket.socket(family) as probe:
            probe.settimeout(_CONNECT_TIMEOUT)
            probe.connect((host, int(port)) if path is None else path)
            probe.sendall(struct.pack("!II", 8 + len(names), _PROTOCOL) + names)
            answer = probe.recv(4096)
    except PermissionError:
        return False
    except OSError:
        return True
    return not answer or (answer.startswith(b"E") and b"\0C57P03\0" in answer)
