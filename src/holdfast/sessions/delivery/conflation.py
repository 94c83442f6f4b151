"""Conflation: of messages published with RETAIN 1, a Session gets at most one per topic and interval, the newest last.

How it works. Each topic is in one of three states, or not known here. An example with an interval of 1 s:

    00.0  t = 1   not known: sent. PACED until 01.0
    00.3  t = 2   PACED: held
    00.6  t = 3   takes the place of t = 2, which is counted
    01.0          t = 3 is due and sent. PACED until 02.0
    02.0          nothing is held: the topic is forgotten

A message that is due may find the window full, or its Client slow or away. Then it waits in the Session's queue
(QUEUED). A newer one takes its place there, so the order of the topics does not change and no topic starves. The
interval begins when the message leaves the queue. Messages in flight are never replaced.

Messages of one topic keep their order. A message with RETAIN 0, or one without conflation, lets the held message of its
topic go first, and a queued one can no longer be replaced. A replay asks for all messages that are held at its
beginning and before its marker (:meth:`Conflation.hurry`): they leave first, since they may be older.

Held messages with QoS 1 and 2 are stored like queued ones. A held message whose permission may have changed is asked
about before it is sent. The memory of all this is bounded and charged; above the bound messages leave at once. One
timer serves all topics of a Session, with a heap in which each topic stands once: if it is due later than its place
says, it gets a new place when its turn comes. All Sessions share the turns of the reactor
(:mod:`holdfast.scheduling.long_work`): a flood makes messages for thousands of them due at once.

With the policy "conflate" of ``force_shutdown``, topics of a slow Client are QUEUED without an interval. They are
replaced as soon as half of the limits wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Protocol

from attrs import define
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from holdfast.core.topics import matches
from holdfast.identity.interfaces import IAuthorizer, Principal
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.outbox import LOW_WATER
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.deliveries import Deliveries, Delivery
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.queue import Queued, SessionQueue
from holdfast.sessions.limits import Limits

#: Messages that one Session releases before others have their turn, and topics that are looked at for each of them: a
#: look takes about 2 microseconds.
_AT_ONCE, _LOOKS = 25, 20
#: all Sessions are one owner of work: messages for thousands of clients may be due at one moment
_OWNER = "conflation"
#: seconds between two turns: messages that are due within this time leave together
_TURN = 0.01
#: the bytes that a topic costs beside its name
_TOPIC = 350


@define(eq=False)
class _Topic:
    """One topic: PACED until ``due`` (with or without a ``held`` message), or QUEUED with a ``waiting`` one.

    ``number`` is that of the held message in the order of all that were held. It was allowed to the ``principal`` in
    the ``epoch``. ``is_timed`` tells that the topic stands in the heap.
    """

    name: str
    interval: float
    due: float = 0.0
    is_timed: bool = False
    held: Queued | None = None
    waiting: Queued | None = None
    number: int = 0
    principal: Principal | None = None
    epoch: object = None


class Conflation:
    """The topics of one Session that are conflated. ``conflated`` counts the messages that newer ones have replaced.

    ``on_released`` is called when messages that :meth:`hurry` asked for have left, ``on_error`` after an unexpected
    error in a late call.
    """

    __slots__ = (
        "_authorizer",
        "_clock",
        "_counters",
        "_heap",
        "_held",
        "_hurry",
        "_number",
        "_on_error",
        "_on_released",
        "_session",
        "_stopped",
        "_timer",
        "_timer_at",
        "_topics",
        "_work",
        "conflated",
    )  # fmt: skip

    def __init__(
        self,
        session: IConflated,
        clock: IReactorTime,
        work: LongWork,
        authorizer: IAuthorizer,
        counters: Counters,
        on_released: Callable[[], None],
        on_error: Callable[[Failure], None],
    ) -> None:
        self._session = session
        self._clock = clock
        self._work = work
        self._authorizer = authorizer
        self._counters = counters
        self._on_released = on_released
        self._on_error = on_error
        self._topics: dict[str, _Topic] = {}
        # In the order of their numbers. The first one is often asked for; a dict would search past all that have left.
        self._held: OrderedDict[str, _Topic] = OrderedDict()
        self._heap: list[tuple[float, int, _Topic]] = []
        self._number = 0
        self._hurry = 0  # held messages up to this number leave as soon as possible
        self._timer: IDelayedCall | None = None
        self._timer_at = 0.0
        self._stopped = False
        self.conflated = 0

    @property
    def holds(self) -> int:
        """The number of messages that are held."""
        return len(self._held)

    def held(self) -> Iterator[OutgoingMessage]:
        """Yield the messages that are held."""
        return (topic.held.outgoing for topic in self._held.values() if topic.held is not None)

    def takes(self, outgoing: OutgoingMessage, qos: int, retain: bool, options: DeliveryOptions) -> bool:
        """Send, hold or queue a message if its topic is conflated. Return False if it is to be delivered as usual."""
        message = outgoing.message
        limits = self._session.limits
        if not qos and self._session.link is None and not limits.mqueue_store_qos0:
            return False
        name = message.topic
        topic = self._topics.get(name)
        interval = self._interval(options, name) if message.retain else 0.0
        if not interval and not (message.retain and limits.conflate_slow and self._is_slow()):
            if topic is not None:
                self._let_go(topic)
            return False
        if topic is None:
            cost = _TOPIC + 2 * len(name)
            if not self._has_room(cost):
                return False
            topic = self._topics[name] = _Topic(name, interval)
            self._session.queue.charge(cost)
        topic.interval = interval
        queued = Queued(outgoing, qos, retain, options.identifiers, None, conflated=True)
        if topic.waiting is not None:
            self._queue_again(topic, queued)
        elif topic.held is not None or (self._session.link is not None and self._clock.seconds() < topic.due):
            self._hold(topic, queued)
        else:
            self._pass_on(topic, queued)
        return True

    def left(self, queued: Queued) -> None:
        """Note that a message has left the queue."""
        topic = self._topics.get(queued.outgoing.message.topic)
        if topic is not None and topic.waiting is queued:
            topic.waiting = None
            self._pace(topic)

    def restored(self, queued: Queued) -> None:
        """Note a message in the queue that an earlier process has stored. They come in their order."""
        message = queued.outgoing.message
        assert queued.delivery is not None
        if queued.delivery.shared_filter is not None:
            return
        topic = self._topics.get(message.topic)
        if topic is not None and topic.waiting is not None:
            topic.waiting.conflated = False
            topic.waiting = None
        if not message.retain:
            if topic is not None:
                self._forget(topic)
            return
        if topic is None:
            cost = _TOPIC + 2 * len(message.topic)
            if not self._has_room(cost):
                return
            topic = self._topics[message.topic] = _Topic(message.topic, 0.0)
            self._session.queue.charge(cost)
        topic.waiting = queued
        queued.conflated = True

    def hurry(self) -> int:
        """Let all messages leave that are held now, some each turn. Return a number for :meth:`holds_until`."""
        if not self._held:
            return 0
        self._hurry = self._number
        self._set_timer(self._clock.seconds())
        return self._number

    def holds_until(self, number: int) -> bool:
        """Tell whether a message is held that was held at this call of :meth:`hurry`."""
        return bool(self._held) and next(iter(self._held.values())).number <= number

    def stop(self) -> None:
        """Release nothing any more: the Session has ended."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def discard(self, most: int) -> None:
        """Discard so many held messages. The Session has ended."""
        for _ in range(min(most, len(self._held))):
            topic = next(iter(self._held.values()))
            queued = self._unhold(topic)
            if queued.delivery is not None:
                self._session.deliveries.forget(queued.delivery)

    # --- states

    def _interval(self, options: DeliveryOptions, name: str) -> float:
        """Return the interval in seconds, 0 for none: the longer one of the Subscriptions and the zone."""
        limits = self._session.limits
        interval = options.conflate / 1000
        if limits.conflate_interval > interval and matches(limits.conflate_filter, name):
            return limits.conflate_interval
        return interval

    def _pass_on(self, topic: _Topic, queued: Queued, unasked: bool = False) -> None:
        """Send a message, or let the topic be QUEUED."""
        if pass_on(self._session, queued, unasked):
            topic.waiting = queued
        else:
            self._pace(topic)

    def _pace(self, topic: _Topic) -> None:
        """Let the topic be PACED from now on: its message has left."""
        if self._stopped:
            return
        if not topic.interval:
            if not topic.is_timed:
                self._forget(topic)
            return
        topic.due = self._clock.seconds() + topic.interval
        if not topic.is_timed:
            self._time(topic)

    def _time(self, topic: _Topic) -> None:
        topic.is_timed = True
        self._number += 1
        heappush(self._heap, (topic.due, self._number, topic))
        self._set_timer(self._heap[0][0])

    def _forget(self, topic: _Topic) -> None:
        if self._topics.pop(topic.name, None) is not None:
            self._session.queue.charge(-_TOPIC - 2 * len(topic.name))

    def _hold(self, topic: _Topic, queued: Queued) -> None:
        """Hold a message in place of an older one, if there is one."""
        before = topic.held
        size = queued.outgoing.size()
        more = size if before is None else size - before.outgoing.size()
        if more > 0 and not self._has_room(more):
            if before is not None:
                self._drop(self._unhold(topic))
            self._pass_on(topic, queued)
            return
        if queued.qos:
            self._session.queue.begin(queued)
        if before is None:
            self._number += 1
            topic.number = self._number
            self._held[topic.name] = topic
        else:
            self._drop(before)
        self._session.queue.charge(more)
        topic.held = queued
        topic.principal, topic.epoch = self._session.principal, self._authorizer.epoch
        ticket = queued.outgoing.ticket
        if queued.delivery is not None and not ticket.settled:
            ticket.when_settled(lambda failure: self._not_stored(topic, queued) if failure else None)

    def _unhold(self, topic: _Topic) -> Queued:
        queued = topic.held
        assert queued is not None
        topic.held = None
        del self._held[topic.name]
        self._session.queue.charge(-queued.outgoing.size())
        return queued

    def _not_stored(self, topic: _Topic, queued: Queued) -> None:
        """Drop a held message that could not be stored. Its publisher is told so."""
        if topic.held is queued:
            self._session.note_loss()
            if queued.delivery is not None:
                self._session.deliveries.forget(queued.delivery)
            self._unhold(topic)

    def _release(self, topic: _Topic) -> None:
        queued = self._unhold(topic)
        changed = topic.epoch != self._authorizer.epoch or topic.principal != self._session.principal
        self._pass_on(topic, queued, unasked=changed)

    def _queue_again(self, topic: _Topic, queued: Queued) -> None:
        """Put a message in the place of the queued one, or behind it."""
        waiting = topic.waiting
        assert waiting is not None
        session = self._session
        if (topic.interval or self._is_crowded()) and not session.asks_again:
            session.inflight.drop_overtaken(topic.name)
            if session.queue.replace(waiting, queued, session.link):
                self._count()
                return
        topic.waiting = None
        waiting.conflated = False
        self._pass_on(topic, queued)

    def _let_go(self, topic: _Topic) -> None:
        """Let another message of this topic follow: what is held leaves now, what is queued cannot be replaced."""
        if topic.held is not None:
            self._release(topic)
        waiting = topic.waiting
        if waiting is not None:
            waiting.conflated = False
            topic.waiting = None
            self._pace(topic)

    def _drop(self, queued: Queued) -> None:
        """Drop a message that a newer one replaces."""
        self._count()
        if queued.delivery is not None:
            self._session.deliveries.forget(queued.delivery)

    def _count(self) -> None:
        self.conflated += 1
        self._counters.messages_conflated += 1

    # --- limits

    def _has_room(self, size: int) -> bool:
        """Tell whether so many more bytes may be held: up to a quarter of what may wait for one Client."""
        limits, queue = self._session.limits, self._session.queue
        most = limits.max_mqueue_bytes
        if limits.max_buffered_bytes:
            most = min(most, limits.max_buffered_bytes)
        return queue.held_bytes + size <= most // 4 and not queue.is_too_much(size)

    def _is_slow(self) -> bool:
        """Tell whether the connected Client does not take messages as fast as they come."""
        link = self._session.link
        return link is not None and (link.unsent >= LOW_WATER or bool(self._session.queue))

    def _is_crowded(self) -> bool:
        """Tell whether half of what ``force_shutdown`` allows waits for the connected Client."""
        link, limits, queue = self._session.link, self._session.limits, self._session.queue
        if link is None:
            return False
        messages, size = limits.max_buffered_messages, limits.max_buffered_bytes
        return bool(messages and 2 * len(queue) > messages) or bool(size and 2 * (queue.bytes + link.unsent) > size)

    # --- time

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.callLater(max(0.0, at - self._clock.seconds()), self._fired)

    def _fired(self) -> None:
        """Wait for a turn among all Sessions whose messages are due."""
        self._timer = None
        # Late pieces of work cannot fail: all errors are caught here.
        self._work.do(_OWNER, self._release_due())

    def _release_due(self) -> Iterator[int]:
        """Release messages that are in a hurry or due, and forget topics of which no message is held: one part."""
        hurried = self.holds_until(self._hurry)
        for _ in range(_AT_ONCE):
            yield 1
            try:
                if self._stopped or not self._release_next():
                    break
            except Exception:  # noqa: BLE001 - it may be an error of the connection, and the Session goes on
                self._on_error(Failure())
        if self._stopped:
            return
        if hurried and not self.holds_until(self._hurry):
            try:
                self._on_released()
            except Exception:  # noqa: BLE001 - as above
                self._on_error(Failure())
        now = self._clock.seconds()
        if self.holds_until(self._hurry):
            self._set_timer(now)
        elif self._heap:
            self._set_timer(self._heap[0][0] if self._heap[0][0] <= now else max(self._heap[0][0], now + _TURN))

    def _release_next(self) -> bool:
        """Release one message, and forget some topics. Return False if nothing is due."""
        if self.holds_until(self._hurry):
            self._release(next(iter(self._held.values())))
            return True
        now = self._clock.seconds()
        for _ in range(_LOOKS):
            if not self._heap or self._heap[0][0] > now:
                return False
            _, _, topic = heappop(self._heap)
            topic.is_timed = False
            if topic.due > now and topic.interval:
                self._time(topic)
            elif topic.held is not None:
                self._release(topic)
                return True
            elif topic.waiting is None:
                self._forget(topic)
        return True


