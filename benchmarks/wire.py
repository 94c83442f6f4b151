"""Encoded Control Packets: every PUBLISH of one kind has the same size, so messages can be counted by bytes."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC = b"site/%03d/dev/%07d/temp"
TOPIC_SIZE = len(TOPIC % (0, 0))
PAYLOAD = b"value=%014d"
PAYLOAD_SIZE = len(PAYLOAD % 0)
PING_TOPIC = b"ping/000/dev/0000000/temp"  # as long as TOPIC, so that pings and retained messages can share a stream

ID_OFFSET = 2 + 2 + len(b"site/000/dev/")  # the position of the seven digits that number the messages
ID_SIZE = 7
PACKET_ID_OFFSET = 2 + 2 + TOPIC_SIZE

PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
DISCONNECT = b"\xe0\x00"

SUBSCRIBE_ID = b"\x01\x01"  # without a zero byte, so that a SUBACK never looks like the start of a PUBLISH

PUBLISH_LIVE = 0x30
PUBLISH_RETAINED = 0x31
PUBACK = 0x40
SUBACK = 0x90
CONNACK = 0x20

RECEIVE_MAXIMUM_DEFAULT = 65535
_RECEIVE_MAXIMUM = 0x21
# Sizes of the fixed-size CONNACK properties [MQTT5-3.2.2.3]; strings and string pairs are told apart below.
_FIXED_PROPERTIES = {0x11: 4, 0x13: 2, 0x21: 2, 0x22: 2, 0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1}
_STRING_PROPERTIES = {0x12: 1, 0x15: 1, 0x16: 1, 0x1A: 1, 0x1C: 1, 0x1F: 1, 0x26: 2}


def _string(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


@dataclass(frozen=True)
class Wire:
    """The packets of one protocol version (4 is MQTT 3.1.1, 5 is MQTT 5.0)."""

    version: int

    @property
    def properties(self) -> bytes:
        """An empty property block, if the version has one."""
        return b"\x00" if self.version == 5 else b""

    def connect(self, client_id: bytes) -> bytes:
        """A CONNECT with a clean Session and Keep Alive off."""
        body = _string(b"MQTT") + bytes([self.version, 0x02, 0, 0]) + self.properties + _string(client_id)
        return bytes([0x10, len(body)]) + body

    def subscribe(self, topic_filter: bytes, qos: int) -> bytes:
        """A SUBSCRIBE with one Topic Filter."""
        body = SUBSCRIBE_ID + self.properties + _string(topic_filter) + bytes([qos])
        return bytes([0x82, len(body)]) + body

    def publish_size(self, qos: int) -> int:
        """The size in bytes of every PUBLISH of `publishes` and `ping`."""
        return 2 + 2 + TOPIC_SIZE + (2 if qos else 0) + len(self.properties) + PAYLOAD_SIZE

    def publishes(self, first: int, count: int, qos: int, retain: bool = False) -> bytes:
        """PUBLISH packets for the topics numbered `first` to `first + count - 1`, end to end."""
        head = bytes([PUBLISH_LIVE | qos << 1 | retain, self.publish_size(qos) - 2])
        head += TOPIC_SIZE.to_bytes(2, "big") + TOPIC
        tail = self.properties + PAYLOAD
        numbers = range(first, first + count)
        if not qos:
            template = head + tail
            return b"".join([template % (i % 1000, i, i) for i in numbers])
        template = head + b"%c%c" + tail
        packets = []
        for i in numbers:
            packet_id = (i - first) % 65535 + 1
            packets.append(template % (i % 1000, i, packet_id >> 8, packet_id & 0xFF, i))
        return b"".join(packets)

    def ping(self, qos: int = 0) -> bytes:
        """One live PUBLISH, as large as the others."""
        packet_id = b"\x00\x01" if qos else b""
        head = bytes([PUBLISH_LIVE | qos << 1, self.publish_size(qos) - 2])
        return head + _string(PING_TOPIC) + packet_id + self.properties + PAYLOAD % 0


def receive_maximum(connack: bytes, version: int) -> int:
    """The number of unacknowledged QoS 1 PUBLISH packets that the Server accepts [MQTT5-3.2.2.3.3]."""
    if version != 5:
        return RECEIVE_MAXIMUM_DEFAULT
    at = 2
    while connack[at - 1] & 0x80:
        at += 1
    at += 2
    while connack[at] & 0x80:
        at += 1
    at += 1
    while at < len(connack):
        kind = connack[at]
        at += 1
        if kind == _RECEIVE_MAXIMUM:
            return int.from_bytes(connack[at : at + 2], "big")
        if kind in _FIXED_PROPERTIES:
            at += _FIXED_PROPERTIES[kind]
            continue
        for _ in range(_STRING_PROPERTIES[kind]):
            at += 2 + int.from_bytes(connack[at : at + 2], "big")
    return RECEIVE_MAXIMUM_DEFAULT


def pubacks(buffer: bytearray, start: int, count: int, size: int) -> bytearray:
    """PUBACK packets for `count` QoS 1 PUBLISH packets of `size` bytes, one after the other from `start`.

    It copies column by column with strided slices: two copies in C for any number of packets.
    """
    end = start + count * size
    acks = bytearray(b"\x40\x02\x00\x00") * count
    acks[2::4] = buffer[start + PACKET_ID_OFFSET : end : size]
    acks[3::4] = buffer[start + PACKET_ID_OFFSET + 1 : end : size]
    return acks
