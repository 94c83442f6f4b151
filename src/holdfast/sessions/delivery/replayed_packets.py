"""Sends the slices of a replay in the form of its subscription.

A slice is sent in one of four ways: unchanged, if the subscription needs no other form; numbered together, if all
packets get QoS 1 and nothing else, and the Session keeps no packets; packet by packet, if the subscription needs any
other change of QoS, a Subscription Identifier or an expiry interval; or message by message, if the authorizer answers
later.

How it works. A slice of retained messages comes from the store as PUBLISH packets, one behind the other, encoded for
QoS 0 and the Client's protocol version. For a plain QoS 0 subscription the slice is sent unchanged.
Otherwise a subscription may need three changes, all of them near the beginning of a packet:

    31 0b | 00 03 a/b |         00                      | hello    read: QoS 0, no properties
    33 14 | 00 03 a/b | 00 07 | 07 0b 2a 02 00 00 00 3c | hello    sent: QoS 1, Packet Identifier 7, Subscription
                                                                   Identifier 42, 60 seconds to live

So a packet is cut at three places (:data:`Packet`) and joined again around the new fields. The payload and the stored
properties are copied, never read. Decoding every packet into a PUBLISH and encoding it again took several times as
long, and was left out: a replay may have a million packets.

Most often all packets of a slice get QoS 1 and nothing else, under Packet Identifiers that follow each other. Then
:func:`numbered` rewrites them together: four pieces for each packet, and one join. Its plain twin is
:func:`rewritten`, packet by packet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from struct import pack
from typing import Protocol

from twisted.internet.defer import Deferred

from holdfast.core.messages import ApplicationMessage, has_expired, seconds_left
from holdfast.core.topics import CHANGES_PREFIX
from holdfast.retained.rules import Subscriber
from holdfast.retained.store.slices import only
from holdfast.retained.store.values import Slice
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.markers import send_retained, send_retained_block
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.replay_positions import ReplayPosition
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.state import TOO_LARGE, Subscription
from holdfast.wire import PacketParser, encode_variable_byte_integer
from holdfast.wire.datatypes import read_variable_byte_integer
from holdfast.wire.packets import Publish

#: The most bytes by which a packet grows when it is rewritten: Packet Identifier, Subscription Identifier, Message
#: Expiry Interval, and longer lengths.
GROWTH = 2 + 5 + 5 + 4


class IReplays(Protocol):
    """The methods of all replays of a Client that one replay calls."""

    def save_position(self, topic_filter: str) -> None:
        """Store the position of one replay."""

    def share_window(self) -> None:
        """Share the window between live messages and the replays that have begun."""

    def log_left_out(self, topic_filter: str, count: int) -> None:
        """Log that messages are longer than the Client's Maximum Packet Size."""

    def finished(self, topic_filter: str) -> None:
        """Forget a replay that has delivered everything."""


