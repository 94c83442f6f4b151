"""``[retainer]``: the retained messages, and how they are replayed to new Subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from attrs import field, frozen

from holdfast import rates
from holdfast.config.fields import Section, named_tables, option, table
from holdfast.config.kinds import Choice, Duration, Flag, Integer, Rate, Refused, Size, Text, refusal
from holdfast.config.sections.retain_modes import RetainModes
from holdfast.config.toml.text import literal
from holdfast.topics import SHARED_PREFIX, InvalidTopicFilter, check_topic_filter

#: What ``batch_read_number = 0`` stands for, as in EMQX.
DEFAULT_BATCH_READ_NUMBER = 1000

#: Longest interval of MQTT: a Four Byte Integer of seconds.
_LONGEST = "4294967295s"

_MOST_LEVELS = 65_535


@frozen
class FilterString:
    """The kind of an option that is a Topic Filter."""

    allowed: str = field(default="a Topic Filter, not of a shared subscription", init=False)

    def read(self, value: object) -> str:
        """Return the Topic Filter; raises Refused."""
        text = Text(self.allowed).read(value)
        try:
            check_topic_filter(text, _MOST_LEVELS)
        except InvalidTopicFilter as invalid:
            raise Refused(f"found {literal(text)}: {invalid}; allowed: {self.allowed}") from None
        if text.startswith(SHARED_PREFIX):
            raise refusal(text, self.allowed)
        return text


@frozen
class FlowControlConfig(Section):
    """How much replays of retained messages read and deliver at once, and at what rate."""

    batch_read_number: int = option(
        Integer(0, 100000, unit="retained messages; 0 is the default"),
        DEFAULT_BATCH_READ_NUMBER,
        help="Retained messages read from the store at once for one replay. 0 = the default, 1000.",
        effect="Higher: fewer reads, and more memory for each replay under way.",
        example=200,
    )
    batch_deliver_number: int = option(
        Integer(0, 100000, unit="retained messages, at most batch_read_number; 0 is all that was read"),
        100,
        help="Retained messages delivered at once before other clients have their turn. 0 = all that was read.",
        effect="Higher: a replay ends sooner, and other clients wait longer meanwhile.",
        example=50,
    )
    max_batch_bytes: int = option(
        Size("1KB", "256MB"),
        "1MB",
        help="Bytes read from the store at once for one replay. A single larger message is read alone.",
        effect="Higher: fewer reads of large messages, and more memory for each replay under way.",
        example="256KB",
    )

    batch_deliver_limiter: rates.Rate | None = option(
        Rate(),
        "infinity",
        help="Retained messages that all replays together may deliver in a time: the same as retainer.delivery_rate,"
        " and when both are given, the lower rate counts. EMQX's key.",
        effect="See retainer.delivery_rate.",
        example="1000/s",
    )
    client_rate: rates.Rate | None = option(
        Rate(),
        "infinity",
        help="Retained messages that the replays of one client may deliver in a time, besides what"
        " retainer.delivery_rate allows all of them.",
        effect="Lower: one client with wide Topic Filters takes less of the network, and waits longer. Replays that"
        " must wait do so in the order of their arrival, and nothing is dropped.",
        example="500/s",
    )

    @property
    def read_rows(self) -> int:
        """How many retained messages to read at once; never 0."""
        return self.batch_read_number or DEFAULT_BATCH_READ_NUMBER

    @property
    def deliver_rows(self) -> int:
        """How many retained messages to deliver at once; never 0."""
        return self.batch_deliver_number or self.read_rows

    def complaints(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Refuse to deliver more at once than is read at once."""
        if self.deliver_rows > self.read_rows:
            key = "batch_deliver_number" if "batch_deliver_number" in given else "batch_read_number"
            yield (
                key,
                f"batch_deliver_number is {self.deliver_rows} and batch_read_number {self.read_rows};"
                " allowed: batch_deliver_number of at most batch_read_number",
                ("batch_deliver_number", "batch_read_number"),
            )


@frozen
class QuotaConfig(Section):
    """How much of a part may be retained."""

    max_retained_messages: int = option(
        Integer(0, unit="retained messages; 0 is no limit"),
        0,
        help="Retained messages that may be stored. 0 = no limit.",
        effect="As retainer.max_retained_messages, for this part only.",
        example=1000,
    )
    max_retained_bytes: int = option(
        Size("1KB", "1048576GB", zero="no limit"),
        0,
        help="Bytes of payloads that may be stored together. 0 = no limit.",
        effect="As retainer.max_retained_bytes, for this part only.",
        example="1MB",
    )

    @property
    def is_configured(self) -> bool:
        """Whether there is a limit."""
        return bool(self.max_retained_messages or self.max_retained_bytes)


