"""The rows of Session State, in the order of the tables' columns, and the values made from them.

Each pair of functions belongs to one table: ``session_messages``, ``session_subscriptions``, ``session_deliveries`` and
``wills``. The rows of ``sessions`` and ``session_received`` hold plain values and are made in ``states``.
"""

from __future__ import annotations

from typing import Any

from holdfast.auth.interfaces import Principal
from holdfast.extensions.replay_info import facts_in, text_of
from holdfast.messages import ApplicationMessage
from holdfast.sessions.state.interfaces import DeliveryState, StoredWill
from holdfast.sessions.state.subscription import ReplayProgress, Subscription
from holdfast.topics import split_shared
from holdfast.wire.packets import Will
from holdfast.wire.properties import NO_PROPERTIES, WILL, Properties
from holdfast.wire.property_codec import decode_properties, encode_properties

Row = tuple[Any, ...]


def message_row(identifier: int, message: ApplicationMessage) -> Row:
    """Return the row of ``session_messages``."""
    return (
        identifier, message.topic, message.qos, int(message.retain), message.client_id, message.username,
        message.expires_at, encode_properties(message.properties), message.payload,
    )  # fmt: skip


def message_of(row: Row) -> ApplicationMessage:
    """Return the message of a row of ``session_messages``."""
    _, topic, qos, retain, client_id, username, expires_at, properties5, payload = row
    properties = _properties(properties5, 3)
    return ApplicationMessage(topic, payload, qos, bool(retain), client_id, username, properties, expires_at)


def subscription_row(
    session: int, topic_filter: str, subscription: Subscription, progress: ReplayProgress | None
) -> Row:
    """Return the row of ``session_subscriptions``."""
    return (
        session, topic_filter, subscription.qos, int(subscription.no_local), int(subscription.retain_as_published),
        subscription.retain_handling, subscription.identifier,
        None if progress is None else progress.after, (progress.cut or None) if progress is not None else None,
        None if progress is None else progress.marker, subscription.conflate or None,
        text_of(progress.facts) if progress is not None and progress.facts else None,
        None if progress is None else progress.since,
    )  # fmt: skip


def subscription_of(row: Row) -> tuple[Subscription, ReplayProgress | None]:
    """Return the subscription of a row of ``session_subscriptions``, and the progress of its replay."""
    (_, topic_filter, qos, no_local, as_published, retain_handling, identifier, replay_after, cut, marker, conflate,
     facts, since) = row  # fmt: skip
    group, inner = split_shared(topic_filter)
    subscription = Subscription(
        inner, qos, bool(no_local), bool(as_published), retain_handling, identifier, group, conflate=conflate or 0
    )
    if replay_after is None:
        return subscription, None
    told = () if facts is None else facts_in(facts)
    return subscription, ReplayProgress(replay_after, cut or 0, marker, told, since)


def delivery_row(session: int, delivery: DeliveryState) -> Row:
    """Return the row of ``session_deliveries``."""
    return (
        session, delivery.seq, delivery.message, delivery.qos, int(delivery.retain),
        ",".join(map(str, delivery.identifiers)), delivery.packet_identifier or None, int(delivery.released),
        delivery.shared_filter,
    )  # fmt: skip


def delivery_of(row: Row) -> DeliveryState:
    """Return the delivery of a row of ``session_deliveries``."""
    _, seq, message, qos, retain, identifiers, packet_identifier, released, shared_filter = row
    return DeliveryState(
        seq,
        message,
        qos,
        bool(retain),
        tuple(int(one) for one in identifiers.split(",") if one),
        packet_identifier or 0,
        bool(released),
        shared_filter,
    )


def will_row(node: int, stored: StoredWill) -> Row:
    """Return the row of ``wills``."""
    principal, will = stored.principal, stored.will
    return (
        node, principal.client_id, principal.username, will.topic, will.qos, int(will.retain), int(stored.delay),
        stored.due_at, encode_properties(will.properties), will.payload, principal.listener, int(stored.lost),
        int(stored.untold),
    )  # fmt: skip


def will_of(row: Row) -> StoredWill:
    """Return the Will Message of a row of ``wills``. In rows of older brokers, the last columns are NULL."""
    _, client_id, username, topic, qos, retain, delay, due_at, properties5, payload, listener, lost, untold = row
    will = Will(topic, payload, qos, bool(retain), _properties(properties5, WILL))
    principal = Principal(client_id, username, listener=listener or "", names_only=True)
    return StoredWill(principal, will, delay, due_at, due_at is not None if lost is None else bool(lost), bool(untold))


def _properties(block: bytes, packet_type: int) -> Properties:
    return NO_PROPERTIES if block == b"\0" else decode_properties(block, packet_type)
