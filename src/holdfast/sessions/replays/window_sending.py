"""Sends messages of replays within the window of a Session, with QoS 1 or 2."""

from __future__ import annotations

from holdfast.sessions.delivery.inflight import Inflight
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.session.session import Session


def send_retained(
    session: Session,
    packet: bytes,
    packet_identifier: int,
    topic: str,
    qos: int,
    expires_at: int,
    noted: bool,
    retain: bool = True,
) -> Inflight:
    """Send one message of a replay, or its marker (``retain`` False), with QoS 1 or 2, under a free identifier.

    With ``noted`` the delivery is stored like that of a live message. Without it, only the position of the replay is
    stored.
    """
    link, inflight = session.link, session.inflight
    assert link is not None
    delivery = outgoing = None
    if noted and session.record.durable:
        outgoing, identifiers = OutgoingMessage.of_packet(packet, link.protocol_version, expires_at)
        delivery = session.deliveries.begin(outgoing, qos, retain, identifiers, None)
    entry = Inflight(packet, qos, link.protocol_version, expires_at, True, delivery)
    entry.outgoing = outgoing
    if noted:
        inflight.may_send = session.permissions.may_send
    inflight.send_replayed(link, packet_identifier, entry, topic)
    return entry


def send_retained_block(session: Session, packets: bytes, first: int, count: int) -> None:
    """Send messages of a replay with QoS 1, joined, where ``inflight.in_blocks``.

    Their Packet Identifiers follow each other, and the first one comes from ``inflight.next_block``.
    """
    assert session.link is not None
    session.inflight.send_replayed_block(session.link, packets, first, count)