@frozen
class TopicQuotaConfig(QuotaConfig):
    """How much may be retained in a part of the topics."""

    topic_filter: str = option(
        FilterString(),
        "#",
        help="The topics that count: a Topic Filter, such as sensors/# for a whole branch.",
        effect="A topic counts against every quota whose filter matches it.",
        example="sensors/#",
    )


@frozen
class HistoryConfig(Section):
    """Whether changes of retained messages are recorded, and for how long."""

    enable: bool = option(
        Flag(),
        False,
        help="Record every change of a retained message: what it was set to, when and by whom. All brokers that share a"
        " database need the same value.",
        effect="true: what was retained at an earlier time can be seen and restored; each change is written twice."
        " Turned off, what happens meanwhile is missing from the history.",
        example=True,
    )
    keep: float | None = option(
        Duration("1m", "3650d", infinity=True),
        "7d",
        help="Time for which changes are kept. Of each topic, the message that was retained then stays too.",
        effect="Longer: earlier times can be seen and restored, and the history uses more space.",
        example="30d",
    )
    max_bytes: int | None = option(
        Size("1MB", "1024GB", infinity=True),
        "infinity",
        help="Size of the history above which changes are forgotten before their time, the oldest first. It counts"
        " payloads, topics and properties, and 200 bytes for each change.",
        effect="Lower: less space is used, and busy times shorten the history. What is retained now always stays.",
        example="10GB",
    )


