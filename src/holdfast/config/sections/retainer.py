"""``[retainer]``: the retained messages, and their replay to new Subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import ClassVar

from attrs import field, frozen

from holdfast.config.options import (
    Choice,
    Duration,
    Flag,
    Integer,
    InvalidValue,
    Rate,
    Section,
    Size,
    TakesEffect,
    Text,
    invalid_value,
    listed_tables,
    named_tables,
    option,
    table,
)
from holdfast.config.toml import literal
from holdfast.core import units
from holdfast.core.topics import MOST_LEVELS, SHARED_PREFIX, InvalidTopicFilter, check_topic_filter

# ``[retainer]``, the options that zones can have too: the handling of messages with RETAIN 1.


@frozen
class RetainModes(Section):
    """The handling of messages with RETAIN 1 from clients."""

    applies: ClassVar[TakesEffect] = TakesEffect.CONNECTING

    retained_messages_mode: str = option(
        Choice(("enabled", "enabled_without_retaining", "downgrade", "drop")),
        "enabled",
        help="Handling of messages with RETAIN 1: enabled = store and route; enabled_without_retaining = route"
        " only; downgrade = treat as if RETAIN were 0; drop = acknowledge and do nothing. To refuse them, set"
        " mqtt.retain_available = false.",
        effect="With every value but enabled, clients neither retain nor clear messages, and still get retained"
        " messages. The broker sets RETAIN of their Will Messages to 0; with drop, it does not publish Will Messages"
        " with RETAIN 1.",
        example="enabled_without_retaining",
        applies=TakesEffect.CONNECTING,
    )
    tell_publishers: bool = option(
        Flag(),
        False,
        help="Tell clients the Client Identifiers of the publishers of retained messages, if they ask with"
        " holdfast-replay-info. Where rules are configured, they also have to allow subscribe and receive on"
        " $replay/publisher/FILTER, where FILTER is the Topic Filter of the Subscription.",
        effect="true: clients learn the names of others.",
        example=True,
        applies=TakesEffect.CONNECTING,
    )
    stop_publish_clear_msg: bool = option(
        Flag(),
        False,
        help="Do not route messages with RETAIN 1 and an empty payload, which clear a retained message.",
        effect="true: present subscribers do not learn that a retained message was cleared. For Will Messages, only the"
        " value in [retainer] counts, not that of a zone.",
        example=True,
        applies=TakesEffect.CONNECTING,
    )


#: The meaning of ``batch_read_number = 0``, as in EMQX.
DEFAULT_BATCH_READ_NUMBER = 1000

#: Longest interval of MQTT: a Four Byte Integer of seconds.
_LONGEST = "4294967295s"


@frozen
class FilterString:
    """The kind of options with a Topic Filter."""

    allowed: str = field(default="a Topic Filter, not of a shared subscription", init=False)

    def read(self, value: object) -> str:
        """Return the Topic Filter; raises InvalidValue."""
        text = Text(self.allowed).read(value)
        try:
            check_topic_filter(text, MOST_LEVELS)
        except InvalidTopicFilter as invalid:
            raise InvalidValue(f"found {literal(text)}: {invalid}; allowed: {self.allowed}") from None
        if text.startswith(SHARED_PREFIX):
            raise invalid_value(text, self.allowed)
        return text


@frozen
class FlowControlConfig(Section):
    """The batch sizes and rates of replays."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    batch_read_number: int = option(
        Integer(0, 100000, unit="retained messages; 0 is the default"),
        DEFAULT_BATCH_READ_NUMBER,
        help="The most retained messages that one replay reads from the store at once. 0 = the default, 1000. From"
        " SQLite, a replay reads at most 256 KiB at once, and for about half a millisecond; a single message may be"
        " longer.",
        effect="Higher: fewer reads, and more memory for each replay.",
        example=200,
    )
    batch_deliver_number: int = option(
        Integer(0, 100000, unit="retained messages, at most batch_read_number; 0 is the whole batch"),
        0,
        help="The most retained messages that a replay delivers before other clients have their turn. 0 = the whole"
        " batch. A replay delivers at most 256 KiB at once; a single message may be longer.",
        effect="Lower: other clients wait less, and a replay ends later.",
        example=50,
    )

    client_rate: units.Rate | None = option(
        Rate(),
        "infinity",
        help="Rate of retained messages for the replays of one client. retainer.delivery_rate limits all replays too.",
        effect="Lower: one client with wide Topic Filters uses less of the network, and waits longer. Waiting replays"
        " continue in the order of their arrival; nothing is dropped.",
        example="500/s",
    )

    @property
    def read_rows(self) -> int:
        """The retained messages to read at once; never 0."""
        return self.batch_read_number or DEFAULT_BATCH_READ_NUMBER

    @property
    def deliver_rows(self) -> int:
        """The retained messages to deliver at once; never 0."""
        return self.batch_deliver_number or self.read_rows

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Require that one delivery is at most one batch."""
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
    """The quota of a client or of a Topic Filter."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    max_retained_messages: int = option(
        Integer(0, unit="retained messages; 0 is no limit"),
        0,
        help="Most retained messages. 0 = no limit.",
        effect="As retainer.max_retained_messages, for this quota only. When a quota is new, the broker counts the"
        " stored messages in the background; until then the limit does not include all of them.",
        example=1000,
    )
    max_retained_bytes: int = option(
        Size("1KB", "1048576GB", zero="no limit"),
        0,
        help="Most bytes of them together, counted as for retainer.max_retained_bytes. 0 = no limit.",
        effect="As retainer.max_retained_bytes, for this quota only.",
        example="1MB",
    )

    @property
    def is_configured(self) -> bool:
        """Whether there is a limit."""
        return bool(self.max_retained_messages or self.max_retained_bytes)


