"""Reading one batch of retained messages, within bounds of rows, bytes, scanned topics and time.

How it works
------------
The plan of the Topic Filter has ranges of topics, and perhaps a pattern that the topics must also match. A read goes
through the ranges from a cursor, the last topic of the read before. There are two ways to read a range:

* *Direct*: without a pattern (``site/#``), nearly every topic of a range is a match. One statement reads "the next 500
  messages", without another bound. Sometimes it passes over many rows first: tombstones, expired messages, or messages
  of the client itself (No Local). After a quarter of the read's time it is interrupted, and the read becomes a search.
* *Search*: with a pattern (``site/+/temp``), matches can be rare. Each step looks at a bounded number of topics, the
  *part*, then reads the matches of this part.

To find the next part, a search compares two ways in one statement, a *leap*. With topics ``site/1/a`` ..
``site/1/z``, ``site/2/a`` .. and the filter ``site/+/temp``, a *jump* from ``site/1/a`` seeks ``site/1/temp`` and then
the topics after ``site/1``. Eight jumps reach ``site/4``. A *walk* of 1024 topics reaches, say, ``site/40``. If the
jumps went further than 64 topics for each jump, they were cheaper: all matches are among the topics that the jumps
reached, and the read takes these topics by name. Otherwise the part is the walk, read with the pattern. The winning way
doubles its size (:mod:`holdfast.retained.store.wildcards`).

Invariants: a batch never skips a match. ``after`` is either the topic of the last message, or a topic up to which no
match is left. A read without matches still makes progress, so a client never waits for one statement through a
million topics. Messages may change between two statements of a read, but not within one statement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from attrs import define, evolve, frozen

from holdfast.core.topics import matches
from holdfast.retained.store.rows import message_of
from holdfast.retained.store.slices import cut, divide, packets_of
from holdfast.retained.store.statements import Statements, Totals
from holdfast.retained.store.values import Batch, ListedMessage, Listing, Selection, Slice
from holdfast.retained.store.wildcards import JUST_AFTER, KeyRange, Plan, ScanSize, ranges_of, up_to
from holdfast.storage.driver import Connection

#: The most topics that Python compares with the filter at a time, if SQL cannot check it.
_LISTED_ROWS = 512
_ANY_LENGTH = 1 << 62


@frozen
class Bounds:
    """The time that one read may take (seconds), and the clock to measure it."""

    read_time: float
    seconds: Callable[[], float]


@frozen
class Part:
    """A part of a range, to read next.

    After this part, no match is left up to the topic ``end``; None means the end of the plan's range. ``topics`` are
    all matches of the part, None if they are not compared with the filter yet.
    """

    key_range: KeyRange
    end: str | None
    topics: Sequence[str] | None = None


class BoundedRead:
    """Reads one batch."""

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
        slice_size: SliceSize | None,
        detailed: bool,
    ) -> None:
        """With a ``slice_size``, each statement reads one slice of this size; with None, all rows of a batch."""
        self._connection = connection
        self._cursor = connection.cursor()
        self._statements = statements
        self._plan = plan
        self._selection = selection
        ranges = ranges_of(plan.topic_filter, selection.within)
        self._ranges = ranges if selection.until is None else up_to(ranges, selection.until)
        self._is_part = self._ranges[-1:] != ranges[-1:]  # whether topics of the ranges lie behind ``until``
        self._totals = totals
        self._largest_packet = statements.largest_known_packet(totals)
        patterned = plan.levels is not None and not plan.counted and not plan.exact
        levels = statements.levels_now(self._cursor, totals) if patterned else frozenset()
        # Messages that are too long are counted, but not where none can be.
        most = selection.max_packet_size
        self._counts_long = most is not None and statements.largest_packet_now(self._cursor, totals) > most
        self._bounds = bounds
        self._detailed = detailed
        self._version5 = selection.protocol_version == 5
        check = statements.check_of(plan, levels)
        # None: SQL cannot check the pattern, so Python compares each topic with the filter.
        self._check = None if check is None else check[0]
        bound = {} if check is None else check[1]
        self._searching = plan.levels is not None
        self._scan_size = scan_size
        self._slice_size = slice_size
        self._interrupt_at = 0.0
        self._bound: dict[str, Any] = {
            "now": selection.now,
            "not_after": selection.not_after,
            "node": selection.node,
            "except_client": selection.except_client,
            "max_packet_size": selection.max_packet_size,
            **bound,
        }
        queued = selection.queued
        if queued is not None:
            self._bound.update(queued_above=queued.above, queued_until=queued.until, queued_qos=queued.least_qos)

    def batch(self, after: str, rows: int, slice_rows: int, max_bytes: int) -> Batch:
        """Read at most ``rows`` messages and ``max_bytes`` of packets after a topic, in slices of ``slice_rows``.

        Raises the errors of the driver.
        """
        if self._searching:
            self._statements.begin_search(self._connection)
            batch = self._batch(after, rows, slice_rows, max_bytes)
        else:
            with self._statements.interruptible(self._connection, self._overdue, self._bounds.read_time):
                batch = self._batch(after, rows, slice_rows, max_bytes)
        if batch.done and self._is_part:
            assert self._selection.until is not None
            return evolve(batch, after=self._selection.until, done=False)
        return batch

    def _batch(self, after: str, rows: int, slice_rows: int, max_bytes: int) -> Batch:
        seconds = self._bounds.seconds
        began = seconds()
        deadline = began + self._bounds.read_time
        slices: list[Slice] = []
        left_out = 0
        part: Part | None = None
        rest = self._rest(after)
        while rest is not None:
            self._interrupt_at = seconds() + self._bounds.read_time / 4
            try:
                part = part or self._next_part(rest)
                found, exhausted, before, behind = None, True, 0, 0
                if part.topics is None or part.topics:
                    found, exhausted = self._next_slice(part, rows, slice_rows, max_bytes, first=not slices)
                    if self._counts_long:
                        before = 0 if found is None else self._long(part, None, found.last)
                        behind = self._long(part, None if found is None else found.last, None) if exhausted else 0
            except Exception as error:
                if self._searching or not self._statements.was_interrupted(error):
                    raise
                self._searching = True
                self._statements.begin_search(self._connection)
                part, rest = None, self._rest(after)
                continue
            if found is not None:
                if left_out or before:
                    found, left_out = evolve(found, left_out=left_out + before), 0
                slices += self._divided(found, slice_rows)
                rows -= found.count
                max_bytes -= len(found.packets)
                after = found.last
            if exhausted:
                passed = rest.high if part.end is None else part.end
                if passed is None:
                    if slices:  # the cursor goes no further than the last message
                        slices[-1] = evolve(slices[-1], left_out=slices[-1].left_out + behind)
                    else:
                        left_out += behind
                    break
                left_out += behind
                after, part = passed, None
                rest = self._rest(after)
            elif found is not None:
                part = evolve(part, key_range=KeyRange(after + JUST_AFTER, part.key_range.high))
                if part.topics is None:
                    self._scan_size.filled()
            if found is not None and self._plan.single:
                break
            # A message that does not fit ends the batch. The next batch begins with this message.
            stuck = found is None and not exhausted
            if rest is not None and (stuck or rows <= 0 or max_bytes <= 0 or self._is_late(slices, began, deadline)):
                return Batch(slices, after, False, left_out)
        return Batch(slices, after, True, left_out)

    def _is_late(self, slices: Sequence[Slice], began: float, deadline: float) -> bool:
        """Tell whether a read that still has room for rows and bytes should end now.

        A read slice by slice ends when it has about one slice: little is held, and live messages need not wait longer.
        """
        now = self._bounds.seconds()
        if self._slice_size is None or not slices:
            return now >= deadline
        enough = self._bounds.read_time / 4 if self._searching else SLICE_SECONDS / 2
        return now >= began + enough or sum(len(piece.packets) for piece in slices) >= _ENOUGH_BYTES

    def _divided(self, found: Slice, slice_rows: int) -> list[Slice]:
        return [found] if found.count <= slice_rows else divide(found, slice_rows, self._selection.protocol_version)

    def _overdue(self) -> bool:
        """Tell SQLite whether to interrupt the running statement."""
        return not self._searching and self._bounds.seconds() >= self._interrupt_at

    def _rest(self, after: str) -> KeyRange | None:
        """Return the rest, after the cursor, of the first range that has one."""
        for key_range in self._ranges:
            rest = key_range.after(after)
            if rest is not None:
                return rest
        return None

    def _next_part(self, rest: KeyRange) -> Part:
        """Choose the next part: the topics that some jumps reached, or a walk if it goes further."""
        if not self._searching:
            return Part(rest, None)
        size, bounded = self._scan_size, rest.high is not None
        walked = size.topics if self._check is not None else min(size.topics, _LISTED_ROWS)
        bound = {"low": rest.low, "high": rest.high, "offset": walked - 1}
        likely: Sequence[str] | None = None  # unknown
        if self._plan.levels is None or size.dense:
            end = self._statements.walk(self._cursor, bounded, bound)
        elif not size.jumps:
            end, likely = self._statements.walk_and_match(self._cursor, self._plan, bounded, bound)
        else:
            bound.update(jumps=size.jumps, break_even=size.topics_per_jump * size.jumps - 1)
            leap = self._statements.leap(self._cursor, self._plan, bounded, bound)
            visited, end, likely = leap.visited, leap.end, leap.likely
            if leap.complete or (leap.break_even is not None and visited[-1] > leap.break_even):
                size.jumped()
                found = self._matching(visited)
                return Part(rest, None if leap.complete else visited[-1], found)
        size.walked()
        topics = None if likely is None else self._matching(likely)
        return Part(KeyRange(rest.low, rest.high if end is None else end + JUST_AFTER), end, topics)

    def _matching(self, topics: Sequence[str]) -> list[str]:
        topic_filter = self._plan.topic_filter
        return [topic for topic in topics if matches(topic_filter, topic)]

    def _next_slice(
        self, part: Part, rows: int, slice_rows: int, max_bytes: int, *, first: bool
    ) -> tuple[Slice | None, bool]:
        """Read one slice, or all rows of the batch as one; see :meth:`_slice`."""
        size = self._slice_size
        if size is None:
            return self._slice(part, rows, max_bytes, first=first)
        most_bytes = min(max_bytes, SLICE_BYTES)
        limit = min(rows, slice_rows, size.within(most_bytes))
        limit = size.fitting(limit, most_bytes, self._largest_packet) or limit
        began = self._bounds.seconds()
        found, exhausted = self._slice(part, limit, most_bytes, first=first)
        if found is not None and not exhausted:
            size.took(found.count, len(found.packets), self._bounds.seconds() - began)
        return found, exhausted

    def _slice(self, part: Part, limit: int, max_bytes: int, *, first: bool) -> tuple[Slice | None, bool]:
        """Read one slice, and tell whether the part is exhausted.

        The first slice of a batch has at least one message, even one longer than ``max_bytes``.
        """
        selection, bound = self._selection, self._bound
        conditions = self._conditions(part, limit)
        exhausted = True
        found = None
        bound["longest"] = max_bytes // limit
        # Lengths are read only if the packets could exceed the bytes: most batches need one statement, not two.
        if self._largest_packet <= bound["longest"]:
            found = self._read(conditions)
            if found is None:
                self._largest_packet = self._statements.largest_packet_now(self._cursor, self._totals)
                if self._largest_packet <= bound["longest"]:
                    return None, True
        if found is None:
            lengths = self._statements.lengths(self._cursor, conditions, self._version5, bound)
            if not lengths:
                return None, True
            fitting = sum(1 for total in accumulate(lengths) if total <= max_bytes) or int(first)
            if not fitting:
                return None, False
            if fitting < len(lengths):
                exhausted = False
                bound["limit"] = fitting
            bound["longest"] = _ANY_LENGTH
            found = self._read(conditions)
        if found is None:
            return None, True
        if len(found.packets) > max_bytes:  # longer ones were stored meanwhile, or the facts are long
            version = selection.protocol_version
            fitting = sum(1 for _, end, _ in packets_of(found, version) if end <= max_bytes) or int(first)
            if fitting < found.count:
                return (cut(found, fitting, version)[0] if fitting else None), False
        return found, exhausted and found.count < limit

    def _long(self, part: Part, after: str | None, last: str | None) -> int:
        """Count the messages of a part, after a topic and up to ``last``, that are too long for the subscriber."""
        low = part.key_range.low if after is None else after + JUST_AFTER
        high = part.key_range.high if last is None else last + JUST_AFTER
        part = evolve(part, key_range=KeyRange(low, high))
        return self._statements.count(self._cursor, self._conditions(part, 0, limited=">"), self._bound)

    def _conditions(self, part: Part, limit: int, limited: str = "<=") -> str:
        """Return the conditions for the wanted messages of a part, and bind their names."""
        selection, key_range, bound = self._selection, part.key_range, self._bound
        bounded = key_range.high is not None
        bound.update(low=key_range.low, high=key_range.high, limit=limit)
        topics, check = part.topics, self._check
        if topics is None and check is None:
            topics = self._matching(self._statements.topics(self._cursor, bounded, bound))
        if topics is not None:
            check, listed = self._statements.listed(topics)
            bound.update(listed)
        return self._statements.conditions(
            bounded,
            selection.except_client is not None,
            "" if selection.max_packet_size is None else limited,
            selection.queued is not None,
            self._version5,
            check or "",
        )

    def _read(self, conditions: str) -> Slice | None:
        found = self._statements.read(self._cursor, conditions, self._selection, self._detailed, self._bound)
        if found is not None and found.soonest_expiry and self._version5 and not self._detailed:
            # The Message Expiry Interval is written at delivery [MQTT5-3.3.2-6], so each expiry is needed.
            self._detailed = True
            return self._read(conditions)
        return found


# The size of the next slice: how many rows one statement reads, where each statement reads one slice.
#
# How it works
# ------------
# Each slice has a fixed cost: a turn of the reactor, a read transaction, and a write to the socket. So slices are
# large.
# But live messages wait while a slice is read in the reactor's turn, and a client that reads nothing costs the bytes of
# a slice. So a slice has at most 256 KiB, or fewer bytes if its reader asks for fewer. Its statement takes about half a
# millisecond, above 64 KiB 0.3 ms. The last slice tells how many rows that is:
#
# =====================  ==========  ======  ============  =========
# packets                rows read   KiB     milliseconds  next rows
# =====================  ==========  ======  ============  =========
# of 50 bytes            250         12      0.1           500
# of 50 bytes            500         24      0.2           1000
# of 50 bytes, slowly    1000        49      1.0           500
# of 1100 bytes          250         268     not read      238
# =====================  ==========  ======  ============  =========
#
# The number of rows at most doubles or halves from one slice to the next one: a slice that another process has delayed
# counts little. The time is a target, since it is known only afterwards. The bytes are a bound: if rows as long as the
# longest packet of the store would exceed it, their lengths are read first (:meth:`fitting`). The sizes of a Topic
# Filter are kept between reads.


#: The most bytes of a slice, except for a single longer packet.
SLICE_BYTES = 256 * 1024
#: With so many bytes, a read slice by slice looks for no further messages.
_ENOUGH_BYTES = 32 * 1024
#: The time that the statement of a slice should take.
SLICE_SECONDS = 0.0005
#: The same for a slice of more than these bytes, which takes long to send, too. With half a millisecond for all slices,
#: live messages took twice as long during a replay of 1 KB messages (a median of 1.2 ms in place of 0.6).
LONG_BYTES, LONG_SECONDS = 64 * 1024, 0.0003
_FIRST_ROWS = 250
_FEWEST_ROWS = 8


@define
class SliceSize:
    """How many rows the next statement reads."""

    rows: int = _FIRST_ROWS
    row_bytes: int = 0  #: the mean length of the packets of the last slice, 0 if there was none

    def within(self, most_bytes: int) -> int:
        """Return how many rows to read if they may have this size in bytes."""
        if not self.row_bytes:
            return self.rows
        return min(self.rows, max(_FEWEST_ROWS, most_bytes // self.row_bytes))

    def fitting(self, rows: int, most_bytes: int, longest: int) -> int:
        """Return how many of these rows surely fit, if no packet is longer than ``longest`` bytes.

        Returns 0 if too few of them surely fit: then the lengths have to be read first.
        """
        fitting = most_bytes // longest if longest else rows
        return min(fitting, rows) if 2 * fitting >= rows else 0

    def took(self, rows: int, size: int, seconds: float) -> None:
        """Take note that a statement has read as many rows as it could, of this size in bytes, in this time."""
        self.row_bytes = size // rows
        share = max(size / SLICE_BYTES, seconds / (LONG_SECONDS if size > LONG_BYTES else SLICE_SECONDS))
        wanted = int(rows / share) if share else 2 * self.rows
        self.rows = max(_FEWEST_ROWS, self.rows // 2, min(wanted, 2 * self.rows))


# Listing retained messages one by one with all their fields, for operators, within the bounds of a read.


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
