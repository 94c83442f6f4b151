"""An Application Message for its subscribers: encoded once per form, not once per subscriber.

How it works. The form of a PUBLISH depends on the protocol version, the QoS, RETAIN and the Subscription Identifiers.
A thousand subscribers with the same four share one encoding; only the Packet Identifier differs, so the encoding is
kept as the bytes before and after it. A message with an expiry interval is encoded each time in MQTT 5, because the
remaining seconds are part of the packet.
"""

from __future__ import annotations

import attrs

from holdfast.core.messages import ApplicationMessage, has_expired, held_size, seconds_left
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.hot_values import hot_frozen
from holdfast.sessions.state import ISessionStates, KeptMessage
from holdfast.wire import (
    NO_PROPERTIES,
    PacketParser,
    encode_properties,
    encode_publish,
    encode_variable_byte_integer,
    read_variable_byte_integer,
)
from holdfast.wire.packets import Publish


class Expired(Exception):
    """The Message Expiry Interval has passed: the message may not be delivered any more [MQTT5-3.3.2-5]."""


@hot_frozen
class DeliveryOptions:
    """The options under which one Session receives a message, merged from its matching subscriptions.

    ``conflate`` is the interval of conflation in milliseconds, 0 for none.
    """

    qos: int
    retain_as_published: bool = False
    identifiers: tuple[int, ...] = ()
    conflate: int = 0


class OutgoingMessage:
    """One Application Message and its encodings so far.

    All Sessions that outlive the process share one stored copy. ``after`` is settled when the message may be sent with
    QoS 2. A message that ``replaces`` takes the place of the queued retained messages of its topic, in the Sessions of
    Clients that are away: with QoS 1 at least, as far as the Subscription grants it. A clear displaces no other
    message.
    """

    __slots__ = ("_forms", "_kept", "_properties", "_size", "_topic", "after", "message", "replaces", "restored")

    def __init__(self, message: ApplicationMessage, after: CommitTicket = COMMITTED, replaces: bool = False) -> None:
        self.message = message
        self.after = after
        self.replaces = replaces
        self.restored = False  #: whether an earlier process has accepted it
        self._kept: KeptMessage | None = None
        self._topic = message.topic.encode()
        self._forms: dict[tuple[bool, int, bool, tuple[int, ...]], tuple[bytes, bytes]] = {}
        self._properties: dict[tuple[int, ...], bytes] = {}
        self._size = 0  #: 0 while unknown

    @classmethod
    def of_packet(
        cls, packet: bytes, protocol_version: int, expires_at: int
    ) -> tuple[OutgoingMessage, tuple[int, ...]]:
        """Return the message in a PUBLISH packet, and the packet's Subscription Identifiers.

        ``expires_at`` is in milliseconds since the epoch, 0 for never.
        """
        parser = PacketParser(len(packet), protocol_version)
        parser.receive_data(packet)
        publish = parser.next_packet()
        assert isinstance(publish, Publish)
        properties = publish.properties
        identifiers = properties.subscription_identifiers
        if properties is not NO_PROPERTIES:
            properties = attrs.evolve(properties, subscription_identifiers=(), message_expiry_interval=None)
        message = ApplicationMessage(
            publish.topic,
            publish.payload,
            publish.qos,
            publish.retain,
            properties=properties,
            expires_at=expires_at or None,
        )
        return cls(message), identifiers

    @property
    def ticket(self) -> CommitTicket:
        """The ticket that must be settled before the publisher gets its acknowledgement."""
        return COMMITTED if self._kept is None else self._kept.ticket

    def keep(self, states: ISessionStates) -> KeptMessage:
        """Store the message once, and count one more delivery of it."""
        kept = self._kept
        # Without references the stored copy is deleted already, and another one is needed.
        if kept is None or not kept.references:
            kept = self._kept = states.keep(self.message)
        kept.acquire()
        return kept

    @property
    def kept(self) -> KeptMessage | None:
        """The stored copy, None if there is none."""
        return self._kept

    def found(self, kept: KeptMessage) -> None:
        """Note that the message is stored already, because it was restored."""
        self._kept = kept
        self.restored = True

    def expire_later(self, step: int, states: ISessionStates) -> None:
        """Let the message expire later by ``step`` (milliseconds), where it is stored too: the clock has jumped."""
        message = self.message
        if message.expires_at is None or self.restored:
            return
        self.message = attrs.evolve(message, expires_at=message.expires_at + step)
        if self._kept is not None and self._kept.references:
            states.changed(self._kept, self.message)

    def size(self) -> int:
        """Return how many bytes this message occupies while it waits (:mod:`holdfast.core.messages`)."""
        if not self._size:
            message = self.message
            self._size = held_size(len(self._topic), message.properties, len(message.payload))
        return self._size

    def packet(
        self,
        protocol_version: int,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        packet_identifier: int,
        now: int,
    ) -> bytes:
        """Return the PUBLISH packet in this form, with DUP 0. Raise :class:`Expired` if the message has expired.

        ``now`` is in milliseconds since the epoch. It is read only if the message can expire.
        """
        if self.message.expires_at is not None:
            remaining = self._remaining(now)
            if protocol_version == 5:  # the remaining seconds differ each time, so this form is not kept
                head, tail = self._encode(True, qos, retain, identifiers, remaining)
                return head + packet_identifier.to_bytes(2, "big") + tail if qos else head
        form = (protocol_version == 5, qos, retain, identifiers)
        parts = self._forms.get(form)
        if parts is None:
            parts = self._forms[form] = self._encode(protocol_version == 5, qos, retain, identifiers, None)
        if qos:
            return parts[0] + packet_identifier.to_bytes(2, "big") + parts[1]
        return parts[0]

    def _remaining(self, now: int) -> int:
        assert self.message.expires_at is not None
        if has_expired(self.message.expires_at, now):
            raise Expired
        return seconds_left(self.message.expires_at, now)

    def _encode(
        self, with_properties: bool, qos: int, retain: bool, identifiers: tuple[int, ...], remaining: int | None
    ) -> tuple[bytes, bytes]:
        """Return the parts before and after the Packet Identifier. With QoS 0 the first part is the whole packet."""
        message = self.message
        block = self._block(identifiers, remaining) if with_properties else b""
        packet = encode_publish(self._topic, message.payload, qos, retain, False, 1 if qos else 0, block)
        if not qos:
            return packet, b""
        # The Packet Identifier, here 1 as a placeholder, is between the Topic Name and the properties.
        end = len(packet) - len(message.payload) - len(block)
        return packet[: end - 2], packet[end:]

    def _block(self, identifiers: tuple[int, ...], remaining: int | None) -> bytes:
        block = self._properties.get(identifiers)
        if block is None:
            properties = self.message.properties
            if identifiers:
                properties = attrs.evolve(properties, subscription_identifiers=identifiers)
            block = self._properties[identifiers] = encode_properties(properties)
        if remaining is None:
            return block
        # Only the remaining seconds differ each time: the other properties, perhaps many, are not encoded again.
        length, start = read_variable_byte_integer(block, 0)
        interval = b"\x02" + remaining.to_bytes(4, "big")
        return encode_variable_byte_integer(length + len(interval)) + interval + block[start:]
