"""The past of the retained messages as Sessions read it: the sources of replays below ``$history``."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.changes.entries import HistoryEvent, retained_by
from holdfast.changes.history import RetainedHistory
from holdfast.changes.moments import (
    HistoryUnavailable,
    Moment,
    Span,
    check_moment,
    check_recorded,
    check_span,
    find_moment,
    find_span,
    page_of_events,
)
from holdfast.core.extensions import PastFilter
from holdfast.core.tickets import CommitTicket
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.store.interfaces import IReplaySource, IRetainedStore
from holdfast.retained.store.rows import with_facts
from holdfast.retained.store.slices import divide
from holdfast.retained.store.values import Batch, Publisher, Selection, Slice
from holdfast.scheduling.fair_line import FairLine, Places
from holdfast.storage.driver import Cursor
from holdfast.wire import NO_PROPERTIES, encode
from holdfast.wire.packets import Publish

# The past of the retained messages as Sessions see it: what can be asked for, and the sources of replays.


class PastMessages:
    """The past that a history has: where replays read it, and whether it has what a Client asks for."""

    def __init__(self, history: RetainedHistory, store: IRetainedStore) -> None:
        self._history = history
        self._store = store
        self._reads = FairReads(history.read_apart)
        #: by Client and Topic Filter: those who wait for a look into the history
        self._looks: dict[tuple[str, str], list[Deferred[None]]] = {}

    def check(self, client_id: str, wanted: PastFilter) -> Deferred[None]:
        """Look whether the history has what a Client asks for. Fails with :class:`HistoryUnavailable`.

        One look answers all who ask the same before it ends: a Client may name a Topic Filter twice, or come back.
        The messages that wait for their write interval are given to the writer before the look. The history has the
        order of the writes: behind a change that comes during the look, they would be later than the time "-0s".
        """
        try:
            self._history.check_kept()
        except HistoryUnavailable as refusal:  # a broker without a history reads nothing for it
            return fail(refusal)
        self._store.flushed(wanted.topic_filter)
        key = client_id, wanted.prefix + wanted.topic_filter
        answer: Deferred[None] = Deferred()
        waiting = self._looks.setdefault(key, [])
        waiting.append(answer)
        if len(waiting) == 1:
            pages = pages_of(self._history, wanted)
            self._reads.read(client_id, ("look", key), pages.find).addBoth(self._looked, key)
        return answer

    def source(
        self, client_id: str, wanted: PastFilter, lost: Callable[[], None], lacks_topics: Callable[[], None]
    ) -> PastSource:
        """Return the source of a replay.

        ``lost`` is called if the history does not have the time any more, ``lacks_topics`` if it does not know some of
        the topics then.
        """
        pages = pages_of(self._history, wanted)
        return PastSource(self._reads, client_id, self._store, pages, wanted, lost, lacks_topics)

    def _looked(self, outcome: Failure | None, key: tuple[str, str]) -> None:
        for answer in self._looks.pop(key):
            answer.callback(outcome)  # a Failure begins the errbacks


# Pages of the past: what one read of a replay finds.
#
# Each message of a page has a cursor behind it: a text that rises from one message to the next, and behind which a
# later read begins. A replay stores it like the topics of other replays. For messages of a time it is the topic.
# Changes come in the order of their positions in the history, so their cursor is a position. It also has the position
# at which the replay ends, as found when it began: a replay that continues after ``kill -9`` ends there too. An
# example, behind position 12 and up to 300, in hexadecimal digits::
#
#     000000000000000c/000000000000012c
#
# Where the replay leaves out some topics, a third number says which (:class:`~holdfast.changes.moments.Span`).


#: The topics that one read of a time visits, and the entries that one read of changes visits.
_TOPICS = 200
_ENTRIES = 500
#: Each change gets the QoS of the Subscription. If their QoS differed, changes with a lower one would overtake others,
#: since a delivery with QoS 2 waits for a commit.
_QOS_OF_CHANGES = 2


@frozen
class PastMessage:
    """A message of the past, and the cursor behind it (``after``).

    ``at`` is when it was stored, or when the change was made, in milliseconds since the epoch.
    """

    after: str
    event: HistoryEvent
    qos: int
    at: int


@frozen
class Page:
    """Messages in order. The next page begins after the cursor ``after``; ``done`` says that this page is the last.

    ``lacks_topics`` says that the history does not know some of the topics then.
    """

    messages: Sequence[PastMessage]
    after: str
    done: bool
    lacks_topics: bool = False


class IPages(Protocol):
    """The pages of one Topic Filter of the past. All methods run in the thread of long reads.

    They raise :class:`holdfast.changes.moments.HistoryUnavailable`.
    """

    def find(self, cursor: Cursor) -> None:
        """Look whether the history has what is asked for."""

    def read(self, cursor: Cursor, after: str, messages: int, most_bytes: int) -> Page:
        """Read the next page behind a cursor, "" for the beginning."""


def pages_of(history: RetainedHistory, wanted: PastFilter) -> IPages:
    """Return the pages of a Topic Filter."""
    if wanted.since is None:
        return MomentPages(history, wanted)
    return ChangePages(history, wanted, wanted.since)


class MomentPages:
    """The retained messages of a time, in topic order. A page is bounded like one of the operators' API."""

    def __init__(self, history: RetainedHistory, wanted: PastFilter) -> None:
        self._history = history
        self._wanted = wanted
        self._moment: Moment | None = None

    def find(self, cursor: Cursor) -> None:
        """Find the moment."""
        self._found(cursor)

    def read(self, cursor: Cursor, after: str, messages: int, most_bytes: int) -> Page:
        """Read the next page."""
        wanted = self._wanted
        passed = after.removeprefix(wanted.prefix)
        page = self._history.page_of(
            cursor, wanted.topic_filter, self._found(cursor), passed, min(messages, _TOPICS), most_bytes
        )
        found = [
            PastMessage(wanted.prefix + event.topic, event, event.qos, retained_by(event).stored_at)
            for event in page.messages
        ]
        return Page(found, wanted.prefix + page.after, page.done, bool(page.left_out))

    def _found(self, cursor: Cursor) -> Moment:
        self._history.check_kept()
        if self._moment is None:
            moment = find_moment(cursor, self._wanted.at, self._history.now())
            check_recorded(check_moment(cursor, moment), moment.at, self._wanted.topic_filter)
            self._moment = moment
        return self._moment


