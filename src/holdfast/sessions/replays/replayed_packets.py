"""Rewrites the PUBLISH packets of a replay for one subscription, without decoding and encoding them.

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
:func:`numbered` rewrites them together: four pieces for each packet, and one join. Its plain twin is :func:`rewritten`,
packet by packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

from holdfast.wire import encode_variable_byte_integer
from holdfast.wire.datatypes import read_variable_byte_integer

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
