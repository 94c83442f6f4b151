"""What has been sent to a Client with QoS 1 or 2 and is not yet acknowledged [MQTT5-4.3], [MQTT5-4.4]."""

from __future__ import annotations

import attrs
from attrs import define

from holdfast.messages import seconds_left
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.state.interfaces import DeliveryState, KeptMessage
from holdfast.wire import PacketParser, Properties, encode
from holdfast.wire.packets import Publish


@define(eq=False)
class Delivery:
    """What is remembered of a delivery beyond its packet: its place in the store, and what it takes to redeliver it.

    ``message`` is None where nothing is stored, ``outgoing`` where it is not for a shared subscription.
    """

    seq: int
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    message: KeptMessage | None
    shared_filter: str | None = None
    outgoing: OutgoingMessage | None = None
    noted: bool = False

    def state(self, packet_identifier: int, released: bool = False) -> DeliveryState:
        """Return what is to be kept of it now."""
        message = None if self.message is None or released else self.message.identifier
        return DeliveryState(
            self.seq, message, self.qos, self.retain, self.identifiers, packet_identifier, released, self.shared_filter
        )


@define(eq=False)
class Inflight:
    """One PUBLISH on its way, or (``released``) the PUBREL that follows it.

    ``packet`` is the PUBLISH as first sent, DUP 0, encoded for ``protocol_version``; ``expires_at`` is in
    milliseconds since the epoch (0 for never); ``replayed`` tells it is a retained message sent for a subscription.
    ``waiting`` tells that it may not leave before its state is durable, ``over`` that the exchange is complete.
    """

    packet: bytes
    qos: int
    protocol_version: int
    expires_at: int = 0
    replayed: bool = False
    delivery: Delivery | None = None
    released: bool = False
    waiting: bool = False
    over: bool = False

    def again(self, protocol_version: int, now: int) -> bytes:
        """Return the PUBLISH for sending it once more, with DUP 1 [MQTT5-3.3.1-1]."""
        return self._at(protocol_version, now, True)

    def late(self, now: int) -> bytes | None:
        """Return the PUBLISH for sending it for the first time after a wait; None if it has expired meanwhile."""
        if not self.expires_at:
            return self.packet
        if self.expires_at <= now:
            return None
        return self._at(self.protocol_version, now, False)

    def _at(self, protocol_version: int, now: int, dup: bool) -> bytes:
        """Return the PUBLISH as it is to be now: its Message Expiry Interval counts down."""
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


class PacketIdentifiers:
    """Packet Identifiers 1..65535 in turn, leaving out those in use [MQTT5-2.2.1-3]."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self, used: dict[int, Inflight]) -> int:
        """Return a free Packet Identifier. There is one, since no window is wider than their number."""
        candidate = self._last
        while True:
            candidate = candidate + 1 if candidate < 65535 else 1
            if candidate not in used:
                self._last = candidate
                return candidate
