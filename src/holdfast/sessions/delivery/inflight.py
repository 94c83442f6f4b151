"""Messages sent to a Client with QoS 1 or 2 and not yet acknowledged [MQTT5-4.3], [MQTT5-4.4].

How it works. Every such message is an :class:`Inflight`, and its ``state`` is one of :class:`InflightState`. The tables
:data:`QOS_1` and :data:`QOS_2` name every event that may change the state. The normal sequences are

    QoS 1:  SENT --PUBACK--> OVER
    QoS 2:  AWAITS_COMMIT --COMMIT_ENDED--> SENT --PUBREC--> RELEASED --PUBCOMP--> OVER

A QoS 2 message starts in AWAITS_COMMIT if its delivery, or the publisher's own QoS 2 exchange, is not durable yet: the
Client must receive it once, so the broker may not forget after a crash that it was sent. A QoS 1 message never waits,
since it may arrive twice.

RELEASED means that the Client has the message: the PUBLISH is never sent again, only PUBREL. A Client may repeat PUBREC
in that state, and PUBREL is then repeated.

After a reconnect the messages in SENT and RELEASED are sent again, the former with DUP 1. A message in AWAITS_COMMIT
was never sent. If its connection ends first, it becomes UNSENT when its commit ends. It then leaves on the next
connection as if for the first time: with DUP 0, after a commit of its own. Its row is that of a queued message
meanwhile, so a restart changes none of this. If a commit fails, a message that was never stored is discarded, since its
publisher is told to send it again. Otherwise the connection is closed, and the message is UNSENT too.

**Acknowledgements out of place.** Every other pair of state and acknowledgement changes nothing. For an identifier that
the Client has not been sent, that is the whole treatment. Otherwise the pairs in :data:`PROTOCOL_ERRORS` end the
connection: the Client takes the message for another one, and would never acknowledge it.

The states are compared directly, and the tables of states are not looked up while the broker runs: an acknowledgement
costs one comparison that way. A test drives every pair of state and event through a Session and compares it with the
tables.
"""

from __future__ import annotations

from enum import Enum

import attrs
from attrs import define

from holdfast.messages import seconds_left
from holdfast.sessions.delivery.deliveries import Delivery
from holdfast.sessions.delivery.outgoing import Expired, OutgoingMessage
from holdfast.wire import PacketParser, Properties, encode
from holdfast.wire.packets import Publish


class InflightState(Enum):
    """The state of a message in flight."""

    AWAITS_COMMIT = "may not be sent before its commit"
    UNSENT = "its connection ended before it was sent"
    SENT = "PUBLISH has been sent"
    RELEASED = "PUBREC has come, PUBREL has been sent or is due"
    OVER = "acknowledged in full, refused or discarded"


class InflightEvent(Enum):
    """An event in the life of a message in flight."""

    COMMIT_ENDED = "the commit has succeeded or failed"
    COMMIT_ENDED_LATE = "the same, after the end of the connection"
    RECONNECTED = "the Client has come back"
    PUBACK = "PUBACK has come"
    PUBREC = "PUBREC has come"
    PUBREC_REFUSES = "PUBREC has come with a Reason Code of 0x80 or greater"
    PUBCOMP = "PUBCOMP has come"


# Module constants, because every message reads them: a global name is faster to read than a member of an Enum.
AWAITS_COMMIT, UNSENT, SENT, RELEASED, OVER = InflightState

#: QoS 1: the next state for a state and an event
QOS_1 = {(SENT, InflightEvent.PUBACK): OVER}

#: QoS 2: the next state for a state and an event
QOS_2 = {
    (AWAITS_COMMIT, InflightEvent.COMMIT_ENDED): SENT,
    (AWAITS_COMMIT, InflightEvent.COMMIT_ENDED_LATE): UNSENT,
    (UNSENT, InflightEvent.RECONNECTED): SENT,
    (SENT, InflightEvent.PUBREC): RELEASED,
    (SENT, InflightEvent.PUBREC_REFUSES): OVER,
    (RELEASED, InflightEvent.PUBREC): RELEASED,
    (RELEASED, InflightEvent.PUBREC_REFUSES): OVER,
    (RELEASED, InflightEvent.PUBCOMP): OVER,
}

#: Acknowledgements that are Protocol Errors, by QoS and state, with the lowest protocol version in which they are. MQTT
#: 3 has no Protocol Errors in the order of acknowledgements: there, only a type that the QoS never has ends the
#: connection.
PROTOCOL_ERRORS = {
    (1, SENT, InflightEvent.PUBREC): 3,
    (1, SENT, InflightEvent.PUBREC_REFUSES): 3,
    (1, SENT, InflightEvent.PUBCOMP): 3,
    (2, SENT, InflightEvent.PUBACK): 3,
    (2, SENT, InflightEvent.PUBCOMP): 5,
    (2, RELEASED, InflightEvent.PUBACK): 3,
}


@define(eq=False)
class Inflight:
    """One PUBLISH that is not acknowledged, or the PUBREL that follows it.

    ``packet`` is the PUBLISH as first sent, with DUP 0, encoded for ``protocol_version``; b"" if it will not be sent
    again. ``size`` is its part of the window, in bytes. ``expires_at`` is in milliseconds since the
    epoch (0 for never). ``replayed`` tells that a replay sent this retained message. ``outgoing`` is kept until a QoS 2
    message is sent: its connection may have another protocol version than the first one. ``unasked`` tells that the
    authorizer is asked about the message before it is sent, or sent again.
    """

    packet: bytes
    qos: int
    protocol_version: int
    expires_at: int = 0
    replayed: bool = False
    delivery: Delivery | None = None
    state: InflightState = SENT
    size: int = 0
    outgoing: OutgoingMessage | None = None
    unasked: bool = False

    def again(self, protocol_version: int, now: int) -> bytes:
        """Return the PUBLISH for another attempt, with DUP 1 [MQTT5-3.3.1-1]."""
        return self._at(protocol_version, now, True)

    def first(self, protocol_version: int, packet_identifier: int, now: int) -> bytes | None:
        """Return the PUBLISH for the first attempt on a later connection. None: the message has expired meanwhile."""
        delivery = self.delivery
        if delivery is None or self.outgoing is None:
            return self.late(protocol_version, now)
        try:
            return self.outgoing.packet(
                protocol_version, self.qos, delivery.retain, delivery.identifiers, packet_identifier, now
            )
        except Expired:
            return None

    def late(self, protocol_version: int, now: int) -> bytes | None:
        """Return the PUBLISH for the first attempt, after a wait. None: the message has expired meanwhile."""
        if not self.expires_at and protocol_version == self.protocol_version:
            return self.packet
        if self.expires_at and self.expires_at <= now:
            return None
        return self._at(protocol_version, now, False)

    def _at(self, protocol_version: int, now: int, dup: bool) -> bytes:
        """Return the PUBLISH with the Message Expiry Interval that remains now."""
        if protocol_version == self.protocol_version and not (self.expires_at and protocol_version == 5):
            return bytes((self.packet[0] | dup << 3,)) + self.packet[1:]
        parser = PacketParser(len(self.packet), self.protocol_version)
        parser.receive_data(self.packet)
        publish = parser.next_packet()
        assert isinstance(publish, Publish)
        properties: Properties = publish.properties
        if self.expires_at:
            properties = attrs.evolve(properties, message_expiry_interval=seconds_left(self.expires_at, now))
        return encode(attrs.evolve(publish, dup=dup, properties=properties), protocol_version)
