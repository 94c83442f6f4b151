"""Writing retained changes: many rows to a statement, with the running totals kept exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from attrs import define
from zope.interface import implementer

from holdfast.retained import statements
from holdfast.retained.rows import Row, longest_packet
from holdfast.storage.driver import Cursor
from holdfast.storage.writes import IWriteKind, Write
from holdfast.tickets import StorageFailure

#: The most rows of one statement. Smaller ones are powers of two, so that few texts have to be prepared.
MOST_ROWS = 512


@define
class Totals:
    """How the store's totals stand, or how a transaction changes them."""

    count: int = 0
    payload_bytes: int = 0
    largest_packet: int = 0
    levels: frozenset[int] = frozenset()

    def add(self, other: Totals) -> None:
        """Add a change."""
        self.count += other.count
        self.payload_bytes += other.payload_bytes
        self.largest_packet = max(self.largest_packet, other.largest_packet)
        if not other.levels <= self.levels:
            self.levels |= other.levels


@implementer(IWriteKind)
class RetainedUpserts:
    """The write kind of retained messages: keys are topics, rows are those of :mod:`holdfast.retained.rows`.

    ``totals`` are as of the last commit the reactor thread knows of.
    """

    name = "retained"
    order = 10

    def __init__(self, totals: Totals) -> None:
        self.totals = totals

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> Totals:
        """Write the rows; return what that adds to the totals."""
        change = Totals()
        # In key order, neighbours share pages.
        rows: list[Row] = sorted((write.row for write in writes), key=_topic)
        for chunk in _chunks(rows):
            _upsert(cursor, chunk, change)
        new = change.levels - self.totals.levels
        if new:
            cursor.execute(statements.add_levels(len(new)), list(new))
        cursor.execute(statements.ADD_TO_META, (change.count, change.payload_bytes, change.largest_packet))
        return change

    def committed(self, account: Any) -> None:
        """Add a committed change to the totals."""
        self.totals.add(account)

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Nothing to do: whoever waits for the tickets is told, and what was retained before stays."""


def _upsert(cursor: Cursor, rows: Sequence[Row], change: Totals) -> None:
    cursor.execute(statements.replaced(len(rows)), [row.topic for row in rows])
    count, size, highest = cursor.fetchone()
    if highest >= min(row.revision for row in rows):
        for chunk in _chunks(_winners(cursor, rows)):
            _upsert(cursor, chunk, change)
        return
    cursor.execute(statements.upsert(len(rows)), list(chain.from_iterable(rows)))
    change.add(
        Totals(
            len(rows) - sum(row.tombstone for row in rows) - count,
            sum(row.size for row in rows) - size,
            max(map(longest_packet, rows)),
            frozenset(row.levels for row in rows),
        )
    )


def _winners(cursor: Cursor, rows: Sequence[Row]) -> list[Row]:
    """Leave out the rows that lose to what is stored: the totals must not count them."""
    cursor.execute(statements.revisions(len(rows)), [row.topic for row in rows])
    stored = dict(cursor.fetchall())
    return [row for row in rows if row.revision > stored.get(row.topic, -1)]


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    start, left = 0, len(rows)
    while left:
        count = min(MOST_ROWS, 1 << left.bit_length() - 1)
        yield rows[start : start + count]
        start += count
        left -= count


def _topic(row: Row) -> str:
    return row.topic
