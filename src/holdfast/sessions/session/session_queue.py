"""The queue of one Session, within its limits: what does not fit is dropped, counted and noted as lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.accounts import Account
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.deliveries import Deliveries
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.queue import MessageQueue, Queued
from holdfast.sessions.limits import Limits, WhenFull

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

    def append(self, queued: Queued) -> None:
        """Add a message at the end."""
        super().append(queued)
        if self._account is not None:
            self._account.bytes += queued.outgoing.size()

    def remove(self, queued: Queued) -> bool:
        """Remove this message. Return False if it is not in the queue any more."""
        removed = super().remove(queued)
        if removed and self._account is not None:
            self._account.bytes -= queued.outgoing.size()
        if queued.conflated and removed and self.conflation is not None:
            self.conflation.left(queued)
        return removed

    def enter(self, queued: Queued, link: IClientLink | None) -> bool:
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

    def replace(self, waiting: Queued, newer: Queued, link: IClientLink | None) -> bool:
        """Put a newer message in the place of a waiting one. Return False, without any effect, if that has left."""
        if not waiting.waits:
            return False
        self.begin(newer)
        older, grown = waiting.delivery, newer.outgoing.size() > waiting.outgoing.size()
        before = self.bytes
        self.renew(waiting, newer)
        if self._account is not None:
            self._account.bytes += self.bytes - before
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

    def _keep_limits(self, link: IClientLink | None) -> None:
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
