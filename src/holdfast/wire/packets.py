"""The fifteen Control Packets as values, with the standard's field names [MQTT5-3].

PUBLISH and its acknowledgements are made once for each message, so they are hot values; the others are really frozen.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, frozen

from holdfast.hot_values import hot_frozen
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
    """Several PUBACK packets without a Reason Code, one behind the other (see :mod:`pubacks`).

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
    """A Client asks for subscriptions. A long packet is decoded during each iteration (see :mod:`entries`)."""

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
    """A Client gives up subscriptions. A long packet is decoded during each iteration (see :mod:`entries`)."""

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
