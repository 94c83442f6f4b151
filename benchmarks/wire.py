"""Encoded Control Packets of the clients in Python: all pings have one size, so they can be counted by their bytes."""

from __future__ import annotations

from dataclasses import dataclass

TOPIC = b"site/%03d/dev/%07d/temp"
TOPIC_SIZE = len(TOPIC % (0, 0))
PAYLOAD = b"value=%014d"
PAYLOAD_SIZE = len(PAYLOAD % 0)
PING_TOPIC = b"ping/000/dev/0000000/temp"

LARGEST = 10**7  # topics are numbered from 0 to one less
PACKET_ID_OFFSET = 2 + 2 + TOPIC_SIZE

PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
DISCONNECT = b"\xe0\x00"

SUBSCRIBE_ID = b"\x01\x01"

PUBLISH = 0x30
SUBACK = 0x90
CONNACK = 0x20


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
        """The size in bytes of `ping`."""
        return 2 + 2 + TOPIC_SIZE + (2 if qos else 0) + len(self.properties) + PAYLOAD_SIZE

    def ping(self, qos: int = 0) -> bytes:
        """A live PUBLISH."""
        packet_id = b"\x00\x01" if qos else b""
        head = bytes([PUBLISH | qos << 1, self.publish_size(qos) - 2])
        return head + _string(PING_TOPIC) + packet_id + self.properties + PAYLOAD % 0
