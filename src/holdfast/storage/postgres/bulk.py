"""Many rows in one statement, for Postgres: each column's values are one array parameter.

The text of the statement does not depend on the number of rows, so each table has one prepared statement.
"""

from __future__ import annotations

from functools import lru_cache

from holdfast.storage.driver import Cursor
from holdfast.storage.layouts import Layout
from holdfast.storage.postgres.arrays import array_of, columns_of, parameter_of
from holdfast.storage.writing.bulk import Rows, insert_into, on_conflict_replace

# Built from table definitions alone: values are always bound.
# ruff: noqa: S608


class PostgresBulk:
    """Writes and deletes any number of rows with one statement."""

    def upsert(self, cursor: Cursor, table: Layout, rows: Rows) -> None:
        """Insert or replace."""
        if rows:
            cursor.execute(_upsert(table), columns_of(table, rows))

    def delete(self, cursor: Cursor, table: Layout, key: tuple[str, ...], keys: Rows) -> None:
        """Delete by key."""
        if keys:
            arrays = [array_of(table.columns[name]) for name in key]
            values_of_keys = zip(*keys, strict=True)
            parameters = [array(values) for array, values in zip(arrays, values_of_keys, strict=True)]
            cursor.execute(_delete(table, key), parameters)


@lru_cache(maxsize=64)
def _upsert(table: Layout) -> str:
    arrays = ", ".join(map(parameter_of, table.columns.values()))
    return f"{insert_into(table)} SELECT * FROM unnest({arrays}) {on_conflict_replace(table)}"


@lru_cache(maxsize=64)
def _delete(table: Layout, key: tuple[str, ...]) -> str:
    arrays = ", ".join(parameter_of(table.columns[name]) for name in key)
    condition = " AND ".join(f"{table.name}.{name} = gone.{name}" for name in key)
    return f"DELETE FROM {table.name} USING unnest({arrays}) AS gone ({', '.join(key)}) WHERE {condition}"
