"""The queue of one Session, within its limits: what does not fit is dropped, counted and noted as lost."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.sessions.accounts import Account
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.deliveries import Deliveries
from holdfast.sessions.delivery.queue import MessageQueue, Queued
from holdfast.sessions.limits import Limits, WhenFull

#: Messages, and their bytes, that may wait for a connected Client before operators' changes wait for it.
_MOST_AHEAD = 500
_MOST_BYTES_AHEAD = 1 << 20


def _nothing() -> None:
    """Note no loss: the Session has ended."""


class SessionQueue(MessageQueue):
    """The messages that wait for one Client. ``on_lost`` is called for each one that the Client will not get."""

    __slots__ = ("_account", "_counters", "_deliveries", "_on_lost", "limits")

    def __init__(self, limits: Limits, deliveries: Deliveries, counters: Counters, on_lost: Callable[[], None]) -> None:
        super().__init__(counters.holdings)
        self.limits = limits
        self._deliveries = deliveries
        self._counters = counters
        self._on_lost = on_lost
        self._account: Account | None = None

    def charge_to(self, account: Account | None) -> None:
        """Count the bytes of this queue in an account from now on; None: in no account any more."""
        if self._account is not None:
            self._account.bytes -= self.bytes
        self._account = account
        if account is not None:
            account.bytes += self.bytes

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
        return removed

    def enter(self, queued: Queued, link: IClientLink | None) -> None:
        """Add a message, and drop what exceeds the limits. ``link`` is the connection of the Client, None if away."""
        if link is None and self._has_no_place(queued):
            self._counters.messages_dropped_queue_full += 1
            self._on_lost()
            if queued.delivery is not None:
                self._deliveries.forget(queued.delivery)
            return
        self.append(queued)
        if queued.delivery is not None:
            self._deliveries.note(queued.delivery, 0)
            ticket = queued.outgoing.ticket
            if not ticket.settled:
                ticket.when_settled(lambda failure: self._not_stored(queued) if failure else None)
        if link is not None:
            link.queued()
            return
        while self and (self.exceeds(self.limits.max_mqueue_len, self.limits.max_mqueue_bytes) or self._is_too_much(0)):
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
        return self.exceeds(None if most is None else most - 1, self.limits.max_mqueue_bytes - 1) or self._is_too_much(
            1
        )

    def is_long(self) -> bool:
        """Tell whether so much waits for a connected Client that operators' changes wait for it."""
        return self.exceeds(_MOST_AHEAD, min(_MOST_BYTES_AHEAD, self.limits.max_mqueue_bytes))

    def close(self) -> None:
        """Let go of the Session, which has ended."""
        self._on_lost = _nothing

    def _has_no_place(self, queued: Queued) -> bool:
        """Tell whether the queue is full, and no older message may be dropped in favour of this one."""
        if queued.outgoing.replaces:
            most = self.limits.max_mqueue_len
            size = queued.outgoing.size()
            return self.exceeds(
                None if most is None else most - 1, self.limits.max_mqueue_bytes - size
            ) or self._is_too_much(size)
        return self.limits.mqueue_full is not WhenFull.DROP_OLDEST and self.is_full()

    def _is_too_much(self, more: int) -> bool:
        """Tell whether all Sessions of the payer together hold too many bytes, with so many more."""
        most = self.limits.max_waiting_bytes
        return most is not None and self._account is not None and self._account.bytes + more > most

    def _not_stored(self, queued: Queued) -> None:
        """Drop a message that could not be stored. Its publisher is told so."""
        self._on_lost()
        self.discard(queued)
