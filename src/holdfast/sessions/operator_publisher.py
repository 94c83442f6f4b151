"""The publisher of operators' changes: set, clear and restore reach present subscribers like any other message.

How it works. A command may change a million topics, so it asks for room before each change
(:meth:`OperatorPublisher.room`):

- In one turn of the reactor, operators' changes cause about ``DELIVERIES`` deliveries, of all commands together. Then
  the command waits for a later turn; commands that wait take turns, first in, first out.
- A connected subscriber that is behind (:meth:`~holdfast.sessions.delivery.session.Session.is_behind`) is waited for.
  So its queue does not grow by a million messages, and ``force_shutdown`` does not close its connection.
- A subscriber that takes nothing for ``SUBSCRIBER_PATIENCE`` seconds is not waited for any longer: one client cannot
  stop an operator. It gets further changes like any live message, until ``force_shutdown`` acts.

A change replaces the queued retained messages of its topic in the Sessions of clients that are away, and is queued with
QoS 1 where it has QoS 0. So a client that comes back does not take an outdated value for the present one. A clear
displaces no other message: if it does not fit into the queue, it is dropped and counted.
"""

from __future__ import annotations

from collections import deque
from weakref import WeakKeyDictionary

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.tickets import CommitTicket
from holdfast.retained.administration import IPublisher
from holdfast.retained.service import RetainedMessages
from holdfast.retained.sweep import INoticePublisher, Patience
from holdfast.scheduling.waiting import as_deferred
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.router import Router

#: the deliveries of one turn; a delivery takes at most 50 microseconds
DELIVERIES = 100
#: seconds without progress after which a subscriber is not waited for
SUBSCRIBER_PATIENCE = 10.0
#: seconds between two looks at subscribers that are behind
_AGAIN = 0.05


@define(eq=False)
class _Watch:
    """A subscriber that is behind: how far it was when it last made progress, and when that was."""

    link: Connection
    dequeued: int
    unsent: int
    since: float


@implementer(IPublisher, INoticePublisher)
class OperatorPublisher:
    """Publishes changes by operators through the router."""

    def __init__(self, router: Router, clock: IReactorTime) -> None:
        self._router = router
        self._clock = clock
        self._used = 0  # the deliveries of this turn
        self._scheduled = False
        self._waiting: deque[Deferred[None]] = deque()
        self._watched: WeakKeyDictionary[Session, _Watch] = WeakKeyDictionary()

    def publish(self, message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Retain the message, or clear its topic, and send it to all matching Sessions. May raise RetainRefused."""
        self._used += 1 + self._router.reach(message.topic)
        self._schedule()
        return self._router.publish(message, origin, replaces=True)[0]

    def tell(self, message: ApplicationMessage) -> None:
        """Send a message to present subscribers only, in place of queued retained messages of its topic."""
        self._used += 1 + self._router.reach(message.topic)
        self._schedule()
        self._router.route(message, replaces=True)

    def send(self, message: ApplicationMessage) -> tuple[CommitTicket, bool]:
        """Publish any message. Returns what :meth:`Router.publish` returns. May raise RetainRefused."""
        self._used += 1 + self._router.reach(message.topic)
        self._schedule()
        return self._router.publish(message, ChangeOrigin.API, replaces=message.retain)

    def room(self, topic: str, patience: Patience | None = None) -> Deferred[None] | None:
        """Return None if a message may be published to this topic now; else wait. Look again when this fires.

        It takes the time for which it waits for slow subscribers from the ``patience``, and waits no longer than that.
        """
        if self._used < DELIVERIES and not self._waits_for(topic, patience):
            return None
        return self._wait(topic, patience)

    @as_deferred
    async def _wait(self, topic: str, patience: Patience | None) -> None:
        while True:
            if self._used >= DELIVERIES:
                turn: Deferred[None] = Deferred()
                self._waiting.append(turn)
                self._schedule()
                await turn
            elif self._waits_for(topic, patience):
                await deferLater(self._clock, _AGAIN)
                if patience is not None:
                    patience.left -= _AGAIN
            else:
                return

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._next_turn)

    def _next_turn(self) -> None:
        self._scheduled = False
        self._used = 0
        while self._waiting and self._used < DELIVERIES:
            self._waiting.popleft().callback(None)
        if self._waiting:
            self._schedule()

    def _waits_for(self, topic: str, patience: Patience | None) -> bool:
        return (patience is None or patience.left > 0) and self._is_behind(topic)

    def _is_behind(self, topic: str) -> bool:
        """Tell whether a subscriber of the topic is behind. All of them are watched: their patience runs together."""
        behind = [
            session for session in self._router.connected(topic) if session.is_behind() and not self._stalls(session)
        ]
        return bool(behind)

    def _stalls(self, session: Session) -> bool:
        link, dequeued, now = session.link, session.queue.dequeued, self._clock.seconds()
        assert link is not None
        watch = self._watched.get(session)
        if watch is None or watch.link is not link or dequeued > watch.dequeued or link.unsent < watch.unsent:
            self._watched[session] = _Watch(link, dequeued, link.unsent, now)
            return False
        watch.unsent = link.unsent
        return now - watch.since >= SUBSCRIBER_PATIENCE


# Messages that operators publish: with or without RETAIN, on the same way as their changes of retained messages.


class OperatorMessages:
    """Publishes any message of an operator, when there is room for it."""

    def __init__(self, publisher: OperatorPublisher, retained: RetainedMessages) -> None:
        self._publisher = publisher
        self._retained = retained

    @as_deferred
    async def publish(self, message: ApplicationMessage) -> tuple[CommitTicket, bool]:
        """Publish. Fires with the ticket of all that this stores, and whether there was a subscriber.

        Fails with ``RetainRefused`` if the message has RETAIN 1 and is over a limit; then nobody gets it.
        """
        waiting = self._publisher.room(message.topic)
        if waiting is not None:
            await waiting
        if message.retain:
            undecided = self._retained.admission.undecided(message)
            if undecided is not None:
                await undecided
        return self._publisher.send(message)