class SliceSender:
    """Sends the slices of one replay. The subscription's options are looked up for each slice."""

    def __init__(
        self,
        *,
        topic_filter: str,
        link: Connection,
        session: Session,
        replays: IReplays,
        counters: Counters,
        position: ReplayPosition,
    ) -> None:
        #: whether messages were given to the Session's queue, because the authorizer answers later
        self.queued = False
        self._topic_filter = topic_filter
        self._link = link
        self._session = session
        self._counters = counters
        self._position = position
        self._replays = replays

    @property
    def subscription(self) -> Subscription:
        """The subscription, as it is now."""
        return self._session.subscriptions[self._topic_filter]

    @property
    def highest_qos(self) -> int:
        """The highest QoS with which a message of this replay may be sent."""
        qos = self.subscription.qos
        return 2 if self.upgrades and qos else qos

    @property
    def upgrades(self) -> bool:
        """Whether the higher QoS counts. Changes of the past have QoS 2, so that none overtakes another."""
        return self._session.limits.upgrade_qos and not self._topic_filter.startswith(CHANGES_PREFIX)

    def left_out(self, count: int) -> None:
        """Count messages above the Client's Maximum Packet Size, like live ones [MQTT5-3.1.2-25], and log them."""
        self._counters.messages_dropped_too_large += count
        if self._position.marker is not None:
            self._position.marker.left_out.add(TOO_LARGE)
        self._replays.log_left_out(self._topic_filter, count)

    def send(self, messages: Slice) -> None:
        """Send the slice in the fastest of the ways that its subscription allows."""
        if not messages.qos:
            self._note_sent(messages.count, len(messages.packets))
            self._link.send_messages(messages.packets, messages.count)
        elif not (self.is_numbered(messages) and self._send_numbered(messages)):
            self._send_rewritten(messages)

    def is_numbered(self, messages: Slice) -> bool:
        """Tell whether each packet gets QoS 1 and a Packet Identifier, and no other change."""
        subscription = self.subscription
        maximum = self._link.maximum_packet_size
        return (
            subscription.qos == 1
            and self._session.inflight.in_blocks
            and not self.upgrades
            and subscription.identifier is None
            and not messages.soonest_expiry
            and bool(messages.qos)
            and 0 not in messages.qos
            and (maximum is None or len(messages.packets) + GROWTH <= maximum)
        )

    def _send_numbered(self, messages: Slice) -> bool:
        """Send the slice with QoS 1. Returns False if no free Packet Identifiers follow each other."""
        first = self._session.inflight.next_block(messages.count)
        if first:
            self._note_sent(messages.count, len(messages.packets))
            packets = numbered(messages.packets, messages.count, first)
            send_retained_block(self._session, packets, first, messages.count)
        return bool(first)

    def _send_rewritten(self, messages: Slice) -> None:
        """Send each packet with its QoS, Packet Identifier, Subscription Identifier and remaining expiry interval."""
        session = self._session
        link = self._link
        subscription = self.subscription
        upgrade = self.upgrades
        maximum = link.maximum_packet_size
        v5 = link.protocol_version == 5
        now = session.now()
        position = session.replay_positions.get(self._topic_filter) if session.record.durable else None
        noted = self.highest_qos == 2
        identifier = b""
        if v5 and subscription.identifier is not None:
            identifier = subscription_identifier(subscription.identifier)
        joined = messages.packets
        too_large = sent = size = 0
        together: list[bytes] = []  # QoS 0 packets not sent yet; sent before the next QoS 1 or 2 packet, in order
        cursors = messages.cursors or repeat("", messages.count)
        for packet, stored_qos, expires_at, cursor in zip(
            packets_of(joined), messages.qos, messages.expires_at, cursors, strict=True
        ):
            # The slice was read a moment ago, and a message may have expired since.
            if has_expired(expires_at, now):
                self._counters.messages_dropped_expired += 1
                continue
            qos = subscription.qos
            if stored_qos != qos:
                qos = max(stored_qos, qos) if upgrade else min(stored_qos, qos)
            properties = identifier
            if v5 and expires_at:
                properties = properties + message_expiry_interval(seconds_left(expires_at, now))
            packet_identifier = session.inflight.next_identifier() if qos else 0
            data = rewritten(joined, packet, qos, packet_identifier, properties)
            if maximum is not None and len(data) > maximum:
                too_large += 1
                continue
            sent += 1
            size += len(data)
            if qos:
                if together:
                    link.send_messages(b"".join(together), len(together))
                    together.clear()
                topic = topic_of(joined, packet)
                entry = send_retained(session, data, packet_identifier, topic, qos, expires_at, noted)
                if position is not None and not noted:
                    position.sent(entry, cursor or topic)
            else:
                together.append(data)
        if together:
            link.send_messages(b"".join(together), len(together))
        if too_large:
            self.left_out(too_large)
        self._note_sent(sent, size)
        if noted:  # in the same transaction as the deliveries
            self._replays.save_position(self._topic_filter)

    def send_allowed(self, messages: Slice, subscriber: Subscriber) -> None:
        """Ask about each message whether the subscriber may receive it, and send the allowed ones in their order."""
        # With an epoch, answers depend on the topic only, as for live messages: decoding the rest would cost more.
        subjects = self._decoded(messages) if subscriber.authorizer.epoch is None else self._named(messages)
        answers = [subscriber.may_receive(message) for message in subjects]
        if any(isinstance(answer, Deferred) for answer in answers):
            self._send_when_allowed(list(zip(self._decoded(messages), answers, strict=True)))
            return
        allowed = [number for number, answer in enumerate(answers) if answer]
        self._note_withheld(len(answers) - len(allowed))
        if allowed:
            self.send(only(messages, allowed, self._link.protocol_version))

    def _named(self, messages: Slice) -> Iterator[ApplicationMessage]:
        joined = messages.packets
        for packet in packets_of(joined):
            yield ApplicationMessage(topic_of(joined, packet), b"")

    def _decoded(self, messages: Slice) -> Iterator[ApplicationMessage]:
        parser = PacketParser(len(messages.packets), self._link.protocol_version)
        parser.receive_data(messages.packets)
        for qos, expires_at in zip(messages.qos, messages.expires_at, strict=True):
            publish = parser.next_packet()
            assert isinstance(publish, Publish)
            yield ApplicationMessage(
                publish.topic,
                publish.payload,
                qos,
                True,
                properties=publish.properties,
                expires_at=expires_at or None,
            )

    def _send_when_allowed(self, asked: Sequence[tuple[ApplicationMessage, bool | Deferred[bool]]]) -> None:
        """Deliver the messages like live ones: the queue bounds them, since the authorizer may take long."""
        session = self._session
        subscription = self.subscription
        identifiers = () if subscription.identifier is None else (subscription.identifier,)
        options = DeliveryOptions(subscription.qos, True, identifiers)
        self.queued = True
        for message, answer in asked:
            deliver = partial(self._deliver_like_live, OutgoingMessage(message), options)
            if session.permissions.order.add(answer, deliver) is False:
                self._note_withheld(1)

    def _deliver_like_live(self, outgoing: OutgoingMessage, options: DeliveryOptions) -> None:
        self._note_sent(1, outgoing.size())
        self._session.deliver(outgoing, options, conflates=False)

    def _note_sent(self, count: int, size: int) -> None:
        if self._position.marker is not None:
            self._position.marker.sent(count, size)

    def _note_withheld(self, count: int) -> None:
        self._counters.deliveries_not_authorized += count
        self._counters.replayed_not_authorized += count


