"""Listing retained messages one by one, with all that is known of them: for operators, within the bounds of a read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from holdfast.retained.store.bounded_read import Bounds, Reading, Window
from holdfast.retained.store.rows import MESSAGE_COLUMNS, message_of
from holdfast.retained.store.statements import Statements, Totals
from holdfast.retained.store.values import Listed, Listing, Selection, Slice, Standing
from holdfast.retained.wildcards.plan import Plan
from holdfast.retained.wildcards.scan_size import Stride
from holdfast.storage.driver import Connection

_STORED_AT = MESSAGE_COLUMNS.index("stored_at")


class ListReading(Reading):
    """Finds messages as any read does, and lists them instead of concatenating their packets."""

    def __init__(
        self, connection: Connection, statements: Statements, plan: Plan, selection: Selection, totals: Totals,
        bounds: Bounds, stride: Stride, payloads: bool,
    ) -> None:  # fmt: skip
        super().__init__(connection, statements, plan, selection, totals, bounds, stride, detailed=False)
        self._payloads = payloads
        self._entries: list[Listed] = []
        self._room = 0

    def listing(self, after: str, rows: int, max_bytes: int) -> Listing:
        """List at most ``rows`` messages, of ``max_bytes`` together, after a topic. Raises what the driver raises."""
        self._room = max_bytes
        batch = self.batch(after, rows, rows, max_bytes)
        return Listing(self._entries, batch.after, batch.done)

    def _slice(self, window: Window, limit: int, room: int, alone: bool) -> tuple[Slice | None, bool]:
        """List one slice; what it says of it has no packets, so that the room is counted here."""
        conditions = self._wanted(window, limit)
        weights = self._statements.weights(self._cursor, conditions, self._payloads, self._bound)
        if not weights:
            return None, True
        fitting = sum(1 for total in accumulate(weights) if total <= self._room) or int(alone)
        if not fitting:
            return None, False
        # One more than was weighed tells whether others have been stored since, before the last of them.
        complete = fitting == len(weights) < limit
        self._bound["limit"] = fitting + complete
        found = self._statements.entries(self._cursor, conditions, self._payloads, self._bound)
        if not found:
            return None, True
        self._room -= sum(weights[:fitting])
        self._entries += map(listed_of, found)
        return Slice(found[-1][0], len(found), b""), complete and len(found) <= fitting


def listed_of(columns: Sequence[Any]) -> Listed:
    """Return the entry in MESSAGE_COLUMNS and the size."""
    *message, size = columns
    return Listed(message_of(tuple(message)), size)


def standing_of(columns: Sequence[Any]) -> Standing:
    """Return how a topic stands: MESSAGE_COLUMNS, the size, and whether it is a tombstone."""
    *entry, tombstone = columns
    return Standing(columns[_STORED_AT], None if tombstone else listed_of(entry))
