"""``[mqtt]``: what clients may ask of the protocol."""

from __future__ import annotations

from attrs import field, frozen

from holdfast.config.fields import Section, option
from holdfast.config.kinds import Choice, Duration, Flag, Integer, Number, Size, Text, refusal
from holdfast.config.units import parse_duration

_INFINITY: dict[str, int | None] = {"infinity": None}


@frozen
class KeepAlive:
    """The kind of an option that holds a Keep Alive: whole seconds that fit a Two Byte Integer."""

    allowed: str = field(
        default='"disabled" or seconds from 0 to 65535, as an integer or a whole duration such as "5m"', init=False
    )

    def read(self, value: object) -> int | None:
        """Return the seconds, None for ``"disabled"``; raises Refused."""
        if value == "disabled":
            return None
        seconds: float = -1
        if isinstance(value, str):
            try:
                seconds = parse_duration(value)
            except ValueError:
                raise refusal(value, self.allowed) from None
        elif isinstance(value, int) and not isinstance(value, bool):
            seconds = value
        if not 0 <= seconds <= 65535 or seconds != int(seconds):
            raise refusal(value, self.allowed)
        return int(seconds)


@frozen
class Information:
    """The kind of an option that becomes a UTF-8 Encoded String in a packet."""

    allowed: str = field(default="a string of at most 65535 bytes in UTF-8", init=False)

    def read(self, value: object) -> str:
        """Return the string; raises Refused."""
        text = Text(self.allowed).read(value)
        if len(text.encode()) > 65535:
            raise refusal(f"{text[:20]}...", self.allowed)
        return text