class ChangePages:
    """The changes between two times, in the order of the history: sets, clears and expiries."""

    def __init__(self, history: RetainedHistory, wanted: PastFilter, since: int) -> None:
        self._history = history
        self._wanted = wanted
        self._since = since

    def find(self, cursor: Cursor) -> None:
        """Find the first and the last change."""
        self._span(cursor, "")

    def read(self, cursor: Cursor, after: str, messages: int, most_bytes: int) -> Page:
        """Read the next page."""
        span = self._span(cursor, after)
        page = page_of_events(cursor, self._wanted.topic_filter, span.after, span.upto, _ENTRIES, messages, most_bytes)
        period = check_span(cursor, span)
        shows = span.shows(period)
        found = [
            PastMessage(_cursor(event.seq, span), event, _QOS_OF_CHANGES, event.changed_at)
            for event in page.events
            if shows(event.topic)
        ]
        return Page(found, _cursor(page.cursor, span), page.done, span.lacks_topics(period, self._wanted.topic_filter))

    def _span(self, cursor: Cursor, after: str) -> Span:
        self._history.check_kept()
        if after:
            return Span(*(int(part, 16) for part in after.split("/")))
        return find_span(cursor, self._since, self._wanted.at, self._history.now(), self._wanted.topic_filter)


def _cursor(passed: int, span: Span) -> str:
    return f"{passed:016x}/{span.upto:016x}" + (f"/{span.left_out:x}" if span.left_out else "")


# The past as a replay reads it: like the messages of the store, under other topics.
#
# How it works. A replay of the past is one like any other (:mod:`holdfast.replay.replay`). Only its source is
# another one. The topics of its messages have one prefix, such as ``$history/at/-1h/``, and its cursor is one of
# a page. Each read is bounded, and runs in the thread of long reads in the turn of its Client, so that nobody
# waits for it.
#
# If pruning has passed the time meanwhile, the replay ends, and the marker says so: a Client that comes back again and
# again would not find it either.


_LONGEST_TOPIC = 65_535


@implementer(IReplaySource)
class PastSource:
    """The source of one replay of the past."""

    shared = False
    reads_ahead = reads_slices = False
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


# The reads of all replays of the past: one at a time, and the Clients in turn.
#
# How it works. The thread of long reads also works for operators, in the order of the calls. If each replay called it
# by itself, a Client with many replays would get most of its time, and an operator would wait behind all of them. So at
# most one read of a replay is handed to the thread, and the others wait here, by Client::
#
#     c1: a b c d    c2: x        the thread reads a, then x, then b, and an operator's count between any two of them
#
# A read has a key. A newer read with the same key cancels one that still waits: its replay has begun again, or has
# ended, and nobody wants the answer. So a Client that comes back again and again leaves no more reads than it has
# replays.


T = TypeVar("T")


class LongReads(Protocol):
    """Runs work in the thread of long reads."""

    def __call__(self, work: Callable[[Cursor], T], /) -> Deferred[T]:
        """Run it with a reader's cursor."""


class FairReads:
    """Hands reads to the thread of long reads, one at a time; the Clients take turns.

    A read that waits is replaced by a later one of its Client with the same key.
    """

    def __init__(self, read: LongReads) -> None:
        self._read = read
        self._places = Places(1, 1, FairLine())
        #: by Client Identifier and key: the places that reads wait for
        self._waiting: dict[tuple[str, Hashable], Deferred[Callable[[], None]]] = {}

    def read(self, client_id: str, key: Hashable, work: Callable[[Cursor], T]) -> Deferred[T]:
        """Run the work when it is the turn of the Client. It fails with :class:`CancelledError` if it is replaced."""
        answer: Deferred[T] = Deferred()
        replaced = self._waiting.pop((client_id, key), None)
        place = self._places.take(client_id)
        if not place.called:
            self._waiting[client_id, key] = place
        if replaced is not None:
            replaced.cancel()

        def begin(leave: Callable[[], None]) -> None:
            if self._waiting.get((client_id, key)) is place:
                del self._waiting[client_id, key]
            self._read(work).addBoth(ended, leave)

        def ended(outcome: Any, leave: Callable[[], None]) -> None:
            answer.callback(outcome)  # a Failure begins the errbacks
            leave()

        place.addCallbacks(begin, answer.errback)
        return answer

    def __len__(self) -> int:
        return len(self._places)
