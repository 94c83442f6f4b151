"""Retained messages in memory: the plain form of the SQL store, which tests compare it with."""

from __future__ import annotations

import sys
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from holdfast.core.clients import payers_of
from holdfast.core.messages import RetainedChange, RetainedChanges, RetainedMessage, has_expired
from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure, TicketsTogether
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.retained.delayed_writes import NO_DELAYED_CHANGES, IDelayedChanges
from holdfast.retained.policies import NO_COUNTED_POLICIES, ICountedPolicies
from holdfast.retained.store.conditional import ConditionalChange, Present, Verdict, decide
from holdfast.retained.store.interfaces import IRetainedScans, IRetainedStore
from holdfast.retained.store.rows import Row, packet_of, row_of, stored_row_size, with_facts
from holdfast.retained.store.scans import first_places
from holdfast.retained.store.values import (
    Batch,
    BelowTally,
    Census,
    ExpiredPosition,
    FoundPart,
    ListedMessage,
    Listing,
    Order,
    Passed,
    RankedPart,
    RetainedStatistics,
    Search,
    Selection,
    Slice,
    Sorting,
    Stop,
    Survey,
    Tally,
    TallyPart,
    Usage,
    UsageSnapshot,
)
from holdfast.retained.store.wildcards import Ranges, ranges_of, up_to
from holdfast.storage.revisions import RevisionClock

#: The topics scanned by one read.
_SCANNED = 8192


