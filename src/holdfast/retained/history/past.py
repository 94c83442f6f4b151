"""The retained messages of a time as a replay reads them: like those of the store, under other topics.

How it works. A replay of ``$history/at/TIME/FILTER`` is one like any other (:mod:`holdfast.retained.replay.replay`).
Only its source is another one. The topics of its messages are ``$history/at/TIME/TOPIC``: one prefix before all, so
their order is that of the history, and the cursor of the replay stands for the last topic. Each read is bounded like
a page of the operators' API, and runs in the thread of long reads, so that nobody waits for it.

A moment that pruning has passed meanwhile ends the replay, and the marker says so: a client that comes back again and
again would not find it either.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.extensions.past import PastFilter
from holdfast.retained.history.entries import HistoryEvent, retained_by
from holdfast.retained.history.history import MomentPage, RetainedHistory
from holdfast.retained.history.moments import HistoryUnavailable, Moment
from holdfast.retained.store.facts import with_facts
from holdfast.retained.store.interfaces import IReplaySource, IRetainedStore
from holdfast.retained.store.slices import divide
from holdfast.retained.store.values import Batch, Selection, Slice
from holdfast.storage.driver import Cursor
from holdfast.tickets import CommitTicket
from holdfast.topics import EVERY_TOPIC
from holdfast.wire import NO_PROPERTIES, encode
from holdfast.wire.packets import Publish

#: The topics that one read visits.
_TOPICS = 200
_LONGEST_TOPIC = 65_535


class PastMessages:
    """Finds the sources of replays of the past."""

    def __init__(self, history: RetainedHistory, store: IRetainedStore) -> None:
        self._history = history
        self._store = store

    def check(self, at: int) -> Deferred[Moment]:
        """Find a moment (milliseconds since the epoch). Fails with :class:`HistoryUnavailable`."""
        return maybeDeferred(self._history.moment, at, apart=True)

    def source(self, wanted: PastFilter, lost: Callable[[], None]) -> PastSource:
        """Return the source of a replay. ``lost`` is called if the history does not have the moment any more."""
        return PastSource(self, self._history, self._store, wanted, lost)


@implementer(IReplaySource)
class PastSource:
    """The source of one replay of the past."""

    shared = False
    reads_ahead = False

    def __init__(
        self,
        past: PastMessages,
        history: RetainedHistory,
        store: IRetainedStore,
        wanted: PastFilter,
        lost: Callable[[], None],
    ) -> None:
        self.node: int = store.node
        self._past = past
        self._history = history
        self._store = store
        self._wanted = wanted
        self._lost = lost
        self._moment: Moment | None = None

    def next_revision(self) -> int:
        """Return a revision of the store."""
        return self._store.next_revision()

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        """Return the ticket of the store: the moment may have been a moment ago."""
        return self._store.flushed(self._wanted.topic_filter)

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read a batch, in another thread."""
        wanted = self._wanted
        passed = after.removeprefix(wanted.prefix)

        def work(cursor: Cursor, moment: Moment) -> Batch:
            page = self._history.page_of(cursor, wanted.topic_filter, moment, passed, min(rows, _TOPICS), max_bytes)
            return _batch(page, wanted.prefix, selection, slice_rows, detailed)

        def found(moment: Moment) -> Deferred[Batch]:
            self._moment = moment
            return self._history.read_apart(lambda cursor: work(cursor, moment))

        def failed(failure: Failure) -> Batch:
            failure.trap(HistoryUnavailable)
            self._lost()
            return Batch((), after, True)

        moment = succeed(self._moment) if self._moment is not None else self._past.check(wanted.at)
        return moment.addCallback(found).addErrback(failed)


def _batch(page: MomentPage, prefix: str, selection: Selection, slice_rows: int, detailed: bool) -> Batch:
    packets: list[bytes] = []
    kept: list[HistoryEvent] = []
    left_out = 0
    most = selection.max_packet_size
    for event in page.messages:
        if selection.except_client is not None and event.client_id == selection.except_client:
            continue
        topic = prefix + event.topic
        if len(topic.encode()) > _LONGEST_TOPIC:
            left_out += 1
            continue
        packet = _packet(topic, event, selection)
        if most is not None and len(packet) > most:
            left_out += 1
            continue
        packets.append(packet)
        kept.append(event)
    after = prefix + page.after
    if not kept:
        return Batch((), after, page.done, left_out)
    qos, expires_at = (bytes([event.qos for event in kept]), (0,) * len(kept)) if detailed else (b"", ())
    found = Slice(prefix + kept[-1].topic, len(kept), b"".join(packets), qos, expires_at)
    slices = divide(found, slice_rows, selection.protocol_version) if len(kept) > slice_rows else [found]
    return Batch(slices, after, page.done, left_out)


def _packet(topic: str, event: HistoryEvent, selection: Selection) -> bytes:
    """Return the packet of a message. It tells no expiry: it was not over then."""
    version = selection.protocol_version
    properties = event.properties if version == 5 else NO_PROPERTIES
    packet = encode(Publish(topic, event.payload, retain=True, properties=properties), version)
    if selection.facts:
        told = (retained_by(event).stored_at, event.revision, event.client_id)
        packet = with_facts(packet, selection.facts, [told])
    return packet