@frozen
class TopicQuotaConfig(QuotaConfig):
    """The quota of a Topic Filter."""

    topic_filter: str = option(
        FilterString(),
        "#",
        help="The Topic Filter of the quota, such as sensors/# for a whole branch.",
        effect="A topic counts against every quota with a matching filter.",
        example="sensors/#",
    )


#: The most different values of ``history_keep``: each has its own pruning, which passes over the whole history.
MOST_KEEPS = 16
#: The word in a policy for the value of the general option.
INHERIT = "inherit"


@frozen
class PolicyConfig(Section):
    """The policy of a Topic Filter."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    filter: str = option(
        FilterString(),
        "#",
        help="The Topic Filter of the policy, such as sensors/# for a whole branch. Each policy needs one.",
        effect="The first policy that matches a topic applies, all of it; later ones do not.",
        example="sensors/#",
    )
    msg_expiry_interval: float | None = option(
        Duration("1s", _LONGEST, zero="never", words={INHERIT: None}),
        INHERIT,
        help="Expiry of messages without a Message Expiry Interval, instead of retainer.msg_expiry_interval.",
        effect="Applies to new messages; stored messages keep their expiry.",
        example="1h",
    )
    msg_expiry_interval_override: float | None = option(
        Duration("1s", _LONGEST, words={"disabled": 0.0, INHERIT: None}),
        INHERIT,
        help="Longest time for which a message is retained, instead of retainer.msg_expiry_interval_override. disabled"
        " = no limit.",
        effect="Applies to new messages. At each start and each change, the general override also shortens the expiry"
        " of stored messages of these topics. With retainer.allow_never_expire, messages that never expire are exempt.",
        example="1d",
    )
    max_payload_size: int | None = option(
        Size("1B", "256MB", zero="no limit", words={INHERIT: None}),
        INHERIT,
        help="Longest payload that is retained, instead of retainer.max_payload_size. 0 = no limit here.",
        effect="A longer message is not retained: on_limit decides about it, and about the earlier message.",
        example="4KB",
    )
    max_retained_messages: int = option(
        Integer(0, unit="retained messages; 0 is no limit"),
        0,
        help="Most retained messages of the policy's topics: those to which no earlier policy applies. 0 = no limit.",
        effect="As retainer.max_retained_messages, for these topics only. All other limits hold for them too.",
        example=1000,
    )
    max_retained_bytes: int = option(
        Size("1KB", "1048576GB", zero="no limit"),
        0,
        help="Most bytes of them together, counted as for retainer.max_retained_bytes. 0 = no limit.",
        effect="As retainer.max_retained_bytes, for these topics only. After a change, the broker counts the stored"
        " messages in the background; until then the limit does not include all of them.",
        example="1MB",
    )
    force_retain: bool = option(
        Flag(),
        False,
        help="Retain every message of these topics, also without RETAIN 1: a last-value cache for publishers that do"
        " not set RETAIN. An empty message clears the topic. Zones with another retained_messages_mode are exempt.",
        effect="true: new subscribers get the last message. Present subscribers get messages as before.",
        example=True,
    )
    announce_expiry: bool | None = option(
        Flag({INHERIT: None}),
        INHERIT,
        help="Whether present subscribers get an empty message when a message of these topics expires, instead of"
        " retainer.announce_expiry.",
        effect="Applies to messages that expire from then on. true: the broker looks for them every second.",
        example=True,
    )
    write_interval: float = option(
        Duration("100ms", "1d", zero="every message is written"),
        "0s",
        help="Time for which messages with QoS 0 may wait in memory until the newest of each topic is written, all"
        " topics in one commit. Messages with QoS 1 and 2 and clears are written before their acknowledgement, as"
        " always. Readers get the newest message: a replay, a list or a search has the waiting messages written first.",
        effect="Longer: less is written to the disk. If the broker is killed or the machine fails, QoS 0 messages of"
        " this time are lost, and the topics keep their older messages. A clean stop loses nothing.",
        example="1m",
    )

    history: bool | None = option(
        Flag({INHERIT: None}),
        INHERIT,
        help="Whether changes of these topics are recorded in the history. true needs retainer.history.enable = true.",
        effect="false: each change is written once, and nobody can see or restore older messages of these topics. A"
        " changed value begins a new period of the history: each recorded topic gets an entry.",
        example=False,
    )
    history_keep: float | None = option(
        Duration("1m", "3650d", words={"infinity": inf, INHERIT: None}),
        INHERIT,
        help="Time for which changes of these topics are kept, shorter or longer than retainer.history.keep.",
        effect="Longer: operators can see and restore earlier times of these topics, and the history uses more space."
        " A changed value begins a new period; changes recorded before keep their time.",
        example="90d",
    )

    record: str = option(
        Choice(("retained", "all")),
        "retained",
        help="Which messages of these topics are recorded: retained = those with RETAIN 1, in the history; all = also"
        " those without RETAIN, in a table of their own, the telemetry.",
        effect="all: operators and the pipeline can read every message of these topics, and each is written once."
        " Replays, restores and quotas know nothing of it. retainer.telemetry limits the table.",
        example="all",
    )
    record_acknowledge: str = option(
        Choice(("received", "stored")),
        "received",
        help="When a message with QoS 1 or 2 and without RETAIN is acknowledged: received = at once; it is recorded"
        " within about a second, and dropped from the record while the database is too slow; stored = when it is"
        ' recorded, like a retained message, which needs record = "all".',
        effect="stored: a crash loses no acknowledged message, and publishers wait for the disk. Messages with QoS 0"
        " are always recorded later.",
        example="stored",
    )

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Require a Topic Filter: a policy for all topics should not come from a forgotten key."""
        if "filter" not in given:
            yield "filter", 'is missing; allowed: filter = "TOPIC FILTER"', ("filter",)
        if self.history is False and self.history_keep is not None:
            yield (
                "history_keep",
                "has no effect with history = false; allowed: only one of them",
                ("history_keep", "history"),
            )
        if self.record_acknowledge == "stored" and self.record != "all":
            yield (
                "record_acknowledge",
                '"stored" has no effect without record = "all"; allowed: both, or none',
                ("record_acknowledge", "record"),
            )


