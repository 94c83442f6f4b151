"""Writing many rows of a table with few statements, each in the database's own way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol, TypeVar

from sqlalchemy import Column, Table

from holdfast.storage.driver import Cursor
from holdfast.storage.postgres.arrays import array_of, columns_of

# Built from table definitions and counts alone: values are always bound.
# ruff: noqa: S608

#: The most rows of one statement.
MOST_ROWS = 256

T = TypeVar("T")
Rows = Sequence[Sequence[Any]]


class Bulk(Protocol):
    """Writes rows, whose columns are in the table's order, and deletes by keys, given as tuples of these columns."""

    def upsert(self, cursor: Cursor, table: Table, rows: Rows) -> None:
        """Insert rows; one of the same primary key is replaced."""

    def delete(self, cursor: Cursor, table: Table, key: tuple[str, ...], keys: Rows) -> None:
        """Delete the rows with these values in the columns ``key``, which begin an index."""


class SQLiteBulk:
    """Many rows in one VALUES: one statement is one step, however many rows it writes."""

    def upsert(self, cursor: Cursor, table: Table, rows: Rows) -> None:
        """Insert or replace."""
        for part in split_in_powers_of_two(rows, MOST_ROWS):
            cursor.execute(_sqlite_upsert(table, len(part)), list(chain.from_iterable(part)))

    def delete(self, cursor: Cursor, table: Table, key: tuple[str, ...], keys: Rows) -> None:
        """Delete by key."""
        for part in split_in_powers_of_two(keys, MOST_ROWS):
            cursor.execute(_sqlite_delete(table, key, len(part)), list(chain.from_iterable(part)))


class PostgresBulk:
    """A column of values in one array each: one statement for any number of rows."""

    def upsert(self, cursor: Cursor, table: Table, rows: Rows) -> None:
        """Insert or replace."""
        if rows:
            cursor.execute(_postgres_upsert(table), columns_of(table, rows))

    def delete(self, cursor: Cursor, table: Table, key: tuple[str, ...], keys: Rows) -> None:
        """Delete by key."""
        if keys:
            arrays = [array_of(table.columns[name]) for name in key]
            gone = [array(values) for array, values in zip(arrays, zip(*keys, strict=True), strict=True)]
            cursor.execute(_postgres_delete(table, key), gone)


def bulk_for(dialect: str) -> Bulk:
    """Return the way of a database's dialect."""
    return SQLiteBulk() if dialect == "sqlite" else PostgresBulk()


def parameter_of(column: Column[Any]) -> str:
    """Return the parameter for an array of a column's values, in Postgres."""
    return f"CAST(? AS {array_of(column).element}[])"


@lru_cache(maxsize=256)
def _sqlite_upsert(table: Table, rows: int) -> str:
    places = f"({', '.join('?' * len(table.columns))})"
    return f"{_insert(table)} VALUES {', '.join([places] * rows)} {_on_conflict(table)}"


@lru_cache(maxsize=256)
def _sqlite_delete(table: Table, key: tuple[str, ...], rows: int) -> str:
    if len(key) == 1:
        return f"DELETE FROM {table.name} WHERE {key[0]} IN ({', '.join('?' * rows)})"
    places = f"({', '.join('?' * len(key))})"
    listed = ", ".join(f"column{number}" for number in range(1, len(key) + 1))
    # SQLite seeks for each pair of a subquery; for pairs listed directly it would scan the table.
    return (
        f"DELETE FROM {table.name} WHERE ({', '.join(key)}) IN "
        f"(SELECT {listed} FROM (VALUES {', '.join([places] * rows)}) AS gone)"
    )


@lru_cache(maxsize=64)
def _postgres_upsert(table: Table) -> str:
    arrays = ", ".join(map(parameter_of, table.columns))
    return f"{_insert(table)} SELECT * FROM unnest({arrays}) {_on_conflict(table)}"


@lru_cache(maxsize=64)
def _postgres_delete(table: Table, key: tuple[str, ...]) -> str:
    arrays = ", ".join(parameter_of(table.columns[name]) for name in key)
    condition = " AND ".join(f"{table.name}.{name} = gone.{name}" for name in key)
    return f"DELETE FROM {table.name} USING unnest({arrays}) AS gone ({', '.join(key)}) WHERE {condition}"


def _insert(table: Table) -> str:
    return f"INSERT INTO {table.name} ({', '.join(column.name for column in table.columns)})"


def _on_conflict(table: Table) -> str:
    key = [column.name for column in table.primary_key]
    changed = ", ".join(f"{column.name} = excluded.{column.name}" for column in table.columns if column.name not in key)
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"


def split(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, in parts of ``most`` items; the last part has the rest."""
    for start in range(0, len(items), most):
        yield items[start : start + most]


def split_in_powers_of_two(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, in parts of ``most`` items (a power of two), then in ever smaller powers of two.

    A statement has a parameter for each value, so each number of rows needs a text of its own. With powers of two there
    are few texts, and both SQLite and this process keep them prepared.
    """
    start, left = 0, len(items)
    while left:
        count = min(most, 1 << left.bit_length() - 1)
        yield items[start : start + count]
        start += count
        left -= count
