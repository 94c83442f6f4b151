"""Messages that conflation lets go: each is sent to its Client, or waits in the queue."""

from __future__ import annotations

from typing import Protocol

from holdfast.auth.interfaces import Principal
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.connection.outbox import LOW_WATER
from holdfast.sessions.delivery.deliveries import Deliveries, Delivery
from holdfast.sessions.delivery.inflight_messages import InflightMessages
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.queue import Queued
from holdfast.sessions.limits import Limits
from holdfast.sessions.session.session_queue import SessionQueue


class IConflated(Protocol):
    """The Session."""

    link: IClientLink | None
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
        link: IClientLink,
        outgoing: OutgoingMessage,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        delivery: Delivery | None,
    ) -> None:
        """Send a message now, unless it has expired or is too large."""

    def rest(self, link: IClientLink) -> None:
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


def _takes_now(session: IConflated, link: IClientLink, queued: Queued) -> bool:
    if not queued.qos:
        return not session.queue.at_most_once and link.unsent < LOW_WATER
    return not (session.queue or session.inflight.to_resend) and session.takes(queued)
