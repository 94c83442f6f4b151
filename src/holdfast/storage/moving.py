"""Moves everything in a database of one make into a new one of the other make: SQLite to Postgres, and back.

How it works. The source is locked against brokers, and read at one moment. Its tables are copied row by row, in the
order of their keys, so neither side has more than one row in memory. Nobody sees the target before it is complete::

    Postgres    one transaction builds the schema, copies all rows, and is committed at the end
    SQLite      the file NAME.partial is filled, made durable, and renamed to NAME at the end

So a killed move leaves no target, and is begun again; the source is never changed.

Some values mean something else in the other make:

- In a shared database, the rows of a node have its number: ``wills`` and ``retained_leases`` in a column, Sessions and
  their messages in the low byte of their ids. In SQLite the column is 0, and the low byte has no meaning.
- The turns of changes are transactions of the one server, or numbers of the one file. They are left out with the
  tables of changes, so all tokens of ``replay-since`` become void: their clients get complete replays.
- Members of a cluster write to each other: those tables are left out. A source in which messages wait to cross between
  members is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from attrs import frozen

from holdfast.storage import layouts
from holdfast.storage.database import Database, Durability
from holdfast.storage.driver import insert_into
from holdfast.storage.layout import Kind, Layout
from holdfast.storage.location import StoreUnusable
from holdfast.storage.postgres_values import LIVING_NODES, LOCKS
from holdfast.storage.schema import build, newest_version, own_version, prepare
from holdfast.storage.sqlite import SQLiteDatabase

if TYPE_CHECKING:
    from holdfast.storage.postgres import PostgresDatabase

# Built from constants alone: values are always bound.
# ruff: noqa: S608

Row = Sequence[Any]
#: Called with the number of all rows so far.
Report = Callable[[int], None]

#: What is not copied: see above.
LEFT_OUT = frozenset(
    {
        "retained_changes", "retained_changes_epochs", "retained_changes_kept", "cluster_members", "cluster_messages",
        "cluster_cursors", "cluster_runs",
    }
)  # fmt: skip
#: All tables that are copied, in the order in which they are.
TABLES: tuple[Layout, ...] = tuple(
    each for each in vars(layouts).values() if isinstance(each, Layout) and each.name not in LEFT_OUT
)
#: The columns with ids of Sessions and of their messages.
_IDS = {
    "sessions": ("id",),
    "session_subscriptions": ("session_id",),
    "session_messages": ("id",),
    "session_deliveries": ("session_id", "message_id"),
    "session_received": ("session_id",),
    "retained_leases": ("session",),
}
#: The tables whose column ``node`` is 0 if only one broker can use the database.
_OF_NODES = ("wills", "retained_leases")
_NODE_BITS = 0xFF
_TYPES = {Kind.TEXT: "text", Kind.BLOB: "bytea", Kind.SMALL: "int2", Kind.INTEGER: "int4", Kind.BIG: "int8"}
_PARTIAL = ".partial"
#: Rows of one transaction in the unfinished SQLite file.
_ROWS = 10_000
_REPORTED = 1_000


class Source(Protocol):
    """A database that is locked against brokers, read at one moment."""

    def rows(self, statement: str, kinds: Sequence[Kind]) -> Iterator[Row]:
        """Yield the rows of a SELECT."""


class Target(Protocol):
    """A new database with the schema."""

    def put(self, table: Layout, rows: Iterable[Row]) -> int:
        """Write all rows of a table, and return how many were left out since another row has their key."""


@frozen
class Moved:
    """The number of rows by table, and of those that were left out."""

    rows: dict[str, int]
    left_out: dict[str, int]


def move_database(source: Database, target: Database, node: int, report: Report, dry: bool = False) -> Moved:
    """Copy everything; ``node`` is that of the broker. A ``dry`` move only counts rows, and writes nothing.

    Raises :class:`StoreUnusable`; then there is no target.
    """
    moved = Moved({}, {})
    counter = _Counter(report)
    with source.explaining_errors(), _source_in(source) as reading:
        for (waiting,) in reading.rows("SELECT count(*) FROM cluster_messages", [Kind.BIG]):
            if waiting:
                raise StoreUnusable(
                    f"{source.location}: {waiting} messages wait to cross between members of its cluster; start its"
                    " members until none waits, stop them, and begin again"
                )
        with target.explaining_errors(), _nowhere() if dry else _target_in(target) as writing:
            for table in TABLES:
                statement = f"SELECT {table.names} FROM {table.name} ORDER BY {', '.join(table.key)}"
                rows = _translated(table, reading.rows(statement, list(table.columns.values())), target.remote, node)
                before = counter.count
                left_out = writing.put(table, counter.counted(rows))
                moved.rows[table.name] = counter.count - before - left_out
                if left_out:
                    moved.left_out[table.name] = left_out
    return moved


def _translated(table: Layout, rows: Iterable[Row], shared: bool, node: int) -> Iterator[Row]:
    """Give the values that differ between the makes; ``shared`` tells whether several nodes may use the target."""
    names = list(table.columns)
    ids = [names.index(name) for name in _IDS.get(table.name, ())] if shared else []
    node_at = names.index("node") if table.name in _OF_NODES else None
    since_at = names.index("replay_since") if "replay_since" in names else None
    if not ids and node_at is None and since_at is None:
        yield from rows
        return
    for row in rows:
        found = list(row)
        for at in ids:
            if found[at]:
                found[at] = found[at] & ~_NODE_BITS | node
        if node_at is not None:
            found[node_at] = node if shared else 0
        if since_at is not None:
            found[since_at] = None
        yield found


class _Counter:
    """Counts the rows that pass."""

    def __init__(self, report: Report) -> None:
        self.count = 0
        self._report = report

    def counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            yield row
            self.count += 1
            if not self.count % _REPORTED:
                self._report(self.count)


def _check_source(database: Database, connection: Any) -> None:
    version = own_version(connection, database)
    if version is None:
        raise StoreUnusable(f"{database.location}: is empty: there is nothing to move")
    if version != newest_version():
        raise StoreUnusable(
            f"{database.location}: has the older schema {version}, this is {newest_version()}; run: holdfast db upgrade"
        )


def _source_in(database: Database) -> AbstractContextManager[Source]:
    database.check_present()
    if isinstance(database, SQLiteDatabase):
        return _sqlite_source(database)
    return _postgres_source(cast("PostgresDatabase", database))


def _target_in(database: Database) -> AbstractContextManager[Target]:
    if isinstance(database, SQLiteDatabase):
        return _sqlite_target(database)
    return _postgres_target(cast("PostgresDatabase", database))


class _Nowhere:
    def put(self, _table: Layout, rows: Iterable[Row]) -> int:
        for _ in rows:
            pass
        return 0


@contextmanager
def _nowhere() -> Iterator[Target]:
    yield _Nowhere()


# SQLite.


class _SQLiteSource:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, _kinds: Sequence[Kind]) -> Iterator[Row]:
        yield from self._connection.execute(statement)


class _SQLiteTarget:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def put(self, table: Layout, rows: Iterable[Row]) -> int:
        statement = insert_into(table)
        if table.name == "wills":  # two nodes may have one of the same Client: the first one stays
            statement = statement.replace("INSERT", "INSERT OR IGNORE", 1)
        statement = f"{statement} VALUES ({', '.join('?' * len(table.columns))})"
        left_out = 0
        self._connection.execute("BEGIN")
        self._connection.execute(f"DELETE FROM {table.name}")  # the first rows of a new database
        for number, row in enumerate(rows, 1):
            left_out += 1 - self._connection.execute(statement, row).rowcount
            if not number % _ROWS:
                self._connection.execute("COMMIT")
                self._connection.execute("BEGIN")
        self._connection.execute("COMMIT")
        return left_out


@contextmanager
def _sqlite_source(database: SQLiteDatabase) -> Iterator[Source]:
    with closing(database.connect_exclusive()) as connection:
        connection.execute(database.begin_statement)  # fails while a broker has the file open
        _check_source(database, connection)
        yield _SQLiteSource(connection)
        connection.execute("ROLLBACK")


@contextmanager
def _sqlite_target(database: SQLiteDatabase) -> Iterator[Target]:
    path = database.path
    for suffix in ("", "-wal", "-shm", "-journal"):
        present = path.with_name(path.name + suffix)
        if present.exists():
            raise StoreUnusable(f"{present}: is there already; name a new file, or move this one away")
    partial = path.with_name(path.name + _PARTIAL)
    _remove(partial)  # of a move that was killed
    unfinished = SQLiteDatabase(partial, Durability.PROCESS)
    try:
        unfinished.check()
        prepare(unfinished)
        with closing(unfinished.connect()) as connection:
            yield _SQLiteTarget(connection)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with closing(sqlite3.connect(partial)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")  # nothing is left beside the file
        _sync(partial)
        partial.rename(path)
        _sync(path.parent)
    except BaseException:
        _remove(partial)
        raise


def _remove(partial: Path) -> None:
    for suffix in ("-wal", "-shm", "-journal", ""):
        with suppress(FileNotFoundError):
            partial.with_name(partial.name + suffix).unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Postgres.


class _PostgresSource:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str, kinds: Sequence[Kind]) -> Iterator[Row]:
        with self._connection.cursor() as cursor, cursor.copy(f"COPY ({statement}) TO STDOUT (FORMAT BINARY)") as copy:
            copy.set_types([_TYPES[kind] for kind in kinds])
            yield from copy.rows()


class _PostgresTarget:
    def __init__(self, connection: Any, location: str) -> None:
        self._connection = connection
        self._location = location

    def put(self, table: Layout, rows: Iterable[Row]) -> int:
        import psycopg

        with self._connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {table.name}")  # the first rows of a new database
            try:
                with cursor.copy(f"COPY {table.name} ({table.names}) FROM STDIN (FORMAT BINARY)") as copy:
                    copy.set_types([_TYPES[kind] for kind in table.columns.values()])
                    for row in rows:
                        copy.write_row(row)
            except psycopg.errors.UniqueViolation as error:
                raise StoreUnusable(
                    f"{self._location}: two rows of {table.name} have the same key here ({str(error).splitlines()[0]});"
                    " nothing was moved"
                ) from error
        return 0


@contextmanager
def _connected(database: PostgresDatabase) -> Iterator[Any]:
    """Connect with the lock that a starting broker waits for. Raises :class:`StoreUnusable` if one runs."""
    import psycopg  # psycopg is an extra, which users of SQLite need not install

    with closing(psycopg.connect(**database.parameters(), autocommit=True)) as connection:
        connection.execute(f"SELECT pg_advisory_lock({LOCKS}, 0)")
        living = connection.execute(f"{LIVING_NODES} ORDER BY 1").fetchall()
        if living:
            brokers = ", ".join(str(node) for (node,) in living)
            raise StoreUnusable(f"{database.location}: is used by brokers (node.id {brokers}); stop them")
        yield connection


@contextmanager
def _postgres_source(database: PostgresDatabase) -> Iterator[Source]:
    with _connected(database) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        _check_source(database, connection)
        yield _PostgresSource(connection)
        connection.execute("ROLLBACK")


@contextmanager
def _postgres_target(database: PostgresDatabase) -> Iterator[Target]:
    database.check()
    with _connected(database) as connection:
        connection.execute("BEGIN")
        found = database.relations(connection)
        if found:
            raise StoreUnusable(
                f"{database.location}: has tables already, such as {min(found)}; name an empty database"
            )
        build(connection, database)
        yield _PostgresTarget(connection, database.location)
        connection.execute("COMMIT")
