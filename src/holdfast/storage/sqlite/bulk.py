"""Many rows in few statements, for SQLite: all rows of a statement are in one VALUES.

The driver gives up the interpreter lock and takes it back at every step of a statement. An INSERT is one step, however
many rows it has, so one statement with 256 rows is much cheaper than 256 statements.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain

from holdfast.storage.driver import Cursor
from holdfast.storage.layouts import Layout
from holdfast.storage.writing.bulk import MOST_ROWS, Rows, insert_into, on_conflict_replace, split_in_powers_of_two

# Built from table definitions and counts alone: values are always bound.
# ruff: noqa: S608


class SQLiteBulk:
    """Writes and deletes with one VALUES for up to 256 rows."""

    def upsert(self, cursor: Cursor, table: Layout, rows: Rows) -> None:
        """Insert or replace."""
        for part in split_in_powers_of_two(rows, MOST_ROWS):
            cursor.execute(_upsert(table, len(part)), list(chain.from_iterable(part)))

    def delete(self, cursor: Cursor, table: Layout, key: tuple[str, ...], keys: Rows) -> None:
        """Delete by key."""
        for part in split_in_powers_of_two(keys, MOST_ROWS):
            cursor.execute(delete_statement(table, key, len(part)), list(chain.from_iterable(part)))


@lru_cache(maxsize=256)
def _upsert(table: Layout, rows: int) -> str:
    parameters = f"({', '.join('?' * len(table.columns))})"
    return f"{insert_into(table)} VALUES {', '.join([parameters] * rows)} {on_conflict_replace(table)}"


@lru_cache(maxsize=256)
def delete_statement(table: Layout, key: tuple[str, ...], rows: int) -> str:
    """Return the statement that deletes this number of rows by their keys."""
    if len(key) == 1:
        return f"DELETE FROM {table.name} WHERE {key[0]} IN ({', '.join('?' * rows)})"
    parameters = f"({', '.join('?' * len(key))})"
    columns = ", ".join(f"column{number}" for number in range(1, len(key) + 1))
    # SQLite seeks in the index for each pair of a subquery. For pairs listed directly it scans the table.
    return (
        f"DELETE FROM {table.name} WHERE ({', '.join(key)}) IN "
        f"(SELECT {columns} FROM (VALUES {', '.join([parameters] * rows)}) AS gone)"
    )
