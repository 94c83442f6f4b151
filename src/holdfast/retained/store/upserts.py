"""Writing retained changes: many rows to a statement, with the running totals kept exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from zope.interface import implementer

from holdfast.retained.store.rows import Row
from holdfast.retained.store.statements import Statements, Totals
from holdfast.retained.store.usage import UsageTable
from holdfast.storage.driver import Cursor
from holdfast.storage.writing.meta import add_to_totals, raise_mark
from holdfast.storage.writing.writes import IWriteKind, Write
from holdfast.tickets import StorageFailure


@implementer(IWriteKind)
class RetainedUpserts:
    """The write kind of retained messages: keys are topics, rows are those of :mod:`holdfast.retained.store.rows`.

    ``totals`` are as of the last commit the reactor thread knows of. ``observe`` is told the highest revision met.
    """

    name = "retained"
    order = 10

    def __init__(self, statements: Statements, node: int, observe: Callable[[int], None], usage: UsageTable) -> None:
        self.totals = Totals()
        self._statements = statements
        self._node = node
        self._observe = observe
        self._usage = usage

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> Totals:
        """Write the rows; return what that adds to the totals."""
        return self.write(cursor, [write.row for write in writes])

    def write(self, cursor: Cursor, found: Iterable[Row]) -> Totals:
        """Write rows of distinct topics; return what that adds to the totals."""
        change = Totals()
        # In key order, neighbours share pages, and two nodes that write the same topics wait for each other in turn.
        rows = sorted(found, key=_topic)
        if self._usage.scopes:
            topics = [row.topic for row in rows]
            watched = self._usage.watch(cursor, topics)
            self._statements.write(cursor, rows, self._node, change)
            self._usage.change(cursor, watched, topics)
        else:
            self._statements.write(cursor, rows, self._node, change)
        new = change.levels - self.totals.levels
        if new:
            self._statements.add_levels(cursor, new)
        if change.highest:
            raise_mark(cursor, self._node, change.highest)
        add_to_totals(cursor, self._node, change.count, change.payload_bytes, change.largest_packet)
        return change

    def committed(self, account: Any) -> None:
        """Add a committed change to the totals."""
        self.totals.add(account)
        if account.highest:
            self._observe(account.highest)

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Nothing to do: whoever waits for the tickets is told, and what was retained before stays."""


def _topic(row: Row) -> str:
    return row.topic
