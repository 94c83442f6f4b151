"""Sends a run to the Client of one Session, if the run can be sent as a whole."""

from __future__ import annotations

from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.delivery.outgoing import DeliveryOptions
from holdfast.sessions.session.session import Session
from holdfast.sizes import HELD_IDENTIFIER
from holdfast.wire import Run


def deliver_run(session: Session, run: Run, options: DeliveryOptions, identifier: int) -> bool:
    """Send a run that matches the subscriptions as a whole.

    With QoS 1 the Packet Identifiers begin with this one, if they are free. Returns False, without any effect, if each
    of its messages has to be delivered by itself.
    """
    if session.is_over:
        return True
    qos = run.qos
    if qos != options.qos:
        if session.limits.upgrade_qos:
            return False
        qos = min(qos, options.qos)
    queue = session.queue
    if options.identifiers or (queue.conflation is not None and queue.conflation.holds):
        return False
    link = session.link
    if qos:
        return link is not None and _send_as_block(session, link, run, identifier)
    if link is None:
        return not session.limits.mqueue_store_qos0
    return not queue.at_most_once and link.send_run(run, 0, 0)


def _send_as_block(session: Session, link: IClientLink, run: Run, identifier: int) -> bool:
    """Send a run with QoS 1 as a block. Returns False, without any effect, if it cannot be sent as a whole."""
    inflight = session.inflight
    count, size = run.count, run.end - run.start
    if not inflight.in_blocks or session.queue or inflight.to_resend:
        return False
    if not session.window.takes_run(inflight.count, count, size + count * HELD_IDENTIFIER):
        return False
    if not inflight.is_free(identifier, count):
        identifier = inflight.next_block(count)
    if not identifier or not link.send_run(run, 1, identifier):
        return False
    inflight.add_block(identifier, count, size, False)
    return True
