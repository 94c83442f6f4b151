"""The messages that wait for one Client, because it is away or because its window is full.

How it works. The messages stand in a deque and leave at its head. Some are taken out of the middle: those of a shared
subscription that another member gets, those whose commit failed, and retained messages that an operator clears. They
are only marked, since searching for each would cost as much as the queue is long, and they are dropped when they come
to the head, or when an eighth of all places are such ones. For example:

    take_retained("a")    a/1, [a], b, [a], c: the two messages are returned, and the length is 3
    pop()                 a/1; the place behind it is dropped with it, so the first message is b

A fast publisher's messages come in runs (:mod:`holdfast.wire.runs`), and a run waits as one entry, for a Session whose
messages in flight are in blocks. It leaves as blocks, as far as the window has room. A caller that needs its
messages one by one asks for the first: then the run at the head becomes single messages.

The messages of shared subscriptions are listed apart. So are those with RETAIN 1, by topic, from the first search for
one until the queue is empty: a large clear by an operator would take hours if it searched for each of its topics.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from attrs import define

from holdfast.core.messages import HELD_ENTRY, ApplicationMessage
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.accounts import Account
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.counters import Counters, Holdings
from holdfast.sessions.delivery.deliveries import Deliveries, Delivery
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.wire import KeptRun


@define(eq=False)
class Queued:
    """One message and the form in which to send it. ``delivery`` is None if nothing is noted about it.

    ``waits`` tells that it has not been taken out of the queue, ``conflated`` that a newer message of its topic may
    take its place. ``number`` counts the messages that have entered the queue.
    """

    outgoing: OutgoingMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    delivery: Delivery | None
    waits: bool = True
    conflated: bool = False
    number: int = 0


class QueuedRun:
    """Consecutive messages of one publisher with QoS 1 and RETAIN 0, of which nothing is stored.

    They never expire, and no newer message takes their place.
    """

    __slots__ = ("_client_id", "_username", "kept", "number")

    waits = True

    def __init__(self, kept: KeptRun, client_id: str, username: str | None) -> None:
        self.kept = kept
        self._client_id = client_id
        self._username = username
        self.number = 0  #: of the first message

    @property
    def size(self) -> int:
        """The bytes that the messages occupy while they wait."""
        return self.kept.content + HELD_ENTRY * self.kept.count

    def messages(self) -> list[Queued]:
        """Return the messages one by one."""
        return [
            Queued(
                OutgoingMessage(ApplicationMessage(topic, payload, 1, False, self._client_id, self._username)),
                1, False, (), None, number=number,
            )
            for number, (topic, payload) in enumerate(self.kept.messages(), self.number)
        ]  # fmt: skip


#: shared by all queues that never had a message: a deque takes 0.6 KiB
_NO_MESSAGES: deque[Queued | QueuedRun] = deque()


class MessageQueue:
    """First in, first out. ``bytes`` is its present size; ``enqueued`` and ``dequeued`` count all messages so far.

    ``at_most_once`` is how many of the messages in it have QoS 0. The messages count in the ``holdings`` of the broker,
    until :meth:`count_no_longer`.
    """

    __slots__ = (
        "_empty",
        "_holdings",
        "_messages",
        "_retained",
        "_shared",
        "at_most_once",
        "bytes",
        "dequeued",
        "enqueued",
    )

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._messages = _NO_MESSAGES  # the first one waits, those behind it may not wait any more
        self._shared: OrderedDict[Queued, None] | None = None  # made with the first of them
        #: the messages with RETAIN 1, by topic, in their order; None if nobody has asked for them yet
        self._retained: dict[str, dict[Queued, None]] | None = None
        self._empty = 0  # places of messages that wait no more
        self.at_most_once = 0
        self.bytes = 0
        self.enqueued = 0
        self.dequeued = 0

    def __len__(self) -> int:
        return self.enqueued - self.dequeued

    def __bool__(self) -> bool:
        return bool(self._messages)

    def __iter__(self) -> Iterator[Queued]:
        """Iterate over the messages that wait, but those in runs."""
        return (queued for queued in self._messages if type(queued) is Queued and queued.waits)

    def listed(self, skipped: int) -> Iterator[Queued]:
        """Iterate over all messages that wait, behind the first so many. Those in runs stay there."""
        for waiting in self._messages:
            if type(waiting) is QueuedRun:
                count = waiting.kept.count
                if skipped < count:
                    yield from islice(waiting.messages(), skipped, None)
                skipped = max(0, skipped - count)
            elif type(waiting) is Queued and waiting.waits:
                if not skipped:
                    yield waiting
                skipped = max(0, skipped - 1)

    @property
    def first(self) -> Queued:
        """The message to send next."""
        first = self._messages[0]
        if type(first) is QueuedRun:
            self._messages.popleft()
            self._messages.extendleft(reversed(first.messages()))
            first = self._messages[0]
        assert type(first) is Queued
        return first

    @property
    def last(self) -> Queued:
        """The message that was added last; it may have been taken out since."""
        last = self._messages[-1]
        if type(last) is QueuedRun:
            self._messages.pop()
            self._messages.extend(last.messages())
            last = self._messages[-1]
        assert type(last) is Queued
        return last

    @property
    def run(self) -> QueuedRun | None:
        """The run at the head, None if the first message came by itself."""
        first = self._messages[0]
        return first if type(first) is QueuedRun else None

    def have_left(self, enqueued: int) -> bool:
        """Tell whether the first ``enqueued`` messages of this queue have left it.

        ``dequeued`` does not tell that: it also counts later messages, which were taken out of the middle.
        """
        return not self._messages or self._messages[0].number > enqueued

    def append_run(self, run: QueuedRun) -> None:
        """Add a run at the end."""
        if self._messages is _NO_MESSAGES:
            self._messages = deque()
        self._messages.append(run)
        run.number = self.enqueued + 1
        self.enqueued += run.kept.count
        self._weigh(run.kept.count, run.size)

    def drop_of_run(self, run: QueuedRun, count: int) -> None:
        """Remove the first messages of the run at the head."""
        size = run.size
        run.kept.drop(count)
        run.number += count
        self.dequeued += count
        self._weigh(-count, run.size - size)
        if not run.kept.count:
            self._messages.popleft()
            self._tidy()

    def _weigh(self, messages: int, size: int) -> None:
        """Count so many more messages and bytes; fewer, if negative."""
        self.bytes += size
        self._holdings.queued_messages += messages
        self._holdings.queued_bytes += size

    def append(self, queued: Queued) -> None:
        """Add a message at the end."""
        if self._messages is _NO_MESSAGES:
            self._messages = deque()
        self._messages.append(queued)
        self.enqueued += 1
        queued.number = self.enqueued
        self._weigh(1, queued.outgoing.size())
        self.at_most_once += not queued.qos
        if queued.delivery is not None and queued.delivery.shared_filter is not None:
            if self._shared is None:
                self._shared = OrderedDict()
            self._shared[queued] = None
        if self._retained is not None:
            self._index(queued, self._retained)

    def renew(self, queued: Queued, newer: Queued) -> None:
        """Put a newer message of the same topic in the place of one that waits."""
        self._weigh(0, newer.outgoing.size() - queued.outgoing.size())
        self.at_most_once += (not newer.qos) - (not queued.qos)
        queued.outgoing, queued.qos, queued.retain = newer.outgoing, newer.qos, newer.retain
        queued.identifiers, queued.delivery = newer.identifiers, newer.delivery

    def pop(self) -> Queued:
        """Take the first message."""
        queued = self.first
        self.remove(queued)
        return queued

    def remove(self, queued: Queued) -> bool:
        """Remove this message. Return False if it is not in the queue any more."""
        if not queued.waits:
            return False
        queued.waits = False
        self._empty += 1
        self.dequeued += 1
        self._weigh(-1, -queued.outgoing.size())
        self.at_most_once -= not queued.qos
        if self._shared:
            self._shared.pop(queued, None)
        if self._retained is not None:
            self._forget(queued, self._retained)
        self._tidy()
        return True

    def _tidy(self) -> None:
        """Drop the places of messages that wait no more, at the head or if they are many."""
        messages = self._messages
        while messages and not messages[0].waits:
            messages.popleft()
            self._empty -= 1
        if 8 * self._empty > len(messages):
            self._messages = deque(queued for queued in messages if queued.waits)
            self._empty = 0
        if not messages:
            self._retained = None
            self._messages = _NO_MESSAGES

    def count_no_longer(self) -> None:
        """Leave the holdings of the broker: the Session has ended, and what is left is being removed."""
        self._holdings.queued_messages -= len(self)
        self._holdings.queued_bytes -= self.bytes
        self._holdings = Holdings()

    def shared(self) -> list[Queued]:
        """Return the messages of shared subscriptions, in their order."""
        return list(self._shared or ())

    def take_retained(self, topic: str, shared_filter: str | None = None) -> list[Queued]:
        """Take out the messages of this topic that were published with RETAIN 1; those of a shared subscription only.

        After the first call, each one takes time for the messages that it returns, not for those in the queue.
        """
        index = self._retained
        if index is None:
            index = self._retained = {}
            for queued in self:
                self._index(queued, index)
        taken = [
            queued
            for queued in index.get(topic, ())
            if shared_filter is None or (queued.delivery is not None and queued.delivery.shared_filter == shared_filter)
        ]
        for queued in taken:
            self.remove(queued)
        return taken

    def exceeds(self, messages: int | None, size: int) -> bool:
        """Tell whether the queue exceeds a number of messages (None: no limit) or a size in bytes."""
        return self.bytes > size or (messages is not None and len(self) > messages)

    @staticmethod
    def _index(queued: Queued, index: dict[str, dict[Queued, None]]) -> None:
        message = queued.outgoing.message
        if message.retain:
            index.setdefault(message.topic, {})[queued] = None

    @staticmethod
    def _forget(queued: Queued, index: dict[str, dict[Queued, None]]) -> None:
        topic = queued.outgoing.message.topic
        same = index.get(topic)
        if same is not None and queued in same:
            del same[queued]
            if not same:
                del index[topic]


# The queue of one Session, within its limits: what does not fit is dropped, counted and noted as lost.


#: Messages, and their bytes, that may wait for a connected Client before operators' changes wait for it.
_MOST_AHEAD = 500
_MOST_BYTES_AHEAD = 1 << 20


class IConflation(Protocol):
    """The conflation of the Session's messages (:mod:`.conflation`)."""

    conflated: int

    @property
    def holds(self) -> int:
        """The number of messages that are held."""

    def held(self) -> Iterator[OutgoingMessage]:
        """Yield the messages that are held."""

    def takes(self, outgoing: OutgoingMessage, qos: int, retain: bool, options: DeliveryOptions) -> bool:
        """Send, hold or queue a message if its topic is conflated. Return False if it is to be delivered as usual."""

    def left(self, queued: Queued) -> None:
        """Note that a message has left the queue."""

    def restored(self, queued: Queued) -> None:
        """Note a message in the queue that an earlier process has stored. They come in their order."""

    def hurry(self) -> int:
        """Let all messages leave that are held now, some each turn. Return a number for :meth:`holds_until`."""

    def holds_until(self, number: int) -> bool:
        """Tell whether a message is held that was held at this call of :meth:`hurry`."""

    def stop(self) -> None:
        """Release nothing any more: the Session has ended."""

    def discard(self, most: int) -> None:
        """Discard so many held messages. The Session has ended."""


