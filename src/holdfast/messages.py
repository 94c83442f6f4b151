"""Application Messages as the broker's layers hand them to each other."""

from __future__ import annotations

from enum import Enum

from holdfast.hot_values import hot_frozen
from holdfast.wire.properties import NO_PROPERTIES, Properties


@hot_frozen
class ApplicationMessage:
    """What a publisher sent: topic, payload, Quality of Service, RETAIN flag and properties, and who sent it.

    ``properties`` holds only what is forwarded to subscribers; Topic Alias, Message Expiry Interval and Subscription
    Identifiers are not among it. ``expires_at`` is in milliseconds since the epoch, None for never.
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    client_id: str | None = None
    username: str | None = None
    properties: Properties = NO_PROPERTIES
    expires_at: int | None = None


def seconds_left(expires_at: int, now: int) -> int:
    """Return what is left of a Message Expiry Interval, in seconds, at least 1 [MQTT5-3.3.2-6].

    Of the time a message has waited, only whole seconds are taken off: what is passed on at once is unaltered.
    """
    return max(1, -((now - expires_at) // 1000))


@hot_frozen
class RetainedMessage:
    """The one message retained for a topic, as the store keeps it.

    ``stored_at`` and ``expires_at`` are in milliseconds since the epoch (``expires_at`` None for never);
    ``revision`` orders all changes of the store.
    """

    topic: str
    payload: bytes
    qos: int
    properties: Properties
    client_id: str | None
    username: str | None
    stored_at: int
    expires_at: int | None
    revision: int


class ChangeKind(Enum):
    """What happened to a topic's retained message."""

    SET = "set"
    CLEAR = "clear"
    EXPIRE = "expire"


class ChangeOrigin(Enum):
    """Who made a change of the retained messages."""

    PUBLISH = "publish"
    WILL = "will"
    API = "api"
    IMPORT = "import"
    EXPIRY = "expiry"
    RESTORE = "restore"  #: put back from the history
    OVERRIDE = "override"  #: its expiry was brought forward by ``retainer.msg_expiry_interval_override``
    BASELINE = "baseline"  #: found when the history began; who made the change is unknown


@hot_frozen
class RetainedChange:
    """One accepted change, to be stored: ``message`` is None for a clear, which leaves a tombstone."""

    topic: str
    revision: int
    changed_at: int
    message: RetainedMessage | None
    client_id: str | None = None
    username: str | None = None
    origin: ChangeOrigin = ChangeOrigin.PUBLISH
