"""The fifteen Control Packets as values, with the standard's field names [MQTT5-3].

PUBLISH and its acknowledgements are made once for each message, so they are hot values; the others are really frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from attrs import define, frozen

from holdfast.hot_values import hot_frozen
from holdfast.wire.datatypes import Cursor, MalformedPacket, ProtocolError
from holdfast.wire.properties import NO_PROPERTIES, Properties


@frozen
class Will:
    """The Will Message inside CONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@frozen
class Connect:
    """A Client requests a connection with MQTT 3.1, 3.1.1 or 5 (``protocol_version`` is 3, 4 or 5).

    ``bridge`` is the bit 0x80 of the protocol level, which mosquitto's bridges set.
    """

    client_id: str
    protocol_version: int = 4
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES
    bridge: bool = False


@frozen
class Connack:
    """The answer to CONNECT. In MQTT 3, ``reason_code`` is a Connect Return Code."""

    session_present: bool
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@hot_frozen
class Publish:
    """An Application Message on the wire. ``packet_identifier`` is 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_identifier: int = 0
    properties: Properties = NO_PROPERTIES


@frozen
class ExcessivePublish:
    """A QoS 1 or 2 PUBLISH whose properties exceed what the receiver accepts, as far as it is decoded.

    ``topic_alias`` is 0 if it has none, None if that is unknown. ``explanation`` names the limit.
    """

    topic: str
    qos: int
    packet_identifier: int
    topic_alias: int | None
    explanation: str


@hot_frozen
class Puback:
    """The answer to a QoS 1 PUBLISH."""

    packet_identifier: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@define(eq=False)
class Pubacks:
    """Several PUBACK packets without a Reason Code, one behind the other (see :mod:`.encoding`).

    Whoever acts on them sets ``steps``, the number of steps that this took: one for all packets that acknowledge one
    block in its order.
    """

    packets: bytes
    steps: int = 0

    @property
    def count(self) -> int:
        """The number of packets."""
        return len(self.packets) // 4


@hot_frozen
class Pubrec:
    """The first answer to a QoS 2 PUBLISH."""

    packet_identifier: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@hot_frozen
class Pubrel:
    """The answer to PUBREC."""

    packet_identifier: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@hot_frozen
class Pubcomp:
    """The answer to PUBREL: the QoS 2 exchange is complete."""

    packet_identifier: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@frozen
class SubscriptionRequest:
    """One Topic Filter of a SUBSCRIBE with its Subscription Options."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@frozen
class Subscribe:
    """A Client asks for subscriptions. A long packet is decoded during each iteration."""

    packet_identifier: int
    subscriptions: Iterable[SubscriptionRequest]
    properties: Properties = NO_PROPERTIES


@frozen
class ExcessiveSubscribe:
    """A SUBSCRIBE whose properties exceed what the receiver accepts. ``explanation`` names the limit."""

    packet_identifier: int
    subscriptions: Iterable[SubscriptionRequest]
    explanation: str


@frozen
class Suback:
    """The answer to SUBSCRIBE, one Reason Code per Topic Filter."""

    packet_identifier: int
    reason_codes: tuple[int, ...] | bytes
    properties: Properties = NO_PROPERTIES


@frozen
class Unsubscribe:
    """A Client gives up subscriptions. A long packet is decoded during each iteration."""

    packet_identifier: int
    topic_filters: Iterable[str]
    properties: Properties = NO_PROPERTIES


@frozen
class Unsuback:
    """The answer to UNSUBSCRIBE; ``reason_codes`` is empty in MQTT 3."""

    packet_identifier: int
    reason_codes: tuple[int, ...] | bytes = ()
    properties: Properties = NO_PROPERTIES


@frozen
class Pingreq:
    """A Client shows that it is alive."""


@frozen
class Pingresp:
    """The answer to PINGREQ."""


@frozen
class Disconnect:
    """The last packet on a Network Connection."""

    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@frozen
class Auth:
    """A step of an extended authentication exchange (MQTT 5)."""

    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect | Connack | Publish | Puback | Pubrec | Pubrel | Pubcomp | Subscribe | Suback | Unsubscribe | Unsuback
    | Pingreq | Pingresp | Disconnect | Auth | ExcessivePublish | ExcessiveSubscribe | Pubacks
)  # fmt: skip


# The first byte of a Control Packet: its type and its flags [MQTT5-2.1.1].
#
# It is judged as soon as it has arrived: a packet that is wrong by its first byte is not waited for.


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


# The Topic Filters of a SUBSCRIBE or UNSUBSCRIBE, decoded when they are needed.
#
# One packet may have 250,000 Topic Filters, and decoding them takes most of a second. So a long packet is decoded
# filter by filter, while its reader iterates over it. The reader decides how many it takes in one turn of the reactor.


T = TypeVar("T")

#: the most bytes of Topic Filters that are decoded with their packet: at most a few hundred filters
LONG = 1024


class LongEntries(Generic[T]):
    """The entries in the rest of a packet. Each iteration decodes them anew.

    The iteration raises :class:`MalformedPacket` and :class:`ProtocolError`, at the entry that is wrong.
    """

    __slots__ = ("_data", "_end", "_read", "_reception", "_start")

    def __init__(self, cursor: Cursor, read: Callable[[Cursor], T]) -> None:
        self._data = cursor.data
        self._start = cursor.position
        self._end = cursor.end
        self._read = read
        self._reception = cursor.reception
        cursor.position = cursor.end

    def __iter__(self) -> Iterator[T]:
        cursor = Cursor(self._data, self._start, self._end, self._reception)
        while cursor.remaining():
            yield self._read(cursor)


def entries(cursor: Cursor, read: Callable[[Cursor], T]) -> Iterable[T]:
    """Return the entries in the rest of a packet: decoded already if they are few."""
    if cursor.remaining() > LONG:
        return LongEntries(cursor, read)
    found = []
    while cursor.remaining():
        found.append(read(cursor))
    return tuple(found)
