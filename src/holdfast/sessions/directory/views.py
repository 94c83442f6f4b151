"""Makes the views of one Session and its subscriptions."""

from __future__ import annotations

from holdfast.client_views import ClientView, ConnectionView, SubscriptionView
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.subscription import Subscription


def client_view(session: Session, link: IClientLink | None) -> ClientView:
    """Return the view of a Session; ``link`` is the connection of its Client, None if it is away."""
    principal, limits, queue = session.principal, session.limits, session.queue
    return ClientView(
        client_id=session.client_id,
        username=principal.username,
        address=address_of(session, link),
        listener=principal.listener if link is None else link.listener,
        groups=tuple(sorted(principal.groups)),
        method=principal.method,
        connection=None if link is None else _connection_view(link),
        created_at=session.attendance.created_at,
        since=session.attendance.since,
        expiry_interval=session.expiry_interval,
        inflight=session.inflight.count,
        inflight_max=session.window.size,
        awaiting_rel=len(session.received),
        awaiting_rel_max=limits.max_awaiting_rel,
        queued=len(queue),
        queued_bytes=queue.bytes + queue.held_bytes,
        queued_max=limits.max_mqueue_len,
        conflated=0 if queue.conflation is None else queue.conflation.conflated,
        subscriptions=len(session.subscriptions),
        subscriptions_max=limits.max_subscriptions,
    )


def address_of(session: Session, link: IClientLink | None) -> str | None:
    """Return the IP address of a Client, or the last one that it had. None for a UNIX domain socket."""
    if link is not None:
        return None if link.peer.ip is None else str(link.peer.ip)
    address = session.principal.address
    return address if address and address != "unix" else None


def _connection_view(link: IClientLink) -> ConnectionView:
    client = link.client
    return ConnectionView(
        port=None if link.peer.ip is None else link.peer.port,
        keep_alive=None if client is None else client.keep_alive,
        protocol_version=link.protocol_version,
        clean_start=None if client is None else client.clean_start,
        bridge=link.bridge,
        will=client is not None and client.will is not None,
        unsent_bytes=link.unsent,
    )


def subscription_view(client_id: str, topic_filter: str, subscription: Subscription) -> SubscriptionView:
    """Return the view of a subscription; ``topic_filter`` has its share."""
    return SubscriptionView(
        client_id=client_id,
        topic_filter=topic_filter,
        share=subscription.group,
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        retain_handling=subscription.retain_handling,
        identifier=subscription.identifier,
        conflate=subscription.conflate or None,
    )
