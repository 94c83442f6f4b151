"""The interfaces of a database driver (PEP 249) and of a database to its writer, and writing many rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.core.tickets import StorageFailure
from holdfast.storage.layout import Layout


class Cursor(Protocol):
    """A driver's cursor."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the last statement changed."""

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /) -> Any:
        """Run one statement."""

    def fetchone(self) -> Any:
        """Return the next row, None at the end."""

    def fetchall(self) -> Sequence[Any]:
        """Return the remaining rows."""


class Connection(Protocol):
    """A driver's connection in autocommit mode: only an explicit statement begins a transaction."""

    def cursor(self) -> Cursor:
        """Return a new cursor."""

    def commit(self) -> None:
        """Commit the transaction, if one is open."""

    def rollback(self) -> None:
        """Roll the transaction back, if one is open."""

    def close(self) -> None:
        """Close the connection."""


class WritableDatabase(Protocol):
    """The part of a database that its one writer uses."""

    @property
    def damage(self) -> StorageFailure | None:
        """The reason why nothing may be written any more: stored data is damaged."""

    def connect(self) -> Connection:
        """Open the writer's connection."""

    def begin(self, connection: Connection) -> None:
        """Begin a transaction of the writer, which is going to write."""

    def maintain(self, connection: Connection) -> None:
        """Do regular maintenance on the writer's connection, between two transactions. Raises nothing."""

    def checkpoint(self, connection: Connection) -> None:
        """Complete the files before the writer's connection is closed."""

    def is_away(self, error: BaseException) -> bool:
        """Tell whether the error says that the database cannot be reached now, but perhaps later."""

    def is_conflict(self, error: BaseException) -> bool:
        """Tell whether another transaction caused the error. Then the writer tries again at once."""

    def failure(self, error: BaseException) -> StorageFailure:
        """Classify the error of a write: REFUSED if the row is to blame, not the database."""


# Writing many rows of a table with few statements: the protocol, and the SQL that both databases share.
#
# :mod:`holdfast.storage.sqlite` and :mod:`holdfast.storage.postgres_values` implement the protocol.


#: The most rows of one statement.
MOST_ROWS = 256

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]


class Bulk(Protocol):
    """Writes rows, whose values are in the order of the table's columns, and deletes rows by their keys."""

    def upsert(self, cursor: Cursor, table: Layout, rows: Rows) -> None:
        """Insert rows; a stored row with the same primary key is replaced."""

    def delete(self, cursor: Cursor, table: Layout, key: tuple[str, ...], keys: Rows) -> None:
        """Delete the rows with these values in the columns ``key``, which are the first columns of an index."""


def insert_into(table: Layout) -> str:
    """Return the beginning of an INSERT of all columns."""
    return f"INSERT INTO {table.name} ({table.names})"


def on_conflict_replace(columns: Collection[str], key: Collection[str]) -> str:
    """Return the end of an INSERT that replaces a stored row with the same ``key``. A WHERE may follow."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"


def split(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, in parts of ``most`` items; the last part has the rest."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


def split_in_powers_of_two(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, in parts of ``most`` items (a power of two), then in ever smaller powers of two.

    A statement has a parameter for each value, so each number of rows needs a text of its own. With powers of two there
    are few texts, and the driver keeps all of them prepared.
    """
    start, left = 0, len(items)
    while left:
        count = min(most, 1 << left.bit_length() - 1)
        yield items[start : start + count]
        start += count
        left -= count
