"""The past as a replay reads it: like the messages of the store, under other topics.

How it works. A replay of the past is one like any other (:mod:`holdfast.retained.replay.replay`). Only its source is
another one. The topics of its messages have one prefix, such as ``$history/at/-1h/``, and its cursor is one of
:mod:`.pages`. Each read is bounded, and runs in the thread of long reads in the turn of its Client, so that nobody
waits for it.

If pruning has passed the time meanwhile, the replay ends, and the marker says so: a Client that comes back again and
again would not find it either.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.extensions.past import PastFilter
from holdfast.retained.history.entries import HistoryEvent
from holdfast.retained.history.moments import HistoryUnavailable
from holdfast.retained.past.fair_reads import FairReads
from holdfast.retained.past.pages import IPages, Page, PastMessage
from holdfast.retained.store.facts import with_facts
from holdfast.retained.store.interfaces import IReplaySource, IRetainedStore
from holdfast.retained.store.slices import divide
from holdfast.retained.store.values import Batch, Publisher, Selection, Slice
from holdfast.storage.driver import Cursor
from holdfast.tickets import CommitTicket
from holdfast.topics import EVERY_TOPIC
from holdfast.wire import NO_PROPERTIES, encode
from holdfast.wire.packets import Publish

_LONGEST_TOPIC = 65_535


@implementer(IReplaySource)
class PastSource:
    """The source of one replay of the past."""

    shared = False
    reads_ahead = False
    surveyed = False
    tells_clears = False

    def __init__(
        self,
        reads: FairReads,
        client_id: str,
        store: IRetainedStore,
        pages: IPages,
        wanted: PastFilter,
        lost: Callable[[], None],
        lacks_topics: Callable[[], None],
    ) -> None:
        self.node: int = store.node
        self._reads = reads
        self._client_id = client_id
        self._store = store
        self._pages = pages
        self._wanted = wanted
        self._lost = lost
        self._lacks_topics = lacks_topics

    def next_revision(self) -> int:
        """Return a revision of the store."""
        return self._store.next_revision()

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        """Return the ticket of the store: the messages of the time may still wait for their commit."""
        return self._store.flushed(self._wanted.topic_filter)

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read a batch, in another thread."""
        wanted = self._wanted

        def work(cursor: Cursor) -> tuple[Batch, bool]:
            page = self._pages.read(cursor, after, rows, max_bytes)
            return _batch(page, wanted.prefix, selection, slice_rows, detailed), page.lacks_topics

        def found(answer: tuple[Batch, bool]) -> Batch:
            batch, lacks_topics = answer
            if lacks_topics:
                self._lacks_topics()
            return batch

        def failed(failure: Failure) -> Batch:
            failure.trap(HistoryUnavailable)
            self._lost()
            return Batch((), after, True)

        key = wanted.prefix, wanted.topic_filter
        return self._reads.read(self._client_id, key, work).addCallbacks(found, failed)


def _batch(page: Page, prefix: str, selection: Selection, slice_rows: int, detailed: bool) -> Batch:
    packets: list[bytes] = []
    kept: list[PastMessage] = []
    left_out = behind = 0  # messages that are too long: before the last one that is kept, and behind it
    most = selection.max_packet_size
    for message in page.messages:
        if selection.except_client is not None and message.event.client_id == selection.except_client:
            continue
        topic = prefix + message.event.topic
        if len(topic.encode()) > _LONGEST_TOPIC:
            behind += 1
            continue
        packet = _packet(topic, message, selection)
        if most is not None and len(packet) > most:
            behind += 1
            continue
        left_out += behind
        behind = 0
        packets.append(packet)
        kept.append(message)
    if not kept:
        return Batch((), page.after, page.done, behind)
    qos, expires_at = (bytes([message.qos for message in kept]), (0,) * len(kept)) if detailed else (b"", ())
    cursors = [message.after for message in kept]
    publishers = [_publisher(message.event) for message in kept] if selection.publishers else ()
    found = Slice(
        cursors[-1], len(kept), b"".join(packets), qos, expires_at,
        left_out=left_out, publishers=publishers, cursors=cursors,
    )  # fmt: skip
    slices = divide(found, slice_rows, selection.protocol_version) if len(kept) > slice_rows else [found]
    return Batch(slices, page.after, page.done, behind)


def _publisher(event: HistoryEvent) -> Publisher | None:
    return (event.username, event.client_id) if event.payload else None


def _packet(topic: str, message: PastMessage, selection: Selection) -> bytes:
    """Return the packet of a message. It tells no expiry: it was not over then."""
    version, event = selection.protocol_version, message.event
    properties = event.properties if version == 5 else NO_PROPERTIES
    packet = encode(Publish(topic, event.payload, retain=True, properties=properties), version)
    if selection.facts:
        told = (message.at, event.revision, event.client_id)
        packet = with_facts(packet, selection.facts, [told])
    return packet
