"""What has changed since a turn, as a replay reads it: messages that are retained, and empty ones for all others.

How it works. A replay since a token is one like any other (:mod:`holdfast.retained.replay.replay`). Only its source is
another one: it walks through the changed topics in their order, and reads the present row of each. Beside the stored
changes these are the topics whose messages have expired since, and wait for the sweep. All of it is read in the thread
of long reads.

A message that is withheld from subscribers (:mod:`holdfast.retained.source_check`) comes as an empty one: the client
may have an earlier message of its topic, and a replay of everything would bring none.

A durable Session's stored turn keeps the changes after it, and so does a source that is in use, however old they are.
Beyond a million (``MOST_CHANGES``) they are pruned all the same: then the replay ends, and its marker says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from holdfast.core.tickets import CommitTicket
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.retained.changes.recording import IChangesRecorder
from holdfast.retained.changes.stored import changed_topics, read_kept, time_of
from holdfast.retained.store.interfaces import IReplaySource
from holdfast.retained.store.rows import with_facts
from holdfast.retained.store.slices import CLEAR_QOS, divide, empty_packet
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.values import Batch, Publisher, QueuedRows, Selection, Slice
from holdfast.storage.driver import Cursor, split

#: The topics that one read looks at, and those whose rows one statement reads.
_TOPICS = 1000
_ROWS = 128
_COLUMNS = (
    "topic, revision, qos, size, stored_at, expires_at, tombstone, client_id, username, "
    "prefix3, prefix5, properties5, payload"
)
# Such messages are few, and are found by their time. A plan in the order of topics would read the whole table.
_EXPIRED = (
    "WITH expired AS MATERIALIZED "
    "(SELECT topic FROM retained WHERE expires_at > ? AND expires_at <= ? AND tombstone = 0) "
    "SELECT topic FROM expired WHERE topic > ? ORDER BY topic LIMIT ?"
)
_COUNT_EXPIRED = (
    "SELECT count(*) FROM "
    "(SELECT 1 FROM retained WHERE expires_at > ? AND expires_at <= ? AND tombstone = 0 LIMIT ?) AS part"
)


class _Present(NamedTuple):
    """The present row of a changed topic."""

    topic: str
    revision: int
    qos: int
    size: int
    stored_at: int
    expires_at: int | None
    tombstone: int
    client_id: str | None
    username: str | None
    prefix3: bytes
    prefix5: bytes
    properties5: bytes
    payload: bytes


@implementer(IReplaySource)
class SinceSource:
    """The source of one replay of what has changed after a ``turn``. ``lost`` is called if changes are missing."""

    reads_ahead = False
    surveyed = True
    tells_clears = True

    def __init__(
        self, store: SQLRetainedStore, recorder: IChangesRecorder, turn: int, lost: Callable[[], None]
    ) -> None:
        self.node: int = store.node
        self.shared: bool = store.shared
        self.turn = turn
        self._store = store
        self._recorder = recorder
        self._lost = lost
        self._since: int | None = None

    def next_revision(self) -> int:
        """Return a revision of the store."""
        return self._store.next_revision()

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        """Return the ticket of the store."""
        return self._store.flushed(topic_filter)

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read a batch, in another thread."""

        def work(cursor: Cursor) -> Batch | None:
            kept = read_kept(cursor)
            if kept is None or kept.turn > self.turn:
                return None
            if self._since is None:
                self._since = time_of(cursor, self.turn)
            topics, end = self._next_topics(cursor, selection, after)
            return _Reading(cursor, selection, detailed).batch(topics, end, after, rows, slice_rows, max_bytes)

        def found(batch: Batch | None) -> Batch:
            if batch is None:
                self._lost()
                return Batch((), after, True)
            return batch

        # All committed changes have to be in the table: those since the token too.
        gathered = (
            self._store.ask_writer(self._recorder.append_gathered) if self._recorder.has_gathered else succeed(None)
        )
        return gathered.addCallback(lambda _: self._store.scan(work)).addCallback(found)

    def _next_topics(self, cursor: Cursor, selection: Selection, after: str) -> tuple[list[str], str | None]:
        """Return the next topics that match, and the topic up to which all are looked at; None: all are."""
        changed = changed_topics(cursor, self.turn, after, _TOPICS)
        cursor.execute(_EXPIRED, (self._since, selection.now, after, _TOPICS))
        expired = [topic for (topic,) in cursor.fetchall()]
        ends = [found[-1] for found in (changed, expired) if len(found) == _TOPICS]
        if selection.until is not None:
            ends.append(selection.until)
        end = min(ends, default=None)
        topics = (topic for topic, _ in groupby(merge(changed, expired)) if end is None or topic <= end)
        within = selection.within
        return [
            topic
            for topic in topics
            if matches(selection.topic_filter, topic)
            and (within is None or any(matches(topic_filter, topic) for topic_filter in within))
        ], end


