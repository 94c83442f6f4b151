"""The values that statements take and return, the same for both dialects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, frozen

from holdfast.retained.store.rows import Row

#: A condition in SQL (with a leading AND, or empty) and its bound values.
Condition = tuple[str, dict[str, Any]]


@define
class Totals:
    """The totals of the store, or their change by one transaction.

    ``highest`` is the highest revision that a transaction met or used. ``lost`` are the topics whose stored row is
    newer than the row to write; the stored row stays. ``written`` are the rows as they were written, None if nobody
    wants to know.
    """

    count: int = 0
    bytes: int = 0
    largest_packet: int = 0
    levels: frozenset[int] = frozenset()
    highest: int = 0
    lost: frozenset[str] = frozenset()
    written: list[Row] | None = None

    def add(self, other: Totals) -> None:
        """Add a change."""
        self.count += other.count
        self.bytes += other.bytes
        self.largest_packet = max(self.largest_packet, other.largest_packet)
        self.highest = max(self.highest, other.highest)
        if not other.levels <= self.levels:
            self.levels |= other.levels


@frozen
class Leap:
    """The answer of one leap: the topics that jumps reached, and the topic that a walk from topic to topic reached.

    ``visited`` are the topics that the jumps reached. Each is the first topic from the successor of the one before, so
    every match up to the last one is among them. ``complete`` tells that no match follows them. ``break_even`` is the
    topic that the jumps must pass to be cheaper than the walk; ``end`` is the last topic of the walk. Both are None if
    the range has fewer topics. ``likely`` are the topics of the walk that match the pattern, or None if that is
    unknown or if there are many.
    """

    visited: Sequence[str]
    complete: bool
    break_even: str | None
    end: str | None
    likely: Sequence[str] | None = None
