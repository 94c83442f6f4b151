"""Messages of replays in the window of a Session, and the marker of the end of a replay. First: the marker.

It is the last packet of its replay. With QoS 1 the stored position of the replay is over only when the Client has
acknowledged it; so after a crash it comes again, behind the messages that come again. With QoS 2 it is a stored
delivery like each message of a replay with QoS 2. It waits until all messages before it are acknowledged, since after a
crash a stored delivery comes before the rest of a replay.
"""

from __future__ import annotations

from holdfast.core.extensions import REPLAY_SINCE
from holdfast.core.units import date_of
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.inflight import Inflight
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.replay_positions import ReplayPosition
from holdfast.sessions.delivery.session import Session
from holdfast.wire import NO_PROPERTIES, Properties, encode
from holdfast.wire.packets import Publish

# Sends messages of replays within the window of a Session, with QoS 1 or 2.


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


def send_marker(
    topic_filter: str, position: ReplayPosition, cursor: str, link: Connection, session: Session, counters: Counters
) -> bool:
    """Send the marker that is due at this position, if any. Return False if there is no room for it yet.

    ``topic_filter`` is that of the SUBSCRIBE, with its share. ``cursor`` is the last topic delivered.
    """
    marker = position.marker
    carrier = None if marker is None else session.subscriptions.get(marker.carrier)
    if marker is None or carrier is None:  # a Client is sent what its Subscriptions match [MQTT5-3.3.2-3]
        return True
    qos, durable = carrier.qos, session.record.durable
    noted = durable and qos == 2
    if qos and (session.replay_room() <= 0 or (noted and position.awaits_acknowledgements)):
        session.note_waiting_replay()
        return False
    properties = NO_PROPERTIES
    identifier = session.subscriptions[topic_filter].identifier
    if link.protocol_version == 5 and (identifier is not None or marker.since):
        properties = Properties(
            subscription_identifiers=() if identifier is None else (identifier,),
            user_properties=((REPLAY_SINCE, marker.since),) if marker.since else (),
        )
    payload = marker.payload(topic_filter, date_of(session.now()))
    packet_identifier = session.inflight.next_identifier() if qos else 0
    publish = Publish(marker.topic, payload, qos, False, False, packet_identifier, properties)
    packet = encode(publish, link.protocol_version)
    position.marker = None
    if link.maximum_packet_size is not None and len(packet) > link.maximum_packet_size:
        counters.messages_dropped_too_large += 1  # [MQTT5-3.1.2-25]
        link.client_log.info("a marker is left out", f"{len(packet)} bytes, {link.maximum_packet_size} at most")
    elif not qos:
        link.send_message(packet)
    else:
        entry = send_retained(session, packet, packet_identifier, "", qos, 0, noted, retain=False)
        if durable and not noted:
            position.sent(entry, cursor)
            position.marker = marker  # stored until the acknowledgement
    return True