class _Reading:
    """Reads the present rows of topics as one batch."""

    def __init__(self, cursor: Cursor, selection: Selection, detailed: bool) -> None:
        self._cursor = cursor
        self._selection = selection
        self._detailed = detailed
        self._left_out = 0
        self._found: list[tuple[bytes, _Present, int, int]] = []

    def batch(
        self, topics: Sequence[str], end: str | None, after: str, rows: int, slice_rows: int, max_bytes: int
    ) -> Batch:
        """Read at most ``rows`` of them and ``max_bytes`` of packets. The replay goes on behind ``end``, if any."""
        size, complete = 0, True
        for part in split(topics, _ROWS):
            present = self._present(part)
            for topic in part:
                packet = self._packet(present.get(topic) or _absent(topic))
                if packet is not None:
                    if self._found and (len(self._found) == rows or size + len(packet[0]) > max_bytes):
                        complete = False
                        break
                    self._found.append(packet)
                    size += len(packet[0])
                after = topic
            if not complete:
                break
        done = complete and end is None
        if complete and end is not None:
            after = end
        if not self._found:
            return Batch((), after, done, self._left_out)
        found = self._slice()
        version = self._selection.protocol_version
        slices = divide(found, slice_rows, version) if found.count > slice_rows else [found]
        return Batch(slices, after, done, self._left_out)

    def _present(self, topics: Sequence[str]) -> dict[str, _Present]:
        places = ", ".join("?" * len(topics))
        self._cursor.execute(f"SELECT {_COLUMNS} FROM retained WHERE topic IN ({places})", list(topics))  # noqa: S608
        return {row.topic: row for row in map(_Present._make, self._cursor.fetchall())}

    def _packet(self, row: _Present) -> tuple[bytes, _Present, int, int] | None:
        """Return packet, row, QoS and expiry (0: never) for the subscriber; None if it gets nothing of this topic."""
        selection = self._selection
        if not _is_visible(row, selection):
            return None
        version = selection.protocol_version
        if _is_over(row, selection):
            return empty_packet(row.topic, version), row, CLEAR_QOS, 0
        topic, payload = row.topic.encode(), bytes(row.payload)
        if version == 5:
            packet = bytes(row.prefix5) + topic + bytes(row.properties5) + payload
            if selection.facts:
                packet = with_facts(packet, selection.facts, [(row.stored_at, row.revision, row.client_id)])
        else:
            packet = bytes(row.prefix3) + topic + payload
        if selection.max_packet_size is not None and len(packet) > selection.max_packet_size:
            self._left_out += 1
            return None
        return packet, row, row.qos, row.expires_at or 0

    def _slice(self) -> Slice:
        found = self._found
        expiries = tuple(map(itemgetter(3), found))
        soonest = min(filter(None, expiries), default=0)
        details = self._detailed or bool(soonest)
        return Slice(
            found[-1][1].topic,
            len(found),
            b"".join(map(itemgetter(0), found)),
            bytes(map(itemgetter(2), found)) if details else b"",
            expiries if details else (),
            soonest,
            publishers=[self._publisher(row) for _, row, _, _ in found] if self._selection.publishers else (),
        )

    def _publisher(self, row: _Present) -> Publisher | None:
        return None if _is_over(row, self._selection) else (row.username, row.client_id)


def _is_over(row: _Present, selection: Selection) -> bool:
    """Tell whether nothing is retained any more: the subscriber gets an empty message."""
    return bool(row.tombstone) or (row.expires_at is not None and row.expires_at <= selection.now)


def _is_visible(row: _Present, selection: Selection) -> bool:
    """Tell whether a replay reads the row: see :class:`Selection`."""
    if selection.except_client is not None and row.client_id == selection.except_client:
        return False
    if row.revision & 255 != selection.node:
        return True
    return row.revision <= selection.not_after and not _is_queued(row, selection.queued)


def _is_queued(row: _Present, queued: QueuedRows | None) -> bool:
    # A clear is queued like a message, with the QoS that it was published with, which a tombstone does not tell.
    if queued is None or row.tombstone:
        return False
    return queued.above < row.revision <= queued.until and row.qos >= queued.least_qos


def _absent(topic: str) -> _Present:
    """Return the row of a topic whose tombstone is purged."""
    return _Present(topic, 0, 0, 0, 0, None, 1, None, None, b"", b"", b"", b"")


def count_expired(cursor: Cursor, since: int, now: int, most: int) -> int:
    """Return how many messages expired between two times (milliseconds) and wait for the sweep; at most ``most``."""
    cursor.execute(_COUNT_EXPIRED, (since, now, most))
    ((count,),) = cursor.fetchall()
    return int(count)


def pinned_turn(sources: Iterable[SinceSource]) -> int | None:
    """Return the lowest turn that a source in use needs, None if there is none."""
    return min((source.turn for source in sources), default=None)