@frozen
class RetainerConfig(RetainModes):
    """What is retained, for how long, and how it is cleared and replayed."""

    enable: bool = option(
        Flag(),
        True,
        help="Store retained messages and replay them to new Subscriptions.",
        effect="false: messages with RETAIN 1 are routed and acknowledged but neither stored nor replayed; what is"
        " stored stays. To refuse them instead, set mqtt.retain_available = false.",
        example=False,
    )
    msg_expiry_interval: float = option(
        Duration("1s", _LONGEST, zero="never"),
        "0s",
        help="Time after which a retained message without a Message Expiry Interval of its own expires. 0s = never.",
        effect="Applies to messages retained from then on; those stored keep their expiry.",
        example="7d",
    )
    msg_expiry_interval_override: float | None = option(
        Duration("1s", _LONGEST, words={"disabled": None}),
        "disabled",
        help="Longest time for which any message is retained, whatever its own Message Expiry Interval. disabled ="
        " none.",
        effect="Also messages stored before expire by then, counted from when they were stored: they are gone through"
        " after each start. What has expired is neither delivered nor kept.",
        example="30d",
    )
    allow_never_expire: bool = option(
        Flag(),
        True,
        help="Whether messages that never expire are exempt from msg_expiry_interval_override.",
        effect="false: they expire as well. Without msg_expiry_interval_override it has no effect.",
        example=False,
    )
    msg_clear_interval: float = option(
        Duration("1s", "30d", zero="no sweeps"),
        "60s",
        help="Time between two sweeps that delete expired retained messages and old marks of cleared ones. 0s = no"
        " sweeps.",
        effect="Expired messages are never delivered, whatever the value; shorter intervals free their space sooner.",
        example="10m",
    )
    msg_clear_limit: int = option(
        Integer(1, unit="deletions"),
        50000,
        help="Deletions in one sweep; what is left waits for the next.",
        effect="Higher: more space is freed by each sweep, which takes longer.",
        example=10000,
    )
    max_payload_size: int = option(
        Size("1B", "256MB", zero="no limit"),
        "1MB",
        help="Longest payload that is stored, in bytes. 0 = no limit other than mqtt.max_packet_size.",
        effect="Messages with a longer payload are routed but not retained; the earlier retained message stays.",
        example="64KB",
    )
    max_retained_messages: int = option(
        Integer(0, unit="retained messages; 0 is no limit"),
        0,
        help="Retained messages that may be stored. 0 = no limit.",
        effect="At the limit, messages of new topics are not retained (see on_limit); known topics are still replaced"
        " and cleared.",
        example=1000000,
    )
    max_retained_bytes: int = option(
        Size("1KB", "1048576GB", zero="no limit"),
        0,
        help="Bytes of payloads that may be stored, of all retained messages together. 0 = no limit.",
        effect="A message that would exceed it is not retained (see on_limit); clearing, and replacing by what is not"
        " longer, is always possible.",
        example="10GB",
    )
    max_publish_rate: rates.Rate | None = option(
        Rate(),
        "infinity",
        help="Retained messages stored per interval, by all clients together; as many at once after a quiet second.",
        effect="Messages beyond it are not retained (see on_limit). Clearing is always possible and does not count.",
        example="1000/s",
    )
    on_limit: str = option(
        Choice(("reject", "deliver_only", "disconnect", "drop_old")),
        "reject",
        help="What to do with a message that may not be retained because of a limit: reject = tell its publisher (v5,"
        " QoS 1 and 2: Quota exceeded, 0x97) and route it to nobody, others as deliver_only; deliver_only = route and"
        " acknowledge it; disconnect = disconnect its publisher (v5: Quota exceeded, 0x97); drop_old = as"
        " deliver_only, and clear the topic's older message.",
        effect="Only with drop_old and reject (v5, QoS 1 and 2) no late subscriber takes an outdated message for the"
        " newest. Will Messages are routed whatever it says. Messages of other topics never make room.",
        example="drop_old",
    )
    max_topic_length: int = option(
        Size("1B", "2600B"),
        2600,
        help="Longest Topic Name that is stored, in bytes of UTF-8.",
        effect="Messages with a longer Topic Name are routed but not retained.",
        example="512B",
    )
    when_unavailable: str = option(
        Choice(("wait", "refuse")),
        "wait",
        help="What a Subscription that needs a replay meets while the database is away (Postgres). wait = its replay"
        " begins when the database is back. refuse = SUBACK with 0x83 (v3: 0x80), and a replay that has begun ends its"
        " connection with DISCONNECT 0x83 (v3: a close) after 5 s.",
        effect="refuse: clients learn that something is amiss and may try elsewhere; live messages reach those only who"
        " are subscribed already.",
        example="refuse",
    )
    tombstone_ttl: float = option(
        Duration("1s", "365d"),
        "24h",
        help="Time for which the mark of a cleared retained message is kept.",
        effect="Longer: those who read the database see clearings for longer, and the marks use more space.",
        example="7d",
    )
    delivery_rate: rates.Rate | None = option(
        Rate(),
        "infinity",
        help="Retained messages that all replays together may deliver in a time. After a pause as many come at once;"
        " from then on they come evenly. 100/100ms is the same rate as 1000/s, with 100 at once instead of 1000.",
        effect="Lower: replays take less of the network and of the broker, and last longer. Those that must wait do so"
        " in the order of their arrival, and nothing is dropped.",
        example="1000/s",
    )
    deliver_rate: rates.Rate | None = option(
        Rate(),
        "infinity",
        help="An older name of delivery_rate, as in EMQX. Where both are given they must be the same.",
        effect="See delivery_rate.",
        example="1000/s",
    )
    max_concurrent_replays: int | None = option(
        Integer(1, words={"infinity": None}, unit="replays"),
        "infinity",
        help="Replays of retained messages that may run at once. Subscriptions beyond it are granted at once, live"
        " messages flow, and their replays begin in the order of the Subscriptions as others end.",
        effect="Lower: less memory, since each that runs may hold what it has read at once (max_batch_bytes at most). A"
        " replay to a client that takes no messages counts until the client is gone, and others wait for it.",
        example=1000,
    )
    client_quota: QuotaConfig = field(
        factory=QuotaConfig,
        metadata=table(QuotaConfig, "How much each client may have retained: what it was the last to publish."),
    )
    topic_quotas: Mapping[str, TopicQuotaConfig] = field(
        factory=dict,
        metadata=named_tables(
            TopicQuotaConfig,
            "How much may be retained in parts of the topics: a table for each, with a name of your choice.",
        ),
    )
    flow_control: FlowControlConfig = field(
        factory=FlowControlConfig,
        metadata=table(
            FlowControlConfig, "How much a replay of retained messages reads and delivers at once, and at what rate."
        ),
    )
    history: HistoryConfig = field(
        factory=HistoryConfig,
        metadata=table(HistoryConfig, "Whether changes of retained messages are recorded, and for how long."),
    )

    @property
    def node_rate(self) -> rates.Rate | None:
        """How much all replays together may deliver: the lowest of the rates given; None for any."""
        return rates.slower(self.delivery_rate, self.deliver_rate, self.flow_control.batch_deliver_limiter)

    def complaints(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Refuse to guess what is meant when one thing is given twice."""
        if {"delivery_rate", "deliver_rate"} <= given.keys() and self.delivery_rate != self.deliver_rate:
            yield (
                "deliver_rate",
                "an older name of delivery_rate, which has another value here; allowed: only one of them",
                ("delivery_rate", "deliver_rate"),
            )
