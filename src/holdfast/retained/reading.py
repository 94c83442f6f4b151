"""One read of the retained messages: statement by statement, within bounds of rows, bytes, scanned topics and time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from holdfast.interfaces import Batch, Selection, Slice
from holdfast.retained.matching import JUST_AFTER, KeyRange, Plan
from holdfast.retained.slices import cut, divide, packets_of
from holdfast.retained.statements import Statements, Totals
from holdfast.storage.driver import Connection
from holdfast.topics import matches

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen

#: Topics matched in Python at a time, when SQL cannot check the filter.
_LISTED_ROWS = 512
_SCANNED_BEHIND_A_JUMP = 32


@frozen
class Bounds:
    """How much one statement may scan (topics), and how long one read may take (seconds)."""

    scan_rows: int
    read_time: float
    seconds: Callable[[], float]


class Reading:
    """Reads one batch. What it reads may change between two statements, never within one.

    A statement that is expected to find what it looks for is not told where to stop. When it turns out to take long
    (tombstones, expired or own messages lie in between), it is broken off, and the reading goes on by windows of
    limited numbers of topics, as it does from the start when a pattern has to be checked.
    """

    def __init__(
        self, connection: Connection, statements: Statements, plan: Plan, selection: Selection, totals: Totals,
        bounds: Bounds, detailed: bool,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._cursor = connection.cursor()
        self._statements = statements
        self._plan = plan
        self._selection = selection
        self._largest_packet = totals.largest_packet
        patterned = plan.levels is not None and not plan.counted and not plan.exact
        levels = statements.levels_now(self._cursor, totals) if patterned else frozenset()
        self._bounds = bounds
        self._detailed = detailed
        self._version5 = selection.protocol_version == 5
        check = statements.check_of(plan, levels)
        self._check, bound = check or statements.listed(())
        self._listed = check is None
        self._windowed = plan.levels is not None
        self._most_scanned = min(bounds.scan_rows, _LISTED_ROWS) if self._listed else bounds.scan_rows
        self._patience = 0.0
        self._scan = 0
        self._bound: dict[str, Any] = {
            "now": selection.now,
            "not_after": selection.not_after,
            "node": selection.node,
            "except_client": selection.except_client,
            "max_packet_size": selection.max_packet_size,
            **bound,
        }

    def batch(self, after: str, rows: int, slice_rows: int, max_bytes: int) -> Batch:
        """Read at most ``rows`` messages and ``max_bytes`` of packets after a topic, in slices of ``slice_rows``.

        Raises what the driver raises.
        """
        with self._statements.interruptible(self._connection, self._impatient, self._bounds.read_time):
            if self._windowed:
                self._statements.be_patient(self._connection)
            return self._batch(after, rows, slice_rows, max_bytes)

    def _batch(self, after: str, rows: int, slice_rows: int, max_bytes: int) -> Batch:
        seconds = self._bounds.seconds
        deadline = seconds() + self._bounds.read_time
        slices: list[Slice] = []
        at_once = self._statements.rows_at_once(rows, slice_rows)
        self._scan = slice_rows
        rest = self._rest(after)
        while rest is not None:
            try:
                window, end = self._look(rest, deadline)
                found, exhausted = None, True
                if window is not None:
                    found, exhausted = self._slice(window, min(rows, at_once), max_bytes, not slices)
            except Exception as error:
                if self._windowed or not self._statements.was_interrupted(error):
                    raise
                self._windowed = True
                self._statements.be_patient(self._connection)
                continue
            if found is not None:
                slices += self._divided(found, slice_rows)
                rows -= found.count
                max_bytes -= len(found.packets)
                after = found.last
            if exhausted:
                passed = rest.high if end is None else end
                if passed is None:
                    break
                after = passed
            else:
                self._scan = slice_rows
            if found is not None and self._plan.single:
                break
            rest = self._rest(after)
            stuck = found is None and not exhausted
            if rest is not None and (stuck or rows <= 0 or max_bytes <= 0 or seconds() >= deadline):
                return Batch(slices, after, False)
        return Batch(slices, after, True)

    def _divided(self, found: Slice, slice_rows: int) -> list[Slice]:
        return [found] if found.count <= slice_rows else divide(found, slice_rows, self._selection.protocol_version)

    def _impatient(self) -> bool:
        """Tell SQLite whether to break off the statement that is running."""
        return not self._windowed and self._bounds.seconds() >= self._patience

    def _rest(self, after: str) -> KeyRange | None:
        """Return what is left of the first of the plan's ranges that lies not wholly before the cursor."""
        for key_range in self._plan.ranges:
            rest = key_range.after(after)
            if rest is not None:
                return rest
        return None

    def _look(self, rest: KeyRange, deadline: float) -> tuple[KeyRange | None, str | None]:
        """Choose the window to read now, and the topic up to which nothing is left once it has been read.

        The topic is None for the end of ``rest``, and the window None when nothing up to that topic matches. Windows
        double in size while they are read to their end, and begin small again behind a jump over what cannot match:
        a jump that gains less than such a window costs more than reading on.
        """
        seconds = self._bounds.seconds
        if not self._windowed:
            self._patience = seconds() + self._bounds.read_time / 4
            return rest, None
        while True:
            self._scan = min(2 * self._scan, self._most_scanned)
            bound = {"low": rest.low, "high": rest.high, "offset": self._scan - 1}
            first, end = self._statements.window(self._cursor, rest.high is not None, bound)
            start = None if first is None else self._plan.candidate(first)
            if start is None or (rest.high is not None and start >= rest.high):
                return None, None
            if end is None or start <= end:
                return KeyRange(start, rest.high if end is None else end + JUST_AFTER), end
            if seconds() >= deadline:
                return None, end
            rest = KeyRange(start, rest.high)
            self._scan = _SCANNED_BEHIND_A_JUMP // 2

    def _slice(self, window: KeyRange, limit: int, room: int, alone: bool) -> tuple[Slice | None, bool]:
        """Read one slice, and tell whether the window is exhausted; ``alone`` lets one message exceed the room."""
        selection, bound = self._selection, self._bound
        conditions = self._wanted(window, limit)
        exhausted = True
        if self._largest_packet * limit > room:
            sizes = self._statements.lengths(self._cursor, conditions, self._version5, bound)
            if not sizes:
                return None, True
            fitting = sum(1 for total in accumulate(sizes) if total <= room) or int(alone)
            if not fitting:
                return None, False
            if fitting < len(sizes):
                exhausted = False
                bound["limit"] = fitting
        found = self._read(conditions)
        if found is None:
            return None, True
        if len(found.packets) > room:  # they have grown since their sizes were known
            version = selection.protocol_version
            fitting = sum(1 for _, end, _ in packets_of(found, version) if end <= room) or int(alone)
            if fitting < found.count:
                return (cut(found, fitting, version)[0] if fitting else None), False
        return found, exhausted and found.count < limit

    def _wanted(self, window: KeyRange, limit: int) -> str:
        """Return the conditions for what is wanted of a window, and bind what they name."""
        selection, bounded = self._selection, window.high is not None
        conditions = self._statements.conditions(
            bounded,
            selection.except_client is not None,
            selection.max_packet_size is not None,
            self._version5,
            self._check,
        )
        bound = self._bound
        bound.update(low=window.low, high=window.high, limit=limit)
        if self._listed:
            topics = self._statements.topics(self._cursor, bounded, bound)
            topic_filter = self._plan.topic_filter
            bound.update(self._statements.listed([topic for topic in topics if matches(topic_filter, topic)])[1])
        return conditions

    def _read(self, conditions: str) -> Slice | None:
        found = self._statements.read(self._cursor, conditions, self._version5, self._detailed, self._bound)
        if found is None:
            return None
        if found.soonest_expiry and self._version5 and not self._detailed:
            self._detailed = True  # their Message Expiry Interval is written at delivery [MQTT5-3.3.2-6]
            return self._read(conditions)
        soonest = found.soonest_expiry
        return Slice(found.last, found.count, found.packets, found.qos, found.expires_at, soonest)