# The packets.


#: identifiers of properties
_MESSAGE_EXPIRY_INTERVAL, _SUBSCRIPTION_IDENTIFIER = b"\x02", b"\x0b"
#: the first byte of a PUBLISH with RETAIN 1 and QoS 0
_PUBLISH_RETAIN = 0x31
#: By the Remaining Length of a short QoS 0 packet: the fixed header of the same packet with QoS 1. It has a Packet
#: Identifier of two bytes more, and the length is still one byte.
_SHORT = 126
_NUMBERED_HEADERS = tuple(bytes((_PUBLISH_RETAIN | 1 << 1, length + 2)) for length in range(_SHORT))

#: The positions of one QoS 0 PUBLISH among joined packets: its start; the Topic Name with its length, after the fixed
#: header; the properties (MQTT 5) and the payload; its end. A plain tuple, since one is made for every message.
Packet = tuple[int, int, int, int]


def packets_of(joined: bytes) -> Iterator[Packet]:
    """Yield the positions of each packet."""
    start = 0
    while start < len(joined):
        length = joined[start + 1]
        topic = start + 2
        if length > 127:  # most packets are short, and need no call
            length, topic = read_variable_byte_integer(joined, start + 1)
        end = topic + length
        yield start, topic, topic + 2 + (joined[topic] << 8 | joined[topic + 1]), end
        start = end


def topic_of(joined: bytes, packet: Packet) -> str:
    """Return the Topic Name of a packet."""
    return joined[packet[1] + 2 : packet[2]].decode()


def subscription_identifier(identifier: int) -> bytes:
    """Return the encoded Subscription Identifier property."""
    return _SUBSCRIPTION_IDENTIFIER + encode_variable_byte_integer(identifier)


def message_expiry_interval(seconds: int) -> bytes:
    """Return the encoded Message Expiry Interval property."""
    return _MESSAGE_EXPIRY_INTERVAL + seconds.to_bytes(4, "big")


def rewritten(joined: bytes, packet: Packet, qos: int, packet_identifier: int, properties: bytes) -> bytes:
    """Return a packet with this QoS and Packet Identifier, and with these encoded properties before its own.

    ``properties`` is b"" where none are added, as always in MQTT 3.
    """
    start, topic, rest, end = packet
    if not qos and not properties:
        return joined[start:end]
    tail = joined[rest:end]
    if properties:
        length, after = read_variable_byte_integer(tail, 0)
        tail = encode_variable_byte_integer(length + len(properties)) + properties + tail[after:]
    middle = packet_identifier.to_bytes(2, "big") if qos else b""
    size = encode_variable_byte_integer(rest - topic + len(middle) + len(tail))
    return b"%c%b%b%b%b" % (_PUBLISH_RETAIN | qos << 1, size, joined[topic:rest], middle, tail)


def numbered(joined: bytes, packets: int, first: int) -> bytes:
    """Return the joined packets with QoS 1, under Packet Identifiers from ``first`` on.

    There are as many free ones as ``packets``.
    """
    pieces: list[bytes] = []
    identifiers = pack(f">{packets}H", *range(first, first + packets))
    start = number = 0
    size = len(joined)
    while start < size:  # a slice has many packets: no call for a short one
        length, topic = joined[start + 1], start + 2
        if length < _SHORT:
            header = _NUMBERED_HEADERS[length]
        else:
            length, topic = read_variable_byte_integer(joined, start + 1)
            header = _NUMBERED_HEADERS[0][:1] + encode_variable_byte_integer(length + 2)
        start = topic + length
        rest = topic + 2 + (joined[topic] << 8 | joined[topic + 1])
        pieces += (header, joined[topic:rest], identifiers[number : number + 2], joined[rest:start])
        number += 2
    return b"".join(pieces)
