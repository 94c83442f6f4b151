"""Writing many rows of a table with few statements: the protocol, and the SQL that both databases share.

:mod:`holdfast.storage.sqlite.bulk` and :mod:`holdfast.storage.postgres.bulk` implement the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.storage.driver import Cursor
from holdfast.storage.layouts import Layout

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


def on_conflict_replace(table: Layout) -> str:
    """Return the end of an INSERT that replaces a stored row with the same primary key."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in table.columns if name not in table.key)
    return f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {changed}"


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