# Messages that conflation lets go: each is sent to its Client, or waits in the queue.


class IConflated(Protocol):
    """The Session."""

    link: Connection | None
    limits: Limits
    principal: Principal
    queue: SessionQueue
    deliveries: Deliveries
    inflight: InflightMessages

    @property
    def asks_again(self) -> bool:
        """Whether the authorizer is asked about queued messages again: none of them may change then."""

    def queue_unasked(self, queued: Queued) -> bool:
        """Queue a message; ask the authorizer before it is sent. Return whether it is in the queue."""

    def takes(self, queued: Queued) -> bool:
        """Tell whether the window has room for this message."""

    def send(
        self,
        link: Connection,
        outgoing: OutgoingMessage,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        delivery: Delivery | None,
    ) -> None:
        """Send a message now, unless it has expired or is too large."""

    def rest(self, link: Connection) -> None:
        """Send no more until the connection has room."""

    def note_loss(self) -> None:
        """Note that a message for this Session is lost."""


def pass_on(session: IConflated, queued: Queued, unasked: bool) -> bool:
    """Send or queue a message that conflation lets go. Return whether it is in the queue.

    A QoS 0 message is queued for a Client that does not take more now, since a queued message can be replaced.
    If it is ``unasked``, the authorizer is asked before it is sent.
    """
    link, queue = session.link, session.queue
    if not queued.qos and link is None and not session.limits.mqueue_store_qos0:
        session.note_loss()
        return False
    if unasked:
        return session.queue_unasked(queued)
    outgoing = queued.outgoing
    session.inflight.drop_overtaken(outgoing.message.topic)
    if link is not None and _takes_now(session, link, queued):
        deliveries = session.deliveries
        if queued.qos and queued.delivery is None and deliveries.are_stored:
            queued.delivery = deliveries.begin(outgoing, queued.qos, queued.retain, queued.identifiers, None)
        session.send(link, outgoing, queued.qos, queued.retain, queued.identifiers, queued.delivery)
        return False
    queue.begin(queued)
    entered = queue.enter(queued, link)
    if link is not None and link.unsent >= LOW_WATER:
        session.rest(link)
    return entered


def _takes_now(session: IConflated, link: Connection, queued: Queued) -> bool:
    if not queued.qos:
        return not session.queue.at_most_once and link.unsent < LOW_WATER
    return not (session.queue or session.inflight.to_resend) and session.takes(queued)
