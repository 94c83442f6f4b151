"""What may be retained: the limits, and what becomes of a message that is over one."""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class OnLimit(Enum):
    """What becomes of a message with RETAIN 1 that is over a limit. Other topics' messages never make room for it."""

    DELIVER_ONLY = "deliver_only"  #: delivered live and acknowledged; an older value stays
    REJECT = "reject"  #: the publisher is told, where it can be; else as above
    DISCONNECT = "disconnect"  #: the publisher is disconnected
    DROP_OLD = "drop_old"  #: delivered live and acknowledged; the topic's older value is cleared


class Limit(Enum):
    """What can stand in the way, as it is called in the broker's figures."""

    PAYLOAD_SIZE = "payload_size"
    TOPIC_LENGTH = "topic_length"
    PUBLISH_RATE = "publish_rate"
    MESSAGES = "messages"
    BYTES = "bytes"
    CLIENT_QUOTA = "client_quota"
    TOPIC_QUOTA = "topic_quota"


class NotRetained(Exception):
    """The message is not stored; the text says why."""


class RetainRefused(NotRetained):
    """The message may not be retained: a limit stands in the way. The text names it."""

    def __init__(self, limit: Limit, why: str) -> None:
        super().__init__(why)
        self.limit = limit


@frozen
class Quota:
    """Most messages and bytes of payloads; 0 stands for unlimited. ``key`` is where its options are, for messages."""

    key: str
    max_messages: int = 0
    max_bytes: int = 0


@frozen
class RetainerLimits:
    """What may be retained; 0 stands for unlimited (expiry: for never). Intervals are in seconds, sizes in bytes.

    ``max_publish_rate`` is in messages per second, None for unlimited. ``msg_expiry_interval_override`` is None where
    nothing is overridden. ``topic_quotas`` are by Topic Filter: ``a/#`` for what is at ``a`` or below it.
    """

    enable: bool = True
    msg_expiry_interval: float = 0
    msg_clear_interval: float = 60
    msg_clear_limit: int = 50_000
    max_payload_size: int = 1 << 20
    max_retained_messages: int = 0
    max_topic_length: int = 2600
    tombstone_ttl: float = 86_400
    max_retained_bytes: int = 0
    max_publish_rate: float | None = None
    on_limit: OnLimit = OnLimit.REJECT
    msg_expiry_interval_override: float | None = None
    allow_never_expire: bool = True
    client_quota: Quota | None = None
    topic_quotas: tuple[tuple[str, Quota], ...] = ()
    refuse_unavailable: bool = False  #: refuse a replay while the store cannot be read, rather than let it wait


def size_refusal(limits: RetainerLimits, topic: str, size: int) -> RetainRefused | None:
    """Return what stands in the way of a message of any publisher's, whatever else is retained.

    ``size`` is that of its payload, in bytes.
    """
    if limits.max_payload_size and size > limits.max_payload_size:
        return RetainRefused(
            Limit.PAYLOAD_SIZE, f"the payload has {size} bytes, retainer.max_payload_size is {limits.max_payload_size}"
        )
    if 4 * len(topic) > limits.max_topic_length:
        length = len(topic.encode())
        if length > limits.max_topic_length:
            return RetainRefused(
                Limit.TOPIC_LENGTH,
                f"the topic has {length} bytes, retainer.max_topic_length is {limits.max_topic_length}",
            )
    return None
