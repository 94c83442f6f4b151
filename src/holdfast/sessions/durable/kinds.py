"""Write kinds of Session State: one per table, many rows to a statement, and what failed written again later."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import Table
from zope.interface import implementer

from holdfast.storage import tables
from holdfast.storage.driver import Cursor
from holdfast.storage.writes import IWriteKind, Write
from holdfast.tickets import FailureKind, StorageFailure

# Built from table definitions and counts alone: values are always bound.
# ruff: noqa: S608

#: The most rows of one statement. Smaller ones are powers of two, so that few texts have to be prepared.
MOST_ROWS = 256


@implementer(IWriteKind)
class RowKind:
    """Rows of one table: keys are its primary key's values as a tuple, rows are tuples of all columns, the key first.

    Writes that failed because of the database are kept in ``unwritten`` until they are written, or newer ones of the
    same key are: memory is ahead of the database then, and catches up when ``when_failed``'s receiver says so.
    """

    def __init__(self, table: Table, order: int, when_failed: Callable[[], None]) -> None:
        self.name = table.name
        self.order = order
        self.unwritten: dict[Hashable, Write] = {}
        self._columns = tuple(column.name for column in table.columns)
        self._key = tuple(column.name for column in table.primary_key)
        self._when_failed = when_failed

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Insert, replace and delete rows."""
        rows = [write.row for write in writes if write.row is not None]
        for chunk in _chunks(rows):
            cursor.execute(_upsert(self.name, self._columns, self._key, len(chunk)), list(chain.from_iterable(chunk)))
        keys = [write.key for write in writes if write.row is None]
        for chunk in _chunks(keys):
            cursor.execute(_delete(self.name, self._key, len(chunk)), list(chain.from_iterable(chunk)))

    def committed(self, account: Any) -> None:
        """Nothing is counted."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Keep what the database could not take for later. A row it refuses for itself is given up."""
        if failure.kind is not FailureKind.REFUSED:
            self.unwritten.update((write.key, write) for write in writes)
            self._when_failed()


@implementer(IWriteKind)
class EndedSessions(RowKind):
    """Ends Sessions: the key is the Session's id alone, and all its rows go."""

    def __init__(self, order: int, when_failed: Callable[[], None]) -> None:
        super().__init__(tables.sessions, order, when_failed)
        self.name = "ended sessions"
        self._tables = (
            ("sessions", ("id",)),
            ("session_subscriptions", ("session_id",)),
            ("session_deliveries", ("session_id",)),
            ("session_received", ("session_id",)),
        )

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Delete every row of these Sessions."""
        for chunk in _chunks([write.key for write in writes]):
            for name, key in self._tables:
                cursor.execute(_delete(name, key, len(chunk)), list(chain.from_iterable(chunk)))


@lru_cache(maxsize=256)
def _upsert(table: str, columns: tuple[str, ...], key: tuple[str, ...], rows: int) -> str:
    places = f"({', '.join('?' * len(columns))})"
    changed = ", ".join(f"{column} = excluded.{column}" for column in columns if column not in key)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([places] * rows)} "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"
    )


@lru_cache(maxsize=256)
def _delete(table: str, key: tuple[str, ...], rows: int) -> str:
    if len(key) == 1:
        return f"DELETE FROM {table} WHERE {key[0]} IN ({', '.join('?' * rows)})"
    places = f"({', '.join('?' * len(key))})"
    listed = ", ".join(f"column{number}" for number in range(1, len(key) + 1))
    # SQLite seeks for each pair of a subquery; for pairs listed directly it would scan the table.
    return (
        f"DELETE FROM {table} WHERE ({', '.join(key)}) IN "
        f"(SELECT {listed} FROM (VALUES {', '.join([places] * rows)}) AS gone)"
    )


def _chunks(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    start, left = 0, len(rows)
    while left:
        count = min(MOST_ROWS, 1 << left.bit_length() - 1)
        yield rows[start : start + count]
        start += count
        left -= count