@frozen
class HistoryConfig(Section):
    """The history of retained messages."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    enable: bool = option(
        Flag(),
        False,
        help="Record every change of a retained message: the new message, the time and the client. All brokers that"
        " share a database need the same value.",
        effect="true: operators can see and restore earlier messages; each change is written twice. Changes while it is"
        " false are missing from the history.",
        example=True,
    )
    keep: float | None = option(
        Duration("1m", "3650d", infinity=True),
        "7d",
        help="Time for which changes are kept. The message of each topic at the beginning of this time is kept too.",
        effect="Longer: operators can see and restore earlier times, and the history uses more space.",
        example="30d",
    )
    max_bytes: int | None = option(
        Size("1MB", "1024GB", infinity=True),
        "infinity",
        help="Most bytes of the history. Beyond it, the oldest changes are deleted early. Payloads, topics, properties"
        " and 200 bytes for each change count.",
        effect="Lower: less space, and many changes shorten the history. The present retained messages always stay.",
        example="10GB",
    )


@frozen
class TelemetryConfig(Section):
    """The telemetry: recorded messages without RETAIN."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    keep: float | None = option(
        Duration("1m", "3650d", infinity=True),
        "7d",
        help="Time for which recorded messages without RETAIN are kept.",
        effect="Longer: operators and the pipeline can read older messages, and the database is larger.",
        example="30d",
    )
    max_messages: int = option(
        Integer(0, unit="messages; 0 is no limit"),
        10_000_000,
        help="Most of these messages. Beyond it, the oldest are deleted. 0 = no limit.",
        effect="Lower: less space. The limit may be exceeded for some seconds.",
        example=1_000_000,
    )
    max_bytes: int | None = option(
        Size("1MB", "1024GB", infinity=True),
        "1GB",
        help="Most bytes of these messages. Beyond it, the oldest are deleted. Payloads, topics, properties and 200"
        " bytes for each message count.",
        effect="Higher: more messages are kept. On the disk, they take up to half more, with their index.",
        example="20GB",
    )
    max_waiting_bytes: int = option(
        Size("64KB", "1GB"),
        "16MB",
        help="Most memory for messages that wait until they are recorded and that no acknowledgement waits for.",
        effect="Higher: fewer messages are dropped from the record while the database is slow. Each has 600 bytes"
        " beside its topic, properties and payload.",
        example="64MB",
    )


