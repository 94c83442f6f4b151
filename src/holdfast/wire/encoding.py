"""Encodes Control Packets to bytes. Every function raises ValueError for values that the standard does not allow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from holdfast.wire import packets as p
from holdfast.wire.datatypes import encode_binary, encode_string, encode_variable_byte_integer
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import encode_properties


def encode(packet: p.Packet, protocol_version: int) -> bytes:
    """Encode a Control Packet for this protocol version (3, 4 or 5)."""
    first, body = _ENCODERS[type(packet)](packet, protocol_version == 5)
    return bytes((first,)) + encode_variable_byte_integer(len(body)) + body


def encode_publish(
    topic: bytes, payload: bytes, qos: int, retain: bool, dup: bool, packet_identifier: int, properties: bytes
) -> bytes:
    """Encode a PUBLISH. The topic is in UTF-8; ``properties`` is a property block with its length, b"" in MQTT 3."""
    first = 0x30 | qos << 1 | retain
    if dup:
        first |= 8
    size = len(topic)
    if size > 65535:
        raise ValueError(f"a Topic Name has at most 65535 bytes, not {size}")
    length = 2 + size + len(properties) + len(payload)
    if not qos:
        if length < 128:
            return b"%c%c%c%c%b%b%b" % (first, length, size >> 8, size & 255, topic, properties, payload)
        return b"%c%b%c%c%b%b%b" % (
            first, encode_variable_byte_integer(length), size >> 8, size & 255, topic, properties, payload
        )  # fmt: skip
    return b"%c%b%c%c%b%c%c%b%b" % (
        first, encode_variable_byte_integer(length + 2), size >> 8, size & 255, topic,
        packet_identifier >> 8, packet_identifier & 255, properties, payload,
    )  # fmt: skip


def _identifier(value: int) -> bytes:
    if not 1 <= value <= 65535:
        raise ValueError(f"a Packet Identifier is 1..65535, not {value}")
    return value.to_bytes(2, "big")


def _block(properties: Properties, with_properties: bool) -> bytes:
    return encode_properties(properties) if with_properties else b""


def _connect(packet: p.Connect, v5: bool) -> tuple[int, bytes]:
    level = packet.protocol_version
    will = packet.will
    flags = packet.clean_start << 1
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
    if packet.password is not None:
        flags |= 0x40
    if packet.username is not None:
        flags |= 0x80
    parts = [
        encode_string("MQIsdp" if level == 3 else "MQTT"),
        bytes((level | packet.bridge << 7, flags)),
        packet.keep_alive.to_bytes(2, "big"),
        _block(packet.properties, v5),
        encode_string(packet.client_id),
    ]
    if will is not None:
        parts += [_block(will.properties, v5), encode_string(will.topic), encode_binary(will.payload)]
    if packet.username is not None:
        parts.append(encode_string(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    return 0x10, b"".join(parts)


def _connack(packet: p.Connack, v5: bool) -> tuple[int, bytes]:
    return 0x20, bytes((packet.session_present, packet.reason_code)) + _block(packet.properties, v5)


def _publish(packet: p.Publish, v5: bool) -> tuple[int, bytes]:
    first = 0x30 | packet.dup << 3 | packet.qos << 1 | packet.retain
    identifier = _identifier(packet.packet_identifier) if packet.qos else b""
    return first, encode_string(packet.topic) + identifier + _block(packet.properties, v5) + packet.payload


def _acknowledgement(first: int) -> Callable[[Any, bool], tuple[int, bytes]]:
    def encoder(packet: p.Puback | p.Pubrec | p.Pubrel | p.Pubcomp, v5: bool) -> tuple[int, bytes]:
        body = _identifier(packet.packet_identifier)
        if v5 and packet.properties != NO_PROPERTIES:
            body += bytes((packet.reason_code,)) + encode_properties(packet.properties)
        elif v5 and packet.reason_code:
            body += bytes((packet.reason_code,))
        return first, body

    return encoder


def _subscribe(packet: p.Subscribe, v5: bool) -> tuple[int, bytes]:
    parts = [_identifier(packet.packet_identifier), _block(packet.properties, v5)]
    for request in packet.subscriptions:
        options = request.qos
        if v5:
            options |= request.no_local << 2 | request.retain_as_published << 3 | request.retain_handling << 4
        parts += encode_string(request.topic_filter), bytes((options,))
    return 0x82, b"".join(parts)


def _suback(packet: p.Suback, v5: bool) -> tuple[int, bytes]:
    return 0x90, _identifier(packet.packet_identifier) + _block(packet.properties, v5) + bytes(packet.reason_codes)


def _unsubscribe(packet: p.Unsubscribe, v5: bool) -> tuple[int, bytes]:
    filters = b"".join(map(encode_string, packet.topic_filters))
    return 0xA2, _identifier(packet.packet_identifier) + _block(packet.properties, v5) + filters


def _unsuback(packet: p.Unsuback, v5: bool) -> tuple[int, bytes]:
    codes = bytes(packet.reason_codes) if v5 else b""
    return 0xB0, _identifier(packet.packet_identifier) + _block(packet.properties, v5) + codes


def _reasoned(first: int) -> Callable[[Any, bool], tuple[int, bytes]]:
    def encoder(packet: p.Disconnect | p.Auth, v5: bool) -> tuple[int, bytes]:
        if not v5 or (not packet.reason_code and packet.properties == NO_PROPERTIES):
            return first, b""
        body = bytes((packet.reason_code,))
        if packet.properties != NO_PROPERTIES:
            body += encode_properties(packet.properties)
        return first, body

    return encoder


_ENCODERS: dict[type[Any], Callable[[Any, bool], tuple[int, bytes]]] = {
    p.Connect: _connect,
    p.Connack: _connack,
    p.Publish: _publish,
    p.Puback: _acknowledgement(0x40),
    p.Pubrec: _acknowledgement(0x50),
    p.Pubrel: _acknowledgement(0x62),
    p.Pubcomp: _acknowledgement(0x70),
    p.Subscribe: _subscribe,
    p.Suback: _suback,
    p.Unsubscribe: _unsubscribe,
    p.Unsuback: _unsuback,
    p.Pingreq: lambda _packet, _v5: (0xC0, b""),
    p.Pingresp: lambda _packet, _v5: (0xD0, b""),
    p.Disconnect: _reasoned(0xE0),
    p.Auth: _reasoned(0xF0),
}


# PUBACK packets without a Reason Code, one behind the other: read and written together.
#
# How it works. Such a packet has four bytes, and only the last two differ. All 65535 of them, in the order of their
# Packet Identifiers, are one constant of 256 KiB. So the acknowledgements of consecutive messages are a part of it, and
# one comparison of bytes recognizes them:
#
#     pubacks(7, 3)                                    40 02 00 07  40 02 00 08  40 02 00 09
#     stretch_end(b"@\2\0\7@\2\0\x08\xc0\0", 0, 100)   8: two packets, then PINGREQ
#
# The plain twin is the parser without stretches: one :class:`~holdfast.wire.packets.Puback` for each packet.


#: the high and the low bytes of all Packet Identifiers, in their order
HIGH = b"".join(bytes((high,)) * 256 for high in range(256))
LOW = bytes(range(256)) * 256

#: the first bytes of a PUBACK without a Reason Code: its type, and the Remaining Length
_TYPE, _LENGTH = b"\x40", b"\x02"
_ZERO = b"\x40\x02\x00\x00"


@cache
def _all() -> bytes:
    """Return the packets for the identifiers 0 to 65535. Made when the first one is needed."""
    packets = bytearray(_ZERO) * 65536
    packets[2::4] = HIGH
    packets[3::4] = LOW
    return bytes(packets)


def pubacks(first: int, count: int) -> bytes:
    """Return the PUBACK packets for ``count`` Packet Identifiers from ``first`` on."""
    return _all()[4 * first : 4 * (first + count)]


def stretch_end(data: bytes, start: int, most: int) -> int:
    """Return where the PUBACK packets end that begin at ``start``: whole ones of four bytes, ``most`` at most.

    A packet with the Packet Identifier 0 ends the stretch, since it is malformed.
    """
    count = min(most, (len(data) - start) // 4)
    end = start + 4 * count
    for offset, byte in enumerate((_TYPE, _LENGTH)):
        column = data[start + offset : end : 4]
        end = start + 4 * (len(column) - len(column.lstrip(byte)))
    # These bytes are found at the start of a packet only: at every other place, a type or a length would differ.
    zero = data.find(_ZERO, start, end)
    return end if zero < 0 else zero