def _nothing() -> None:
    """Note no loss: the Session has ended."""


class SessionQueue(MessageQueue):
    """The messages that wait for one Client. ``on_lost`` is called for each one that the Client will not get."""

    __slots__ = ("_account", "_counters", "_deliveries", "_on_lost", "conflation", "held_bytes", "limits", "work")

    def __init__(
        self, limits: Limits, deliveries: Deliveries, counters: Counters, on_lost: Callable[[], None], work: LongWork
    ) -> None:
        super().__init__(counters.holdings)
        self.limits = limits
        self._deliveries = deliveries
        self._counters = counters
        self._on_lost = on_lost
        self._account: Account | None = None
        #: made when the Client or its zone first asks for it
        self.conflation: IConflation | None = None
        self.work = work  #: shares the turns of the reactor among conflated Sessions
        self.held_bytes = 0  #: of what conflation keeps, which counts in the account too

    def charge_to(self, account: Account | None) -> None:
        """Count the bytes of this queue in an account from now on; None: in no account any more."""
        if self._account is not None:
            self._account.bytes -= self.bytes + self.held_bytes
        self._account = account
        if account is not None:
            account.bytes += self.bytes + self.held_bytes

    def charge(self, size: int) -> None:
        """Count so many more bytes that conflation keeps; fewer, if negative."""
        self.held_bytes += size
        self._holdings.queued_bytes += size
        if self._account is not None:
            self._account.bytes += size

    def count_no_longer(self) -> None:
        """Leave the holdings of the broker: the Session has ended, and what is left is being removed."""
        self._holdings.queued_bytes -= self.held_bytes
        super().count_no_longer()

    def _weigh(self, messages: int, size: int) -> None:
        super()._weigh(messages, size)
        if self._account is not None:
            self._account.bytes += size

    def remove(self, queued: Queued) -> bool:
        """Remove this message. Return False if it is not in the queue any more."""
        removed = super().remove(queued)
        if queued.conflated and removed and self.conflation is not None:
            self.conflation.left(queued)
        return removed

    def enter(self, queued: Queued, link: Connection | None) -> bool:
        """Add a message, and drop what exceeds the limits. Return whether it is in the queue.

        ``link`` is the connection of the Client, None if it is away.
        """
        if link is None and self._has_no_place(queued):
            self._counters.messages_dropped_queue_full += 1
            self._on_lost()
            if queued.delivery is not None:
                self._deliveries.forget(queued.delivery)
            return False
        self.append(queued)
        if queued.delivery is not None:
            if not queued.delivery.noted:
                self._deliveries.note(queued.delivery, 0)
            self._watch(queued)
        self._keep_limits(link)
        return queued.waits

    def replace(self, waiting: Queued, newer: Queued, link: Connection | None) -> bool:
        """Put a newer message in the place of a waiting one. Return False, without any effect, if that has left."""
        if not waiting.waits:
            return False
        self.begin(newer)
        older, grown = waiting.delivery, newer.outgoing.size() > waiting.outgoing.size()
        self.renew(waiting, newer)
        if newer.delivery is not None:
            self._watch(waiting)
        if older is not None:
            self._deliveries.forget(older)
        if grown:
            self._keep_limits(link)
        return True

    def begin(self, queued: Queued) -> None:
        """Begin and store the delivery of a message that waits, where the Session is stored."""
        if self._deliveries.are_stored and queued.delivery is None:
            queued.delivery = self._deliveries.begin(
                queued.outgoing, queued.qos, queued.retain, queued.identifiers, None
            )
            self._deliveries.note(queued.delivery, 0)

    def _watch(self, queued: Queued) -> None:
        """Drop the message if it cannot be stored."""
        outgoing = queued.outgoing
        if not outgoing.ticket.settled:
            outgoing.ticket.when_settled(lambda failure: self._not_stored(queued, outgoing) if failure else None)

    def _keep_limits(self, link: Connection | None) -> None:
        if link is not None:
            link.queued()
            return
        while self and (self.exceeds(self.limits.max_mqueue_len, self.limits.max_mqueue_bytes) or self.is_too_much(0)):
            # The oldest one: a Client that comes back needs the newest messages most.
            self._counters.messages_dropped_queue_full += 1
            self._on_lost()
            self.discard(self.first)

    def discard(self, queued: Queued) -> bool:
        """Remove a message and its delivery. Return False if it is not in the queue any more."""
        if not self.remove(queued):
            return False
        if queued.delivery is not None:
            self._deliveries.forget(queued.delivery)
        return True

    def drop_retained(self, topic: str, shared_filter: str | None = None) -> None:
        """Drop the retained messages of a topic; with ``shared_filter``, those of this shared subscription."""
        for queued in self.take_retained(topic, shared_filter):
            if queued.delivery is not None:
                self._deliveries.forget(queued.delivery)

    def is_full(self) -> bool:
        """Tell whether no further message fits."""
        most = self.limits.max_mqueue_len
        return self.exceeds(None if most is None else most - 1, self.limits.max_mqueue_bytes - 1) or self.is_too_much(1)

    def is_long(self) -> bool:
        """Tell whether so much waits for a connected Client that operators' changes wait for it."""
        return self.exceeds(_MOST_AHEAD, min(_MOST_BYTES_AHEAD, self.limits.max_mqueue_bytes))

    def close(self) -> None:
        """Let go of the Session, which has ended."""
        self._on_lost = _nothing
        self.conflation = None  # each refers to the other otherwise

    def _has_no_place(self, queued: Queued) -> bool:
        """Tell whether the queue is full, and no older message may be dropped in favour of this one."""
        if queued.outgoing.replaces and not queued.outgoing.message.payload:
            most = self.limits.max_mqueue_len
            size = queued.outgoing.size()
            return self.exceeds(
                None if most is None else most - 1, self.limits.max_mqueue_bytes - size
            ) or self.is_too_much(size)
        return self.limits.mqueue_full is not WhenFull.DROP_OLDEST and self.is_full()

    def is_too_much(self, more: int) -> bool:
        """Tell whether all Sessions of the payer together hold too many bytes, with so many more."""
        most = self.limits.max_waiting_bytes
        return most is not None and self._account is not None and self._account.bytes + more > most

    def _not_stored(self, queued: Queued, outgoing: OutgoingMessage) -> None:
        """Drop a message that could not be stored, unless a newer one has its place. Its publisher is told so."""
        if queued.outgoing is outgoing:
            self._on_lost()
            self.discard(queued)
