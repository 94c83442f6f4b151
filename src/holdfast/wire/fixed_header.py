"""The first byte of a Control Packet: its type and its flags [MQTT5-2.1.1].

It is judged as soon as it has arrived: a packet that is wrong by its first byte is not waited for.
"""

from __future__ import annotations

from holdfast.wire.errors import MalformedPacket, ProtocolError

_NAMES = (
    "", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE",
    "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip
#: The types that only a Server sends.
_OF_SERVERS = (2, 9, 11, 13)
#: PUBLISH with every allowed combination of DUP, QoS and RETAIN: no QoS 3, no DUP at QoS 0.
PUBLISHES = frozenset((0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D))
_MQTT311 = frozenset((
    0x10, 0x20, *PUBLISHES, 0x40, 0x50, 0x62, 0x70, 0x82, 0x90, 0xA2, 0xB0, 0xC0, 0xD0, 0xE0
))  # fmt: skip
#: By protocol version. MQTT 3.1 allows DUP on PUBREL, SUBSCRIBE and UNSUBSCRIBE (section 2.1 of its specification).
_OF_ALL: dict[int | None, frozenset[int]] = {
    None: frozenset((0x10,)),
    3: _MQTT311 | {0x6A, 0x8A, 0xAA},
    4: _MQTT311,
    5: _MQTT311 | {0xF0},
}
#: What a Client may send: its first packet is CONNECT, and no later one [MQTT5-3.1.0-1], [MQTT5-3.1.0-2].
_OF_CLIENTS: dict[int | None, frozenset[int]] = {
    version: firsts if version is None else frozenset(one for one in firsts if one >> 4 not in (1, *_OF_SERVERS))
    for version, firsts in _OF_ALL.items()
}


def check_first_byte(first: int, protocol_version: int | None, from_client: bool) -> None:
    """Raise :class:`MalformedPacket` or :class:`ProtocolError` if no packet may begin with this byte.

    ``protocol_version`` is 3, 4 or 5, None before CONNECT. ``from_client`` also refuses what only a Server may send,
    and a second CONNECT.
    """
    if first in (_OF_CLIENTS if from_client else _OF_ALL)[protocol_version]:
        return
    packet_type = first >> 4
    if protocol_version is None and packet_type != 1:
        raise ProtocolError("the first packet is not CONNECT")  # [MQTT5-3.1.0-1]
    if not packet_type or (packet_type == 15 and protocol_version != 5):
        raise MalformedPacket(f"there is no Control Packet type {packet_type}")
    if from_client and packet_type in _OF_SERVERS:
        raise ProtocolError(f"a Client does not send {_NAMES[packet_type]}")
    if from_client and packet_type == 1 and protocol_version is not None:
        raise ProtocolError("a Client sends CONNECT only once")  # [MQTT5-3.1.0-2]
    if packet_type == 3:
        if first & 6 == 6:
            raise MalformedPacket("there is no QoS 3")  # [MQTT5-3.3.1-4]
        raise MalformedPacket("DUP is 0 at QoS 0")  # [MQTT5-3.3.1-2]
    raise MalformedPacket(f"reserved flags of {_NAMES[packet_type]} are set")  # [MQTT5-2.1.3-1]
