"""``[mqtt]``: limits and features of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Duration,
    Flag,
    Integer,
    Number,
    Section,
    Size,
    TakesEffect,
    Text,
    invalid_value,
    option,
)
from holdfast.config.sections.retainer import FilterString
from holdfast.core.units import parse_duration

_INFINITY: dict[str, int | None] = {"infinity": None}


@frozen
class KeepAlive:
    """The kind of options with a Keep Alive: whole seconds that fit a Two Byte Integer."""

    minimum: int = 0
    words: Mapping[str, None] = field(factory=lambda: {"disabled": None}, init=False)

    @property
    def allowed(self) -> str:
        """The limits and the word."""
        return f'"disabled" or seconds from {self.minimum} to 65535, as an integer or a whole duration such as "5m"'

    def read(self, value: object) -> int | None:
        """Return the seconds, None for ``"disabled"``; raises InvalidValue."""
        if value == "disabled":
            return None
        seconds: float = -1
        if isinstance(value, str):
            try:
                seconds = parse_duration(value)
            except ValueError:
                raise invalid_value(value, self.allowed) from None
        elif isinstance(value, int) and not isinstance(value, bool):
            seconds = value
        if not self.minimum <= seconds <= 65535 or seconds != int(seconds):
            raise invalid_value(value, self.allowed)
        return int(seconds)


@frozen
class Information:
    """The kind of options that become a UTF-8 Encoded String in a packet."""

    allowed: str = field(default="a string of at most 65535 bytes in UTF-8", init=False)

    def read(self, value: object) -> str:
        """Return the string; raises InvalidValue."""
        text = Text(self.allowed).read(value)
        if len(text.encode()) > 65535:
            raise invalid_value(f"{text[:20]}...", self.allowed)
        return text


@frozen
class MQTTConfig(Section):
    """Limits and features of the protocol. None is the value of infinity, "no limit"."""

    applies: ClassVar[TakesEffect] = TakesEffect.CONNECTING

    max_packet_size: int = option(
        Size("1KB", "256MB"),
        "2112KB",
        help="Longest Control Packet from an admitted client, in bytes; sent to v5 clients as Maximum Packet Size. The"
        " default is 2 MB for the payload, and 64 KB for the rest. 256MB means 268435455 bytes, the most that MQTT and"
        " usual clients take.",
        effect="A longer packet ends the Network Connection (v5: DISCONNECT with Packet too large, 0x95).",
        example="256KB",
    )
    max_topic_levels: int = option(
        Integer(1, 65535),
        128,
        help="Most levels of a Topic Name or Topic Filter. The API and commands take as many as the highest value in"
        " [mqtt] and the zones.",
        effect="A Topic Filter with more levels is refused in SUBACK; a PUBLISH ends the connection (v5: Topic Name"
        " invalid, 0x90). The API answers 400.",
        example=16,
    )
    max_qos_allowed: int = option(
        Choice((0, 1, 2)),
        2,
        help="Highest QoS for clients; sent to v5 clients as Maximum QoS.",
        effect="A PUBLISH with a higher QoS ends the connection (v5: QoS not supported, 0x9B). The QoS of Subscriptions"
        " is reduced to this value.",
        example=1,
    )
    max_topic_alias: int = option(
        Integer(0, 65535),
        32,
        help="Highest Topic Alias that clients may use; 0 = none. Sent to v5 clients as Topic Alias Maximum.",
        effect="Lower: less memory for each Network Connection. A higher alias ends the connection (Topic Alias"
        " invalid, 0x94).",
        example=100,
    )
    control_characters: str = option(
        Choice(("refuse", "accept")),
        "refuse",
        help="Handling of control characters (U+0001 to U+001F, U+007F to U+009F) and Unicode non-characters in Topic"
        " Names, Topic Filters, Response Topics, Will Topics, Client Identifiers and User Names.",
        effect="refuse: such a packet ends the connection (v5: Malformed Packet, 0x81; for a Client Identifier: Client"
        " Identifier not valid, 0x85). Retained messages with such topics stay, and wildcards match them; operators"
        " can clear them.",
        example="accept",
    )
    retain_available: bool = option(
        Flag(),
        True,
        help="Whether clients may publish with RETAIN 1; sent to v5 clients as Retain Available.",
        effect="false: such a PUBLISH ends the connection, and a CONNECT with such a Will Message is refused (v5:"
        " Retain not supported, 0x9A).",
        example=False,
    )
    wildcard_subscription: bool = option(
        Flag(),
        True,
        help="Whether Topic Filters may have wildcards; sent to v5 clients as Wildcard Subscription Available.",
        effect="false: such a Subscription is refused. v5 clients know this, so they lose the connection (Wildcard"
        " Subscriptions not supported, 0xA2).",
        example=False,
    )
    shared_subscription: bool = option(
        Flag(),
        True,
        help="Whether clients may use $share/NAME/FILTER; sent to v5 clients as Shared Subscription Available.",
        effect="false: such a Subscription is refused. v5 clients know this, so they lose the connection (Shared"
        " Subscriptions not supported, 0x9E).",
        example=False,
    )
    queue_subscription: bool = option(
        Flag(),
        True,
        help="Take $queue/FILTER, EMQX's spelling, as the shared Subscription $share/$queue/FILTER: all clients that"
        " use it are one group. shared_subscription, the limits and the rules hold for it as for $share.",
        effect="false: $queue/FILTER is an ordinary Topic Filter, which gets only messages with topics that begin with"
        " $queue/. An UNSUBSCRIBE ends both.",
        example=False,
    )
    subscription_identifiers: bool = option(
        Flag(),
        True,
        help="Whether Subscriptions may have a Subscription Identifier; sent to v5 clients as Subscription Identifier"
        " Available.",
        effect="false: a Subscription Identifier ends the connection (Subscription Identifiers not supported, 0xA1).",
        example=False,
    )
    min_replay_levels: int = option(
        Integer(0, 65535),
        0,
        help="Levels that a Topic Filter needs before its first wildcard to get retained messages: # has 0 levels,"
        " site/+/temp has 1. 0 = every Topic Filter gets them.",
        effect="Subscriptions with fewer levels are granted and get live messages, but no retained ones. The broker"
        " logs and counts them. Topic Filters without wildcards always get retained messages.",
        example=2,
    )
    server_keepalive: int | None = option(
        KeepAlive(),
        "disabled",
        help="Keep Alive for v5 clients, sent as Server Keep Alive, in seconds. disabled = the client's own value"
        " counts; 0 = no Keep Alive.",
        effect="Shorter: the broker notices lost clients sooner; clients send more PINGREQ packets.",
        example=120,
    )
    max_keepalive: int | None = option(
        KeepAlive(minimum=1),
        "disabled",
        help="Longest Keep Alive, in seconds. v5 clients with a longer one, or with 0 for none, are told this value as"
        " Server Keep Alive, also if server_keepalive is longer. v3 clients, which cannot be told, are refused with"
        " return code 2 (identifier rejected). disabled = every Keep Alive is accepted.",
        effect="Shorter: lost clients hold a Network Connection for a shorter time. v3 clients without a Keep Alive"
        " cannot connect any more.",
        example="10m",
    )
    keepalive_multiplier: float = option(
        Number(1.0, 10.0),
        1.5,
        help="The broker disconnects a client that sends no Control Packet for this multiple of the Keep Alive.",
        effect="Higher: more patience with bad networks. MQTT requires 1.5 [MQTT311-3.1.2-24] [MQTT5-3.1.2-22].",
        example=2.0,
    )
    max_inflight: int = option(
        Integer(1, 65535, unit="Application Messages"),
        2000,
        help="Unacknowledged Application Messages with QoS 1 and 2 that may be on the way to one client. A v5 client's"
        " Receive Maximum can lower the limit.",
        effect="Higher: more throughput over slow links, and more repeated messages after a lost Network Connection.",
        example=100,
    )
    max_inflight_bytes: int = option(
        Size("1KB", "64GB"),
        "1MB",
        help="Bytes of the unacknowledged Application Messages with QoS 1 and 2 that may be on the way to one client,"
        " live and retained ones together. Each message counts 600 bytes beside its own (100 with QoS 1 in a Session"
        " that ends with its connection). At least one message may be on the way, of any length; during a replay, one"
        " live and one retained message.",
        effect="Higher: more throughput of long messages over slow links, and more memory for each client that does not"
        " acknowledge.",
        example="256KB",
    )
    max_awaiting_rel: int = option(
        Integer(1, 65535, unit="Application Messages"),
        1000,
        help="Application Messages with QoS 1 and 2 from one client that the broker has not acknowledged yet; sent to"
        " v5 clients as Receive Maximum.",
        effect="Higher: clients publish faster over slow links, and each uses more memory.",
        example=20,
    )
    max_subscriptions: int | None = option(
        Integer(1, words=_INFINITY, unit="Subscriptions"),
        10000,
        help="Most Subscriptions of one Session.",
        effect="Further Subscriptions are refused (v5: Quota exceeded, 0x97; v3.1.1: 0x80), except to Topic Filters"
        " that the Session has already. MQTT 3.1 has no answer for that: the connection is closed. Higher: one client"
        " can use more memory.",
        example=100,
    )
    max_mqueue_len: int | None = option(
        Integer(0, words=_INFINITY, unit="Application Messages"),
        100000,
        help="Application Messages queued for one Session while its client is away.",
        effect="mqueue_full decides about further messages. Higher: longer absences without loss, and more memory for"
        " each Session.",
        example=1000,
    )
    max_mqueue_bytes: int = option(
        Size("1KB", "64GB"),
        "64MB",
        help="Bytes of the Application Messages queued for one Session: of each its topic, properties and payload, 600"
        " more, and 160 for each User Property.",
        effect="mqueue_full decides about further messages. Higher: longer absences without loss, and more memory for"
        " each Session.",
        example="8MB",
    )
    mqueue_full: str = option(
        Choice(("drop_oldest", "drop_newest", "reject")),
        "drop_oldest",
        help="Handling of an Application Message for an absent client whose queue is full. The broker counts every"
        " message that it drops or rejects.",
        effect="drop_oldest: the oldest queued message is dropped; drop_newest: the new one is dropped; reject: v5"
        " publishers of QoS 1 and 2 get Quota exceeded (0x97) and no client gets the message; other publishers, and"
        " Shared Subscriptions: as drop_newest.",
        example="reject",
    )
    mqueue_store_qos0: bool = option(
        Flag(),
        False,
        help="Queue Application Messages with QoS 0 too while the client is away.",
        effect="true: they take places in the queue from messages with QoS 1 and 2.",
        example=True,
    )
    conflate_interval: float = option(
        Duration("10ms", "1h", zero="no conflation"),
        "0s",
        help="Conflation for all clients: of Application Messages published with RETAIN 1, a Subscription gets at most"
        " one for each topic in this time, the newest always last. Clients can ask for more (holdfast-conflate). Not"
        " for Shared Subscriptions.",
        effect="Longer: floods of changes cost slow clients less, and newest values arrive up to so much later.",
        example="1s",
    )
    conflate_filter: str = option(
        FilterString(),
        "#",
        help="The topics for which conflate_interval holds, as a Topic Filter.",
        effect="Messages of other topics are delivered as ever.",
        example="sensors/#",
    )
    session_expiry_interval: float | None = option(
        Duration("0s", "4294967295s", infinity=True),
        "2h",
        help="Time that a Session lasts without a Network Connection: always for persistent Sessions of v3.1.1 clients,"
        " at most for v5 clients.",
        effect="Longer: clients keep their Subscriptions and queued messages during longer absences.",
        example="7d",
    )
    idle_timeout: float = option(
        Duration("100ms", "1h"),
        "15s",
        help="Time from accepting a Network Connection to its CONNECT packet and, with an Authentication Method, to its"
        " last AUTH packet. The header of the PROXY protocol, and whatever else comes first, is within this time. Also"
        " the time for a re-authentication.",
        effect="Slower connections are closed.",
        example="5s",
    )
    will_restart_grace: float = option(
        Duration("0s", "1d"),
        "60s",
        help="Time that clients have to return after a restart or crash of the broker before it publishes their Will"
        " Messages. If the Will Delay Interval is longer, it counts. A client returns with its Client Identifier or, as"
        " the same user, with the same retained Will. Only for [mqtt], not for zones.",
        effect="Shorter: lost devices are reported sooner, and slow devices perhaps too early.",
        example="30s",
        applies=TakesEffect.RESTART,
    )
    upgrade_qos: bool = option(
        Flag(),
        False,
        help="Deliver with the QoS of the Subscription even if the Application Message has a lower QoS.",
        effect="true: departs from MQTT, which delivers with the lower of the two.",
        example=True,
    )
    ignore_loop_deliver: bool = option(
        Flag(),
        False,
        help="Do not deliver a message to the v3.1 or v3.1.1 client that published it; v5 clients have No Local.",
        effect="true: helps bridges between brokers; clients do not get their own messages.",
        example=True,
    )
