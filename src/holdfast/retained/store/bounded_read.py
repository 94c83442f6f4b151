"""One read of the retained messages: statement by statement, within bounds of rows, bytes, scanned topics and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from attrs import evolve, frozen

from holdfast.retained.store.slices import cut, divide, packets_of
from holdfast.retained.store.statements import Statements, Totals
from holdfast.retained.store.values import Batch, Selection, Slice
from holdfast.retained.wildcards.plan import JUST_AFTER, KeyRange, Plan
from holdfast.retained.wildcards.scan_size import Stride
from holdfast.storage.driver import Connection
from holdfast.topics import matches

#: Topics matched in Python at a time, when SQL cannot check the filter.
_LISTED_ROWS = 512


@frozen
class Bounds:
    """How long one read may take (seconds)."""

    read_time: float
    seconds: Callable[[], float]


@frozen
class Window:
    """What to read next: a range, and the topic up to which nothing is left then (None: the end of the plan's range).

    ``topics`` are all that match in it, None if that has not been checked.
    """

    key_range: KeyRange
    end: str | None
    topics: Sequence[str] | None = None


class Reading:
    """Reads one batch. What it reads may change between two statements, never within one.

    A statement that is expected to find what it looks for is not told where to stop. When it turns out to take long
    (tombstones, expired or own messages lie in between), it is broken off, and the reading goes on by windows of a
    limited number of topics, as it does from the start when a pattern has to be checked. Such a search jumps over what
    cannot match wherever that is quicker than looking at it.
    """

    def __init__(
        self, connection: Connection, statements: Statements, plan: Plan, selection: Selection, totals: Totals,
        bounds: Bounds, stride: Stride, detailed: bool,
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
        self._check = None if check is None else check[0]
        bound = {} if check is None else check[1]
        self._windowed = plan.levels is not None
        self._stride = stride
        self._patience = 0.0
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
        if self._windowed:
            self._statements.be_patient(self._connection)
            return self._batch(after, rows, slice_rows, max_bytes)
        with self._statements.interruptible(self._connection, self._impatient, self._bounds.read_time):
            return self._batch(after, rows, slice_rows, max_bytes)

    def _batch(self, after: str, rows: int, slice_rows: int, max_bytes: int) -> Batch:
        seconds = self._bounds.seconds
        deadline = seconds() + self._bounds.read_time
        slices: list[Slice] = []
        at_once = self._statements.rows_at_once(rows, slice_rows)
        window: Window | None = None
        rest = self._rest(after)
        while rest is not None:
            self._patience = seconds() + self._bounds.read_time / 4
            try:
                window = window or self._look(rest)
                found, exhausted = None, True
                if window.topics is None or window.topics:
                    found, exhausted = self._slice(window, min(rows, at_once), max_bytes, not slices)
            except Exception as error:
                if self._windowed or not self._statements.was_interrupted(error):
                    raise
                self._windowed = True
                self._statements.be_patient(self._connection)
                window, rest = None, self._rest(after)
                continue
            if found is not None:
                slices += self._divided(found, slice_rows)
                rows -= found.count
                max_bytes -= len(found.packets)
                after = found.last
            if exhausted:
                passed = rest.high if window.end is None else window.end
                if passed is None:
                    break
                after, window = passed, None
                rest = self._rest(after)
            elif found is not None:
                window = evolve(window, key_range=KeyRange(after + JUST_AFTER, window.key_range.high))
                if window.topics is None:
                    self._stride.filled()
            if found is not None and self._plan.single:
                break
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

    def _look(self, rest: KeyRange) -> Window:
        """Choose what to read now.

        A search compares where some jumps get it with where looking at every topic gets it in about the same time, and
        does what gets it further: it takes what matches among the topics jumped to, or a window of all topics.
        """
        if not self._windowed:
            return Window(rest, None)
        stride, bounded = self._stride, rest.high is not None
        walked = stride.topics if self._check is not None else min(stride.topics, _LISTED_ROWS)
        bound = {"low": rest.low, "high": rest.high, "offset": walked - 1}
        likely: Sequence[str] | None = None  # not known
        if self._plan.levels is None or not stride.jumps:
            end = self._statements.window(self._cursor, bounded, bound)
        else:
            bound.update(jumps=stride.jumps, par=stride.par * stride.jumps - 1)
            leap = self._statements.leap(self._cursor, self._plan, bounded, bound)
            visited, end, likely = leap.visited, leap.end, leap.likely
            if leap.complete or (leap.par is not None and visited[-1] > leap.par):
                stride.jumped()
                found = self._matching(visited)
                return Window(rest, None if leap.complete else visited[-1], found)
        stride.walked()
        topics = None if likely is None else self._matching(likely)
        return Window(KeyRange(rest.low, rest.high if end is None else end + JUST_AFTER), end, topics)

    def _matching(self, topics: Sequence[str]) -> list[str]:
        topic_filter = self._plan.topic_filter
        return [topic for topic in topics if matches(topic_filter, topic)]

    def _slice(self, window: Window, limit: int, room: int, alone: bool) -> tuple[Slice | None, bool]:
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

    def _wanted(self, window: Window, limit: int) -> str:
        """Return the conditions for what is wanted of a window, and bind what they name."""
        selection, key_range, bound = self._selection, window.key_range, self._bound
        bounded = key_range.high is not None
        bound.update(low=key_range.low, high=key_range.high, limit=limit)
        topics, check = window.topics, self._check
        if topics is None and check is None:
            topics = self._matching(self._statements.topics(self._cursor, bounded, bound))
        if topics is not None:
            check, listed = self._statements.listed(topics)
            bound.update(listed)
        return self._statements.conditions(
            bounded,
            selection.except_client is not None,
            selection.max_packet_size is not None,
            self._version5,
            check or "",
        )

    def _read(self, conditions: str) -> Slice | None:
        found = self._statements.read(self._cursor, conditions, self._version5, self._detailed, self._bound)
        if found is None:
            return None
        if found.soonest_expiry and self._version5 and not self._detailed:
            self._detailed = True  # their Message Expiry Interval is written at delivery [MQTT5-3.3.2-6]
            return self._read(conditions)
        soonest = found.soonest_expiry
        return Slice(found.last, found.count, found.packets, found.qos, found.expires_at, soonest)