@implementer(IRetainedStore)
class MemoryRetainedStore:
    """Keeps retained messages in a dict, and their topics in a sorted list."""

    shared = False
    reads_ahead = False
    reads_slices = False
    surveyed = True
    tells_clears = False

    #: whether User Names are payers
    names_proven = True

    def __init__(self, clock: RevisionClock) -> None:
        self.node = clock.node
        self._clock = clock
        self._changes: dict[str, RetainedChange] = {}
        self._rows: dict[str, Row] = {}
        self._topics: list[str] = []
        self._clears: dict[str, bytes] = {}  #: the properties of conditional clears
        self._bytes = 0
        self.scans = MemoryScans(lambda: [self._rows[topic] for topic in self._topics], self._listed)

    #: policies with a quota
    policies: ICountedPolicies = NO_COUNTED_POLICIES
    #: changes that wait to be put
    delayed: IDelayedChanges = NO_DELAYED_CHANGES
    available = True
    unsent_revision = 0
    earlier_survey = None
    room = sys.maxsize

    def next_revision(self) -> int:
        """Return the revision for a change."""
        return self._clock.next_revision()

    def put(self, change: RetainedChange) -> CommitTicket:
        """Keep a change unless a newer one is present. The ticket is settled at once, since there is no database."""
        try:
            row = row_of(change)
        except ValueError as error:
            ticket = CommitTicket()
            ticket.settle(StorageFailure(FailureKind.REFUSED, f"{change.topic!a} cannot be stored: {error}"))
            return ticket
        self.delayed.drop(change.topic)
        known = self._changes.get(change.topic)
        if known is None or known.revision < change.revision:
            self._replace(change, row)
        return COMMITTED

    def put_if(self, change: ConditionalChange) -> CommitTicket:
        """Decide at once."""
        topic = change.row.topic
        self.delayed.write_topic(topic)
        known = self._changes.get(topic)
        present = None
        if known is not None:
            row = self._rows[topic] if known.message is not None else row_of(known)
            properties5 = self._clears.get(topic, row.properties5) if row.tombstone else row.properties5
            digest = sha256(row.payload).hexdigest()
            present = Present(
                known.revision, row.tombstone, row.expires_at, row.client_id, row.qos, properties5, digest
            )
        change.outcome = decide(change, present)
        if change.outcome.verdict is Verdict.STORED:
            self._replace(change.change, change.row)
            if change.row.tombstone:
                self._clears[topic] = change.row.properties5
        return COMMITTED

    def next_revisions(self, count: int) -> range:
        """Return revisions for ``count`` changes (1 or more), in order."""
        return self._clock.next_revisions(count)

    def put_together(self, changes: RetainedChanges) -> CommitTicket:
        """Keep changes one by one."""
        together = TicketsTogether()
        for change in changes.singly():
            together.add(self.put(change))
        return together.ticket()

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        """Have all delayed changes put. No other change ever waits."""
        return (self.delayed.write(topic_filter) if self.delayed else None) or COMMITTED

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read a batch at once."""
        start = bisect_right(self._topics, after)
        scanned = self._topics[start : start + _SCANNED]
        wanted: list[Row] = []
        skipped: list[int] = []  # the messages before each of these rows that are too long
        left_out = 0
        done = start + len(scanned) == len(self._topics)
        ranges = ranges_of(selection.topic_filter, selection.within)
        until = selection.until
        for topic in scanned:
            if until is not None and topic > until:
                after, done = until, up_to(ranges, until) == ranges
                break
            row = self._rows.get(topic)
            if row is not None and _is_selected(row, selection, ranges):
                if _is_long(row, selection):
                    left_out += 1
                    after = topic
                    continue
                size = len(_packet(row, selection))
                if len(wanted) == rows or (wanted and size > max_bytes):
                    done = False
                    break
                wanted.append(row)
                skipped.append(left_out)
                left_out = 0
                max_bytes -= size
            after = topic  # also after a topic that is left out: the next read need not scan that topic again
        slices = [
            _slice(wanted[first : first + slice_rows], selection, detailed, sum(skipped[first : first + slice_rows]))
            for first in range(0, len(wanted), slice_rows)
        ]
        return succeed(Batch(slices, after, done, left_out))

    def survey(self, after: str, limit: int, guests: bool, newer_than: int = 0) -> Deferred[Survey]:
        """Look at some topics at once."""
        start = bisect_right(self._topics, after)
        rows = [self._rows[topic] for topic in self._topics[start : start + limit]]
        published = [
            (row.topic, row.username, row.client_id)
            for row in rows
            if (guests or row.username is not None) and row.revision > newer_than
        ]
        return succeed(Survey(published, rows[-1].topic if len(rows) == limit else None))

    def keep_survey(self, fingerprint: str, judged: int | None) -> Deferred[None]:
        """Keep nothing: no process comes after this one."""
        return succeed(None)

    def get(self, topic: str) -> Deferred[RetainedMessage | None]:
        """Return the message of a topic at once."""
        change = self._changes.get(topic)
        return succeed(None if change is None else change.message)

    def last_change(self, topic: str) -> Deferred[tuple[int, RetainedMessage | None]]:
        """Return the last change of a topic at once."""
        change = self._changes.get(topic)
        return succeed((0, None) if change is None else (change.revision, change.message))

    def listing(self, selection: Selection, after: str, rows: int, max_bytes: int, payloads: bool) -> Deferred[Listing]:
        """List messages at once."""
        entries: list[ListedMessage] = []
        ranges = ranges_of(selection.topic_filter, selection.within)
        for topic in self._topics[bisect_right(self._topics, after) :]:
            row = self._rows[topic]
            if _is_selected(row, selection, ranges):
                weight = len(topic.encode()) + len(row.properties5) + (row.size if payloads else 0)
                if len(entries) == rows or (entries and weight > max_bytes):
                    return succeed(Listing(entries, after, False))
                max_bytes -= weight
                entries.append(self._listed(topic, payloads))
            after = topic
        return succeed(Listing(entries, after, True))

    def read_usage(
        self, topics: Sequence[str], topic_filters: Sequence[str], clients: Sequence[str], payers: Sequence[str] = ()
    ) -> Deferred[UsageSnapshot]:
        """Count at once."""
        rows = self._rows
        return succeed(
            UsageSnapshot(
                _usage(rows.values()),
                {
                    topic: Usage(1, stored_row_size(rows[topic]), rows[topic].client_id, rows[topic].username)
                    for topic in topics
                    if topic in rows
                },
                {one: _usage(row for row in rows.values() if self._counts(one, row.topic)) for one in topic_filters},
                {one: _usage(row for row in rows.values() if row.client_id == one) for one in clients},
                {one: _usage(row for row in rows.values() if one in self._payers_of(row)) for one in payers},
            )
        )

    def _payers_of(self, row: Row) -> tuple[str, ...]:
        return payers_of(row.username, row.client_id, self.names_proven)

    def _counts(self, scope: str, topic: str) -> bool:
        if scope in self.policies.counted_filters:
            return self.policies.scope_of(topic) == scope
        return matches(scope, topic)

    def count_quotas(self, topic_filters: Sequence[str], clients: bool, policies: ICountedPolicies) -> Deferred[None]:
        """Keep the policies."""
        self.policies = policies
        return succeed(None)

    def count_usage(self, limit: int) -> Deferred[bool]:
        """Return False: nothing is counted in advance."""
        return succeed(False)

    def cap_expiry(self, lifetime: int, never_too: bool, after: str, limit: int) -> Deferred[str | None]:
        """Let messages expire earlier, at once."""
        start = bisect_right(self._topics, after)
        topics = self._topics[start : start + limit]
        for topic in topics:
            row, change = self._rows[topic], self._changes[topic]
            latest = row.stored_at + lifetime
            if (never_too if row.expires_at is None else row.expires_at > latest) and change.message is not None:
                self._rows[topic] = row._replace(expires_at=latest)
                self._changes[topic] = evolve(change, message=evolve(change.message, expires_at=latest))
        return succeed(topics[-1] if len(topics) == limit else None)

    def move_expiry(self, step: int, since: int, upto: int, after: str, limit: int) -> Deferred[str | None]:
        """Let messages expire later, at once."""
        self.delayed.write()
        start = bisect_right(self._topics, after)
        topics = self._topics[start : start + limit]
        for topic in topics:
            row, change = self._rows[topic], self._changes[topic]
            if row.expires_at is None or row.stored_at < since or row.revision > upto or change.message is None:
                continue
            stored_at, expires_at = row.stored_at + step, row.expires_at + step
            self._rows[topic] = row._replace(stored_at=stored_at, expires_at=expires_at)
            message = evolve(change.message, stored_at=stored_at, expires_at=expires_at)
            self._changes[topic] = evolve(change, message=message)
        return succeed(topics[-1] if len(topics) == limit else None)

    def expire(self, now: int, limit: int) -> Deferred[Sequence[str]]:
        """Turn expired messages into tombstones, the earliest expiry first."""
        self.delayed.write()
        expired = sorted(
            (row.expires_at, topic) for topic, row in self._rows.items() if has_expired(row.expires_at, now)
        )
        topics = [topic for _, topic in expired[:limit]]
        revision = self.next_revision()
        for topic in topics:
            tombstone = RetainedChange(topic, max(revision, self._rows[topic].revision), now, None)
            self._replace(tombstone, row_of(tombstone))
        return succeed(topics)

    def take_sweep(self) -> Deferred[bool]:
        """Sweep: there is one node."""
        return succeed(True)

    def give_sweep_back(self) -> Deferred[bool]:
        """Do nothing: there is one node."""
        return succeed(True)

    def purge(self, before: int, limit: int) -> Deferred[int]:
        """Delete old tombstones, the oldest first."""
        old = sorted(
            (change.changed_at, topic)
            for topic, change in self._changes.items()
            if change.message is None and change.changed_at < before
        )[:limit]
        for _, topic in old:
            del self._changes[topic]
            self._clears.pop(topic, None)
        return succeed(len(old))

    def census(self, now: int, after: ExpiredPosition | None, limit: int) -> Deferred[Census]:
        """Sort the expired messages, and count some."""
        expired = sorted(
            (row.expires_at, topic, stored_row_size(row))
            for topic, row in self._rows.items()
            if row.expires_at is not None and has_expired(row.expires_at, now)
        )
        part = [one for one in expired if after is None or one[:2] > after][:limit]
        counted = RetainedStatistics(len(part), sum(size for _, _, size in part))
        return succeed(Census(self.statistics(), counted, part[-1][:2] if len(part) == limit else None))

    def statistics(self) -> RetainedStatistics:
        """Return the totals."""
        return RetainedStatistics(len(self._rows), self._bytes)

    def _listed(self, topic: str, payloads: bool) -> ListedMessage:
        message = self._changes[topic].message
        assert message is not None
        size = len(message.payload)
        return ListedMessage(message if payloads else evolve(message, payload=b""), size)

    def _replace(self, change: RetainedChange, row: Row) -> None:
        topic = change.topic
        self._changes[topic] = change
        self._clears.pop(topic, None)
        known = self._rows.pop(topic, None)
        if known is not None:
            self._bytes -= stored_row_size(known)
        if change.message is not None:
            self._rows[topic] = row
            self._bytes += stored_row_size(row)
            if known is None:
                insort(self._topics, topic)
        elif known is not None:
            del self._topics[bisect_right(self._topics, topic) - 1]


def _usage(rows: Iterable[Row]) -> Usage:
    sizes = [stored_row_size(row) for row in rows]
    return Usage(len(sizes), sum(sizes))


def _is_selected(row: Row, selection: Selection, ranges: Ranges) -> bool:
    topic = row.topic
    if not any(one.low <= topic and (one.high is None or topic < one.high) for one in ranges):
        return False
    if selection.topic_filter != EVERY_TOPIC and not matches(selection.topic_filter, topic):
        return False
    if has_expired(row.expires_at, selection.now):
        return False
    if row.revision > selection.not_after and row.revision & 255 == selection.node:
        return False
    queued = selection.queued
    if (
        queued is not None
        and row.revision & 255 == selection.node
        and queued.above < row.revision <= queued.until
        and row.qos >= queued.least_qos
    ):
        return False
    return selection.except_client is None or row.client_id != selection.except_client


def _is_long(row: Row, selection: Selection) -> bool:
    most = selection.max_packet_size
    return most is not None and len(packet_of(row, selection.protocol_version)) > most


def _packet(row: Row, selection: Selection) -> bytes:
    packet = packet_of(row, selection.protocol_version)
    if selection.facts:
        packet = with_facts(packet, selection.facts, [(row.stored_at, row.revision, row.client_id)])
    return packet


def _slice(rows: Sequence[Row], selection: Selection, detailed: bool, left_out: int) -> Slice:
    soonest = min((row.expires_at for row in rows if row.expires_at is not None), default=0)
    packets = b"".join([_packet(row, selection) for row in rows])
    publishers = [(row.username, row.client_id) for row in rows] if selection.publishers else ()
    if not detailed and not (selection.protocol_version == 5 and soonest):
        return Slice(
            rows[-1].topic, len(rows), packets, soonest_expiry=soonest, left_out=left_out, publishers=publishers
        )
    return Slice(
        rows[-1].topic,
        len(rows),
        packets,
        bytes([row.qos for row in rows]),
        tuple([row.expires_at or 0 for row in rows]),
        soonest,
        left_out,
        publishers,
    )


# Scans of messages in memory: the plain form.


@implementer(IRetainedScans)
class MemoryScans:
    """Scans a list of rows in topic order. ``listed`` returns a topic's message, with or without its payload."""

    def __init__(self, rows: Callable[[], Sequence[Row]], listed: Callable[[str, bool], ListedMessage]) -> None:
        self._rows = rows
        self._listed = listed

    def tally(self, search: Search, after: str, rows: int) -> Deferred[TallyPart]:
        """Count matching messages at once."""
        found, passed = self._found(search, after, rows)
        return succeed(TallyPart(_tally(found), passed))

    def search(
        self, search: Search, after: str, rows: int, limit: int, max_bytes: int, payloads: bool
    ) -> Deferred[FoundPart]:
        """Find messages at once."""
        found, passed = self._found(search, after, rows)
        entries: list[ListedMessage] = []
        for row in found:
            weight = len(row.topic.encode()) + len(row.properties5) + (row.size if payloads else 0)
            if len(entries) == limit or (entries and weight > max_bytes):
                passed = Passed(passed.scanned, entries[-1].message.topic, False)
                break
            max_bytes -= weight
            entries.append(self._listed(row.topic, payloads))
        return succeed(FoundPart(entries, passed))

    def rank(self, search: Search, sorting: Sorting, after: str, rows: int, limit: int) -> Deferred[RankedPart]:
        """Sort matching messages at once."""
        found, passed = self._found(search, after, rows)
        places = [(row.stored_at if sorting.by is Order.TIME else row.size, row.topic) for row in found]
        return succeed(RankedPart(first_places(places, sorting, limit), passed))

    def listed(self, search: Search, topics: Sequence[str], beginning: int = 0) -> Deferred[Sequence[ListedMessage]]:
        """Read messages at once."""
        wanted = set(topics)
        rows = [row.topic for row in self._rows() if row.topic in wanted and _is_wanted(row, search)]
        whole = [self._listed(topic, True) for topic in rows]
        return succeed(
            [evolve(one, message=evolve(one.message, payload=one.message.payload[:beginning])) for one in whole]
        )

    def level(self, base: str, low: str, rows: int, now: int) -> Deferred[Sequence[Stop]]:
        """Walk through a level at once."""
        stops: list[Stop] = []
        low = max(low, base)
        for row in self._rows():
            if len(stops) == rows:
                break
            if row.topic < low or not row.topic.startswith(base):
                continue
            stops.append(_stop(row, now))
            name, separator, _ = row.topic[len(base) :].partition("/")
            low = f"{base}{name}0" if separator else row.topic + "\1"
        return succeed(stops)

    def parents(self, base: str, topic: str, now: int) -> Deferred[Sequence[Stop]]:
        """Look at all rows."""
        return succeed(
            [
                _stop(row, now)
                for row in self._rows()
                if row.topic.startswith(base) and topic.startswith(row.topic) and row.topic != topic
            ]
        )

    def below(self, topics: Sequence[str], rows: int, now: int) -> Deferred[Sequence[BelowTally]]:
        """Count at once."""
        found = []
        for topic in topics:
            looked = [row for row in self._rows() if row.topic.startswith(f"{topic}/")][:rows]
            tally = _tally([row for row in looked if _stop(row, now).live])
            found.append(BelowTally(tally, len(looked), len(looked) < rows))
        return succeed(found)

    def _found(self, search: Search, after: str, rows: int) -> tuple[list[Row], Passed]:
        rest = [row for row in self._rows() if row.topic > after]
        looked = rest[:rows]
        end = looked[-1].topic if looked else after
        return [row for row in looked if _is_wanted(row, search)], Passed(len(looked), end, len(looked) == len(rest))


def _tally(rows: Sequence[Row]) -> Tally:
    return Tally(len(rows), sum(map(stored_row_size, rows)), max((row.stored_at for row in rows), default=None))


def _stop(row: Row, now: int) -> Stop:
    alive = not has_expired(row.expires_at, now)
    return Stop(row.topic, alive, stored_row_size(row), row.stored_at)


def _is_wanted(row: Row, search: Search) -> bool:
    expired = has_expired(row.expires_at, search.now)
    return (
        (search.topic_filter == EVERY_TOPIC or matches(search.topic_filter, row.topic))
        and expired is search.expired
        and (row.revision <= search.not_after or row.revision & 255 != search.node)
        and search.selects(row.topic, row.client_id, row.username, row.stored_at, row.size)
    )
