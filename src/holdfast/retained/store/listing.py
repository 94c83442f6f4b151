"""Listing retained messages one by one with all their fields, for operators, within the bounds of a read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from holdfast.retained.store.bounded_read import BoundedRead, Bounds, Part
from holdfast.retained.store.dialects.answers import Totals
from holdfast.retained.store.dialects.statements import Statements
from holdfast.retained.store.rows import message_of
from holdfast.retained.store.values import ListedMessage, Listing, Selection, Slice
from holdfast.retained.wildcards.plan import Plan
from holdfast.retained.wildcards.scan_size import ScanSize
from holdfast.storage.driver import Connection


class BoundedListing(BoundedRead):
    """Finds messages like every read, and lists them instead of concatenating their packets."""

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        *,
        plan: Plan,
        selection: Selection,
        totals: Totals,
        bounds: Bounds,
        scan_size: ScanSize,
        payloads: bool,
    ) -> None:
        super().__init__(
            connection,
            statements,
            plan=plan,
            selection=selection,
            totals=totals,
            bounds=bounds,
            scan_size=scan_size,
            slice_size=None,
            detailed=False,
        )
        self._payloads = payloads
        self._entries: list[ListedMessage] = []
        self._bytes_left = 0

    def listing(self, after: str, rows: int, max_bytes: int) -> Listing:
        """List at most ``rows`` messages and ``max_bytes`` after a topic. Raises the errors of the driver."""
        self._bytes_left = max_bytes
        batch = self.batch(after, rows, rows, max_bytes)
        return Listing(self._entries, batch.after, batch.done)

    def _slice(self, part: Part, limit: int, max_bytes: int, *, first: bool) -> tuple[Slice | None, bool]:
        """List one slice.

        The returned slice has no packets, so the caller cannot count bytes: they are counted here.
        """
        conditions = self._conditions(part, limit)
        weights = self._statements.weights(self._cursor, conditions, self._payloads, self._bound)
        if not weights:
            return None, True
        fitting = sum(1 for total in accumulate(weights) if total <= self._bytes_left) or int(first)
        if not fitting:
            return None, False
        # One row more than weighed: if it exists, messages were stored in between, and the part is not exhausted.
        complete = fitting == len(weights) < limit
        self._bound["limit"] = fitting + complete
        found = self._statements.entries(self._cursor, conditions, self._payloads, self._bound)
        if not found:
            return None, True
        self._bytes_left -= sum(weights[:fitting])
        self._entries += map(listed_of, found)
        return Slice(found[-1][0], len(found), b""), complete and len(found) <= fitting


def listed_of(columns: Sequence[Any]) -> ListedMessage:
    """Return the message of MESSAGE_COLUMNS and the size."""
    *message, size = columns
    return ListedMessage(message_of(tuple(message)), size)
