"""The limits for the Clients of one zone, as plain values."""

from __future__ import annotations

from enum import Enum

from attrs import field, frozen

from holdfast.core.units import Rate
from holdfast.wire import Reception


class WhenFull(Enum):
    """The treatment of a message for a Client that is away and whose queue is full."""

    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    REJECT = "reject"


class RetainMode(Enum):
    """The treatment of messages with RETAIN 1."""

    ENABLED = "enabled"
    ENABLED_WITHOUT_RETAINING = "enabled_without_retaining"  #: delivered unchanged, neither stored nor clearing
    DOWNGRADE = "downgrade"  #: treated like messages with RETAIN 0
    DROP = "drop"  #: acknowledged, not delivered


@frozen
class Limits:
    """The limits of the Clients of one zone. None means unlimited. Sizes are in bytes, times in seconds."""

    max_packet_size: int = 2112 << 10
    max_clientid_len: int = 1024  #: bytes
    max_topic_levels: int = 128
    max_qos_allowed: int = 2
    max_topic_alias: int = 32  #: of the Clients
    max_topic_alias_out: int = 65535  #: of the Server towards one Client
    max_user_properties: int = 64  #: of one packet or Will Message
    max_properties_bytes: int = 64 << 10  #: of one packet or Will Message, without Authentication Data
    control_characters: bool = False  #: accepted in names [MQTT5-1.5.4]
    retain_available: bool = True
    retained_messages_mode: RetainMode = RetainMode.ENABLED
    stop_publish_clear_msg: bool = False
    tell_publishers: bool = False  #: of retained messages, to those who may ask
    wildcard_subscription: bool = True
    shared_subscription: bool = True
    queue_subscription: bool = True  #: $queue/FILTER is the shared subscription $share/$queue/FILTER
    subscription_identifiers: bool = True
    min_replay_levels: int = 0  #: levels before the first wildcard that a subscription needs to get a replay
    server_keepalive: int | None = None
    max_keepalive: int | None = None
    keepalive_multiplier: float = 1.5
    max_inflight: int = 2000
    max_inflight_bytes: int = 1 << 20
    max_awaiting_rel: int = 1000
    max_subscriptions: int | None = 10_000
    max_wildcard_patterns: int | None = 32
    max_mqueue_len: int | None = 100_000
    max_mqueue_bytes: int = 64 << 20
    mqueue_full: WhenFull = WhenFull.DROP_OLDEST
    mqueue_store_qos0: bool = False
    session_expiry_interval: float | None = 7200
    idle_timeout: float = 15
    upgrade_qos: bool = False
    ignore_loop_deliver: bool = False
    max_buffered_messages: int = 100_000  #: of one connection, 0 for unlimited
    max_buffered_bytes: int = 32 << 20  #: of one connection, 0 for unlimited
    conflate_slow: bool = False  #: conflate messages for slow connections before they reach these limits
    conflate_filter: str = "#"
    conflate_interval: float = 0  #: for the topics that match this filter, 0 for none
    max_sessions: int | None = None  #: of one payer
    guests_max_sessions: int | None = None  #: of all guests of a listener
    max_waiting_bytes: int | None = None  #: of one payer: queued messages and Wills
    messages_rate: Rate | None = None  #: of the PUBLISH packets of one connection
    bytes_rate: Rate | None = None  #: of the bytes of these packets

    reception: Reception = field(init=False, eq=False, repr=False)  #: the rules for the Clients' packets

    @reception.default
    def _reception(self) -> Reception:
        return Reception(self.max_user_properties, self.max_properties_bytes, self.control_characters, from_client=True)