@frozen
class MQTTConfig(Section):
    """Limits and capabilities of the protocol. None stands for "no limit" where the file says infinity."""

    max_packet_size: int = option(
        Size("1KB", "256MB"),
        "1MB",
        help="Longest Control Packet accepted from a client, in bytes; told to v5 clients as Maximum Packet Size.",
        effect="A longer one closes the Network Connection (v5: DISCONNECT with Packet too large, 0x95).",
        example="256KB",
    )
    max_clientid_len: int = option(
        Integer(23, 65535, unit="bytes of UTF-8"),
        65535,
        help="Longest Client Identifier accepted, in bytes of UTF-8.",
        effect="A longer one is refused (Client Identifier not valid).",
        example=64,
    )
    max_topic_levels: int = option(
        Integer(1, 65535),
        128,
        help="Levels a Topic Name or Topic Filter may have.",
        effect="One with more is refused (v5: Topic Name invalid or Topic Filter invalid).",
        example=16,
    )
    max_qos_allowed: int = option(
        Choice((0, 1, 2)),
        2,
        help="Highest QoS clients may use; told to v5 clients as Maximum QoS.",
        effect="PUBLISH with a higher one is refused (v5: QoS not supported, 0x9B); Subscriptions get at most it.",
        example=1,
    )
    max_topic_alias: int = option(
        Integer(0, 65535),
        65535,
        help="Highest Topic Alias in both directions, 0 = none: told to v5 clients as Topic Alias Maximum, and the most"
        " the broker uses towards a client that takes them (its own Topic Alias Maximum can only lower it).",
        effect="Lower: less memory for each Network Connection that uses them.",
        example=32,
    )
    retain_available: bool = option(
        Flag(),
        True,
        help="Whether clients may publish with RETAIN 1; told to v5 clients as Retain Available.",
        effect="false: such a PUBLISH or Will Message is refused (v5: Retain not supported, 0x9A).",
        example=False,
    )
    wildcard_subscription: bool = option(
        Flag(),
        True,
        help="Whether Topic Filters may have wildcards; told to v5 clients as Wildcard Subscription Available.",
        effect="false: such a Subscription is refused; v5 clients, who were told, lose the connection (Wildcard"
        " Subscriptions not supported, 0xA2).",
        example=False,
    )
    shared_subscription: bool = option(
        Flag(),
        True,
        help="Whether clients may use $share/NAME/FILTER; told to v5 clients as Shared Subscription Available.",
        effect="false: such a Subscription is refused; v5 clients, who were told, lose the connection (Shared"
        " Subscriptions not supported, 0x9E).",
        example=False,
    )
    subscription_identifiers: bool = option(
        Flag(),
        True,
        help="Whether Subscriptions may have a Subscription Identifier; told to v5 clients as Subscription Identifier"
        " Available.",
        effect="false: SUBSCRIBE with one ends the connection (Subscription Identifiers not supported, 0xA1).",
        example=False,
    )
    response_information: str = option(
        Information(),
        "",
        help="Response Information for v5 clients that ask for it in CONNECT: by custom, where in the tree of topics"
        " their Response Topics may lie. An empty string = none is sent.",
        effect="Clients that ask for it build their Response Topics of it; the broker itself does nothing with it.",
        example="replies/",
    )
    min_replay_levels: int = option(
        Integer(0, 65535),
        0,
        help="Levels that a Topic Filter with wildcards must have before its first wildcard to be sent retained"
        " messages: # has none, site/+/temp one. 0 = all are.",
        effect="Subscriptions with fewer are granted and get live messages, and are told nothing of what is retained;"
        " each is logged and counted. Topic Filters without wildcards are not concerned.",
        example=2,
    )
    server_keepalive: int | None = option(
        KeepAlive(),
        "disabled",
        help="Keep Alive imposed on v5 clients as Server Keep Alive, in seconds. disabled = the client's own value"
        " stands; 0 turns the mechanism off.",
        effect="Shorter: vanished clients are noticed sooner, at the price of more PINGREQ packets.",
        example=120,
    )
    keepalive_multiplier: float = option(
        Number(1.0, 10.0),
        1.5,
        help="How many times the Keep Alive may pass without a Control Packet before the client counts as gone.",
        effect="Higher: more patience with bad networks; MQTT itself says 1.5 [MQTT311-3.1.2-24] [MQTT5-3.1.2-22].",
        example=2.0,
    )
    max_inflight: int = option(
        Integer(1, 65535, unit="Application Messages"),
        512,
        help="Application Messages with QoS 1 and 2 that may be sent to one client and not be acknowledged yet; a v5"
        " client's Receive Maximum can only lower it.",
        effect="Higher: more throughput over slow links, and more repeats after a lost Network Connection.",
        example=100,
    )
    max_awaiting_rel: int = option(
        Integer(1, 65535, unit="Application Messages"),
        1000,
        help="Application Messages with QoS 1 and 2 that a client may have sent and not have acknowledged yet; told to"
        " v5 clients as Receive Maximum.",
        effect="Higher: clients publish faster over slow links, and more memory is used for each.",
        example=20,
    )
    await_rel_timeout: float | None = option(
        Duration("1s", "4294967295s", infinity=True),
        "infinity",
        help="Time after which an Application Message with QoS 2 that its publisher has not released with PUBREL is"
        " forgotten: its Packet Identifier is free again and it does not count against max_awaiting_rel any more.",
        effect="Anything but infinity departs from MQTT: a publisher that comes back later and sends the Application"
        " Message again has it handed on twice.",
        example="5m",
    )
    max_subscriptions: int | None = option(
        Integer(1, words=_INFINITY, unit="Subscriptions"),
        "infinity",
        help="Subscriptions one Session may have.",
        effect="Those beyond it are refused (v5: Quota exceeded, 0x97).",
        example=100,
    )
    max_mqueue_len: int | None = option(
        Integer(0, words=_INFINITY, unit="Application Messages"),
        100000,
        help="Application Messages queued for one Session while its client is away.",
        effect="What happens beyond it is up to mqueue_full. Higher: longer absences without loss, and more memory for"
        " each Session.",
        example=1000,
    )
    max_mqueue_bytes: int = option(
        Size("1KB", "64GB"),
        "64MB",
        help="Bytes of the Application Messages queued for one Session.",
        effect="What happens beyond it is up to mqueue_full. Higher: longer absences without loss, and more memory for"
        " each Session.",
        example="8MB",
    )
    mqueue_full: str = option(
        Choice(("drop_oldest", "drop_newest", "reject")),
        "drop_oldest",
        help="What to do with an Application Message for a client that is away and whose queue is full. Every message"
        " dropped or rejected is counted.",
        effect="drop_oldest: the oldest queued message makes room; drop_newest: the new one is not queued; reject: v5"
        " publishers get Quota exceeded (0x97) and nobody gets the message, for others it is drop_newest.",
        example="reject",
    )
    mqueue_store_qos0: bool = option(
        Flag(),
        False,
        help="Queue Application Messages with QoS 0 too while the client is away.",
        effect="true: they compete with those of QoS 1 and 2 for the place in the queue.",
        example=True,
    )
    session_expiry_interval: float | None = option(
        Duration("0s", "4294967295s", infinity=True),
        "2h",
        help="Time a Session is kept without a Network Connection: for persistent Sessions of v3.1.1 clients its"
        " length, for v5 clients the most they can ask for.",
        effect="Longer: clients find their Subscriptions and queued messages after longer absences.",
        example="7d",
    )
    idle_timeout: float = option(
        Duration("100ms", "1h"),
        "15s",
        help="Time from accepting a Network Connection to its CONNECT packet and, where that names an Authentication"
        " Method, to the end of its AUTH packets. Also the time a re-authentication may take.",
        effect="Connections that take longer are closed.",
        example="5s",
    )
    will_restart_grace: float = option(
        Duration("0s", "1d"),
        "60s",
        help="Time clients have to come back after a restart or crash of the broker before their Will Messages are"
        " published; a longer Will Delay Interval counts. Set it in [mqtt]; zones cannot have their own.",
        effect="Shorter: devices that died with the broker are reported sooner, and slow ones too early.",
        example="30s",
    )
    upgrade_qos: bool = option(
        Flag(),
        False,
        help="Deliver with the QoS of the Subscription also when the Application Message has a lower one.",
        effect="true: departs from MQTT, which delivers with the lower of the two.",
        example=True,
    )
    ignore_loop_deliver: bool = option(
        Flag(),
        False,
        help="Do not deliver to v3.1 and v3.1.1 clients what they published themselves; v5 clients have No Local.",
        effect="true: helps bridges between brokers, and surprises clients that subscribe to their own topics.",
        example=True,
    )
