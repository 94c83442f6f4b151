"""The requests of a Client in the User Properties of its PUBLISH: bad ones are refused."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.extensions.bad_request import BadRequest
from holdfast.extensions.conditions import conditions_of
from holdfast.extensions.leases import lease_of
from holdfast.extensions.names import RETAIN_WHILE
from holdfast.extensions.requests import FOR_PUBLISH, broker_property, check_publish_names, check_takes_part
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.conditional_publish import why_not_conditional
from holdfast.sessions.limits import RetainMode
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Publish

#: acknowledges a message that is not published: its QoS, its Packet Identifier, Reason Code and Reason String
Answer = Callable[[int, int, ReasonCode, str], None]


def is_refused(packet: Publish, link: IClientLink, parts: BrokerParts, answer: Answer) -> bool:
    """Refuse a message with a User Property that it cannot have, or that is not understood. False: it has none.

    The messages of a Client that does not take part have any others, and are forwarded unaltered [MQTT-3.3.2-17].
    """
    properties = packet.properties.user_properties
    if not link.participant:
        try:
            check_takes_part(properties, FOR_PUBLISH)
        except BadRequest as bad:
            _refuse(packet, link, parts, answer, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(bad))
            return True
        return False
    name = broker_property(properties)
    if name is not None:
        why = f"User Property {name} is told by the broker only"
        _refuse(packet, link, parts, answer, ReasonCode.PAYLOAD_FORMAT_INVALID, why)
        return True
    unmet: str | None
    try:
        check_publish_names(properties)
        if lease_of(properties) is not None:
            _check_lease(packet, link, parts.retained.enabled)
    except BadRequest as bad:
        _refuse(packet, link, parts, answer, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, str(bad))
        return True
    try:
        conditions = conditions_of(properties)
    except BadRequest as bad:
        unmet = str(bad)
    else:
        if conditions is None:
            return False
        unmet = why_not_conditional(packet, link, parts.retained.enabled)
    if unmet is None:
        return False
    if packet.qos and packet.retain:
        _refuse(packet, link, parts, answer, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, unmet)
        return True
    parts.counters.messages_dropped_conditional += 1
    link.client_log.debug("its PUBLISH with a condition is dropped", unmet)
    if packet.qos:
        answer(packet.qos, packet.packet_identifier, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, unmet)
    return True


def _check_lease(packet: Publish, link: IClientLink, enabled: bool) -> None:
    """Raise :class:`BadRequest` for a PUBLISH that cannot have a lease. ``enabled``: the retainer stores messages."""
    if not packet.retain:
        raise BadRequest(f"User Property {RETAIN_WHILE} needs RETAIN 1: it is about the retained message")
    if not packet.payload:
        raise BadRequest(f"User Property {RETAIN_WHILE} needs a payload: an empty one clears the topic at once")
    if not enabled or link.limits.retained_messages_mode is not RetainMode.ENABLED:
        raise BadRequest(f"User Property {RETAIN_WHILE} has no effect here: no retained messages are stored")


def _refuse(
    packet: Publish, link: IClientLink, parts: BrokerParts, answer: Answer, reason: ReasonCode, why: str
) -> None:
    parts.counters.messages_rejected_properties += 1
    link.client_log.info("its PUBLISH is refused", why)
    if packet.qos:
        answer(packet.qos, packet.packet_identifier, reason, why)
