"""One read of the retained messages: statement by statement, within bounds of rows, bytes, scanned topics and time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.interfaces import Batch, Selection, Slice
from holdfast.retained import statements
from holdfast.retained.matching import JUST_AFTER, KeyRange, Plan
from holdfast.retained.slices import cut, packets_of
from holdfast.retained.upserts import Totals
from holdfast.storage.driver import Cursor
from holdfast.topics import matches

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen

#: Topics matched in Python at a time, when a database cannot check the filter.
_LISTED_ROWS = 512
_QOS = bytes.maketrans(b"012", b"\0\1\2")


@frozen
class Bounds:
    """How much one statement may scan (topics), and how long one read may take (seconds)."""

    scan_rows: int
    read_time: float
    seconds: Callable[[], float]


class Reading:
    """Reads one batch. What it reads may change between two statements, never within one."""

    def __init__(
        self, cursor: Cursor, plan: Plan, selection: Selection, totals: Totals, bounds: Bounds, detailed: bool
    ) -> None:
        self._cursor = cursor
        self._plan = plan
        self._selection = selection
        self._totals = totals
        self._bounds = bounds
        self._detailed = detailed
        self._version5 = selection.protocol_version == 5
        self._check = statements.check_of(plan, totals.levels)
        self._bound = {
            "now": selection.now,
            "not_after": selection.not_after,
            "node": selection.node,
            "except_client": selection.except_client,
            "max_packet_size": selection.max_packet_size,
        }
        if self._check is not None:
            self._bound.update(self._check[1])

    def batch(self, after: str, rows: int, slice_rows: int, max_bytes: int) -> Batch:
        """Read at most ``rows`` messages and ``max_bytes`` of packets after a topic, in slices of ``slice_rows``."""
        deadline = self._bounds.seconds() + self._bounds.read_time
        slices: list[Slice] = []
        scanned = slice_rows
        for key_range in self._plan.ranges:
            rest = key_range.after(after)
            while rest is not None:
                if slices and (rows <= 0 or max_bytes <= 0):
                    return Batch(slices, after, False)
                scanned = min(2 * scanned, self._bounds.scan_rows)
                end = self._window_end(rest, scanned)
                window = rest if end is None else KeyRange(rest.low, end + JUST_AFTER)
                while window is not None:
                    limit = min(rows, slice_rows)
                    found, more = self._slice(window, limit, max_bytes, not slices)
                    if found is not None:
                        slices.append(found)
                        rows -= found.count
                        max_bytes -= len(found.packets)
                        after = found.last
                        if self._plan.single:
                            return Batch(slices, after, True)
                    window = window.after(after) if more else None
                    if window is not None and (
                        found is None or rows <= 0 or max_bytes <= 0 or self._bounds.seconds() >= deadline
                    ):
                        return Batch(slices, after, False)
                after = key_range.high or after if end is None else end
                rest = None if end is None else rest.after(end)
                if rest is not None and self._bounds.seconds() >= deadline:
                    return Batch(slices, after, False)
        return Batch(slices, after, True)