@frozen
class ChangesConfig(Section):
    """The changed topics that replays since a token read."""

    applies: ClassVar[TakesEffect] = TakesEffect.RESTART

    enable: bool = option(
        Flag(),
        True,
        help="Store which topics have changed, so that clients can ask for only what changed since a token or a time"
        " (holdfast-replay-since). All brokers that share a database need the same value. Only a start of the"
        " broker decides whether earlier tokens are still valid.",
        effect="false: each change writes a little less, clients that ask get everything, and nobody can follow changes"
        " of retained messages (/events).",
        example=False,
    )


@frozen
class RetainerConfig(RetainModes):
    """The limits, the expiry, the clearing and the replay of retained messages."""

    applies: ClassVar[TakesEffect] = TakesEffect.AT_ONCE

    enable: bool = option(
        Flag(),
        True,
        help="Store retained messages and replay them to new Subscriptions.",
        effect="false: messages with RETAIN 1 are routed and acknowledged but neither stored nor replayed; stored"
        " messages stay. To refuse them instead, set mqtt.retain_available = false.",
        example=False,
    )
    msg_expiry_interval: float = option(
        Duration("1s", _LONGEST, zero="never"),
        "0s",
        help="Expiry of retained messages without a Message Expiry Interval. 0s = never.",
        effect="Applies to new messages; stored messages keep their expiry.",
        example="7d",
    )
    msg_expiry_interval_override: float | None = option(
        Duration("1s", _LONGEST, words={"disabled": None}),
        "disabled",
        help="Longest time for which any message is retained, even with a longer Message Expiry Interval. disabled ="
        " no limit.",
        effect="Stored messages expire too, counted from the time of their storing: the broker shortens their expiry"
        " after each start and each change. Expired messages are neither delivered nor kept.",
        example="30d",
    )
    allow_never_expire: bool = option(
        Flag(),
        True,
        help="Whether messages that never expire are exempt from msg_expiry_interval_override.",
        effect="false: they expire too. Without msg_expiry_interval_override it has no effect.",
        example=False,
    )
    announce_expiry: bool = option(
        Flag(),
        False,
        help="Whether present subscribers get an empty message when a retained message expires, as for a clear.",
        effect="true: the broker looks for expired messages every second, and removes them, also with"
        " msg_clear_interval = 0s.",
        example=True,
    )
    msg_clear_interval: float = option(
        Duration("1s", "30d", zero="no sweeps"),
        "60s",
        help="Time between two sweeps. A sweep deletes expired retained messages and old tombstones. 0s = no sweeps.",
        effect="Shorter: space becomes free sooner. Expired messages are never delivered, with any value.",
        example="10m",
    )
    msg_clear_limit: int = option(
        Integer(1, unit="deletions"),
        50000,
        help="Most expired messages, and most tombstones, that a sweep deletes without a pause. After a pause of a"
        " second it goes on, until nothing is left.",
        effect="Higher: space becomes free sooner, and other work has fewer pauses.",
        example=10000,
    )
    max_payload_size: int | None = option(
        Size("1B", "256MB", zero="no limit", words={"max_packet_size": None}),
        "max_packet_size",
        help="Longest payload that is retained, in bytes. max_packet_size = that of mqtt, the largest of all zones, so"
        " that no client meets a second limit. 0 = no limit, also for operators.",
        effect="A longer message is not retained: on_limit decides about it, and about the earlier message.",
        example="64KB",
    )
    max_retained_messages: int = option(
        Integer(0, unit="retained messages; 0 is no limit"),
        0,
        help="Most retained messages. 0 = no limit.",
        effect="At the limit, messages of new topics are not retained (see on_limit); known topics are still replaced"
        " and cleared.",
        example=1000000,
    )
    max_retained_bytes: int = option(
        Size("1KB", "1048576GB", zero="no limit"),
        0,
        help="Most bytes of all retained messages together: of each its topic, properties and payload, and 200 more."
        " 0 = no limit.",
        effect="A message that would exceed it is not retained (see on_limit). Clearing a message, or replacing it by"
        " one of at most the same size, is always possible.",
        example="10GB",
    )
    max_publish_rate: units.Rate | None = option(
        Rate(),
        "infinity",
        help="Rate of new retained messages from all clients together. After a pause the number may come at once: 60"
        " with 60/m.",
        effect="Further messages are refused, or delivered at once and stored later (see on_limit). Clearing is always"
        " possible and does not count.",
        example="1000/s",
    )
    on_limit: str = option(
        Choice(("reject", "deliver_only", "disconnect", "drop_old")),
        "reject",
        help="Handling of a message over a limit: reject = v5 publishers with QoS 1 and 2 get"
        " Quota exceeded (0x97), and no client gets the message; other publishers: as deliver_only; deliver_only ="
        " deliver and acknowledge it, and clear the older message of the topic; disconnect = disconnect its publisher"
        " (v5: Quota exceeded, 0x97); drop_old = as deliver_only.",
        effect="New subscribers never get an older message than present ones have got. Beyond max_publish_rate, nothing"
        " is cleared: the newest message of each topic is stored later. A message never displaces messages of other"
        " topics.",
        example="drop_old",
    )
    when_unavailable: str = option(
        Choice(("wait", "refuse")),
        "wait",
        help="Handling of a Subscription with a replay while the database cannot be reached (Postgres). wait = the"
        " replay begins when the database is back. refuse = SUBACK with 0x83 (v3: 0x80); a replay that has begun ends"
        " its connection with DISCONNECT 0x83 (v3: a close) after 5 s.",
        effect="refuse: clients learn of the fault and can try another broker; only present subscribers get live"
        " messages.",
        example="refuse",
    )
    tombstone_ttl: float = option(
        Duration("1s", "365d"),
        "24h",
        help="Time for which the tombstone of a cleared or expired retained message is kept.",
        effect="Longer: readers of the database see clears for longer, and tombstones use more space.",
        example="7d",
    )
    sparkplug_aware: bool = option(
        Flag(),
        False,
        help="Be a Sparkplug Aware MQTT Server: retain a copy of each NBIRTH and DBIRTH below $sparkplug/certificates/,"
        " in the same commit, and give each NDEATH the time at which it is sent.",
        effect="true: hosts get the present births at once by subscribing to $sparkplug/certificates/#. Clients cannot"
        " publish there. The copies count as retained messages, also of zones that do not let clients retain.",
        example=True,
        applies=TakesEffect.RESTART,
    )
    lease_grace: float = option(
        Duration("1s", "30d"),
        "30s",
        help="Time for which the retained messages of a client stay that has published them with"
        " holdfast-retain-while: connected and has lost its connection. A client that connects in this time keeps"
        " them. After a restart of the broker mqtt.will_restart_grace counts.",
        effect="Longer: a short loss of the connection clears nothing, and the messages of lost clients stay longer.",
        example="5m",
    )
    delivery_rate: units.Rate | None = option(
        Rate(),
        "infinity",
        help="Rate of retained messages for all replays together. After a pause the number may come at once: 1000 with"
        " 1000/s, 100 with the same rate 100/100ms. Then they come evenly, in parts of a tenth of the number.",
        effect="Lower: replays use less of the network and the broker, and last longer. Waiting replays continue in the"
        " order of their arrival; nothing is dropped.",
        example="1000/s",
    )
    client_quota: QuotaConfig = field(
        factory=QuotaConfig,
        metadata=table(
            QuotaConfig, "The quota of each client. A retained message counts for the client that published it."
        ),
    )
    topic_quotas: Mapping[str, TopicQuotaConfig] = field(
        factory=dict,
        metadata=named_tables(
            TopicQuotaConfig,
            "Quotas of Topic Filters: one table each, with a name of your choice.",
        ),
    )
    policies: Sequence[PolicyConfig] = field(
        default=(),
        metadata=listed_tables(
            PolicyConfig,
            "Policies of Topic Filters, one table each. The first one that matches a topic applies, in the order of"
            " the file. What it does not set is as for all other topics.",
        ),
    )
    flow_control: FlowControlConfig = field(
        factory=FlowControlConfig,
        metadata=table(FlowControlConfig, "The batch sizes and rates of replays."),
    )
    history: HistoryConfig = field(
        factory=HistoryConfig,
        metadata=table(HistoryConfig, "The history of retained messages."),
    )
    telemetry: TelemetryConfig = field(
        factory=TelemetryConfig,
        metadata=table(TelemetryConfig, 'The telemetry: messages without RETAIN, of policies with record = "all".'),
    )
    changes: ChangesConfig = field(
        factory=ChangesConfig,
        metadata=table(ChangesConfig, "The changed topics, for replays of only what changed."),
    )

    further_names: ClassVar[Mapping[tuple[str, ...], str]] = {
        ("deliver_rate",): "delivery_rate",
        ("flow_control", "batch_deliver_limiter"): "delivery_rate",
    }

    def problems(self, given: Mapping[str, object]) -> Iterable[tuple[str, str, Collection[str]]]:
        """Require what options demand of each other."""
        if not self.history.enable and any(policy.history for policy in self.policies):
            yield (
                "policies",
                "history = true needs retainer.history.enable = true; to record some topics only, give all others a"
                ' later policy with filter = "#" and history = false',
                ("policies", "history"),
            )
        keeps = {policy.history_keep for policy in self.policies} - {None}
        if len(keeps) > MOST_KEEPS:
            yield (
                "policies",
                f"history_keep has {len(keeps)} different values, and each is pruned by itself; allowed: at most"
                f" {MOST_KEEPS} different values",
                ("policies",),
            )
