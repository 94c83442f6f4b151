"""Application Messages and changes of retained messages, as the broker's layers exchange them, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from holdfast.hot_values import hot_frozen
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import encode_properties


@hot_frozen
class ApplicationMessage:
    """A published message and its publisher.

    ``properties`` has only the properties for subscribers, without Topic Alias, Message Expiry Interval and
    Subscription Identifiers. ``expires_at`` is in milliseconds since the epoch, None for never. ``listener`` is the
    publisher's, "" if it is not known any more, None for a publisher that is no Client. ``operator`` is the caller of
    the API who makes the change, None for Clients: only the history shows it, and no permission depends on it.
    """

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    client_id: str | None = None
    username: str | None = None
    properties: Properties = NO_PROPERTIES
    expires_at: int | None = None
    listener: str | None = None
    operator: str | None = None


def has_expired(expires_at: int | None, now: int) -> bool:
    """Tell whether a message that expires at a time (milliseconds; None or 0 for never) is gone [MQTT5-3.3.2-5]."""
    return expires_at is not None and 0 < expires_at <= now


def seconds_left(expires_at: int, now: int) -> int:
    """Return the rest of a Message Expiry Interval, in seconds, from 1 to the most of its field [MQTT5-3.3.2-6].

    Only whole seconds of waiting count, so the interval of a message that is forwarded at once does not change.
    """
    return min(max(1, -((now - expires_at) // 1000)), 0xFFFFFFFF)


@hot_frozen
class RetainedMessage:
    """The retained message of a topic, as in the store.

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


#: Seconds after which a retained message is stale, if nothing tells how often it is usually stored again.
STALE_AFTER = 30 * 86_400
_TIMES_USUAL, _LEAST_STALE = 6, 3_600


def stale_after(usual: float | None = None) -> float:
    """Return the seconds after which a retained message is *stale*: it has not been stored again for longer.

    ``usual`` is the time in which it, or nine of ten topics like it, are usually stored again, in seconds; None if
    nothing tells it. A message is stale after six times as long, an hour at least. A time that an operator names, for a
    rule, a report or an alarm, takes the place of this one. A message that is stored again with the same payload is not
    stale.
    """
    return STALE_AFTER if usual is None else max(_LEAST_STALE, _TIMES_USUAL * usual)


class ChangeKind(Enum):
    """The kinds of changes of a retained message."""

    SET = "set"
    CLEAR = "clear"
    EXPIRE = "expire"


class ChangeOrigin(Enum):
    """The origins of changes of retained messages."""

    PUBLISH = "publish"
    WILL = "will"
    API = "api"
    IMPORT = "import"
    EXPIRY = "expiry"
    LIMIT = "limit"  #: a newer message of its topic was delivered, but is over a limit of the retainer
    LEASE = "lease"  #: its publisher's Session or connection has ended
    RESTORE = "restore"  #: restored from the history
    OVERRIDE = "override"  #: ``retainer.msg_expiry_interval_override`` shortened its expiry
    BASELINE = "baseline"  #: present when the history began; the real origin is unknown


#: origins of changes that operators make
BY_OPERATORS = frozenset((ChangeOrigin.API, ChangeOrigin.RESTORE))


@hot_frozen
class RetainedChange:
    """One accepted change, to be stored. ``message`` is None for a clear, which leaves a tombstone."""

    topic: str
    revision: int
    changed_at: int
    message: RetainedMessage | None
    client_id: str | None = None
    username: str | None = None
    origin: ChangeOrigin = ChangeOrigin.PUBLISH
    operator: str | None = None


@hot_frozen
class RetainedChanges:
    """Accepted messages of one Client, to be stored together. They have no properties.

    ``changed_at`` and ``expires_at`` are as in :class:`RetainedMessage`.
    """

    topics: Sequence[str]
    payloads: Sequence[bytes]
    revisions: Sequence[int]
    qos: int
    client_id: str
    username: str | None
    changed_at: int
    expires_at: int | None

    def singly(self) -> Iterator[RetainedChange]:
        """Yield the changes one by one."""
        at, client_id, username = self.changed_at, self.client_id, self.username
        for topic, payload, revision in zip(self.topics, self.payloads, self.revisions, strict=True):
            message = RetainedMessage(
                topic, payload, self.qos, NO_PROPERTIES, client_id, username, at, self.expires_at, revision
            )
            yield RetainedChange(topic, revision, at, message, client_id, username)


# What a message holds, in bytes: the one measure of all accounts and limits on bytes.
#
# A message holds its topic, its properties and its payload, and a constant for everything else. The constant depends on
# the account:
#
# - in memory (:func:`held_size`): queues of Sessions, writes that wait for their commit;
# - in the database (:func:`stored_size`): retained messages, their quotas, the history.
#
# ``retainer.max_payload_size`` alone is about payloads.


#: What a message in memory costs beside its bytes: Python's objects for it, its place in a queue, and its row.
HELD_ENTRY = 600
#: What its Packet Identifier alone costs at most, where neither the message nor its packet is kept.
HELD_IDENTIFIER = 100
#: What each of its User Properties costs in memory beside its bytes: two strings and their pair.
HELD_USER_PROPERTY = 160
#: What a row of the database costs beside its bytes: times, revision, publisher, packet prefixes, indexes.
STORED_ENTRY = 200


def held_size(topic_bytes: int, properties: Properties, payload_bytes: int) -> int:
    """Return how many bytes a message occupies in memory, given the lengths of its topic and payload in bytes."""
    size = HELD_ENTRY + topic_bytes + payload_bytes
    if properties is not NO_PROPERTIES:  # most messages have none: one comparison instead of an encoding
        size += len(encode_properties(properties)) + HELD_USER_PROPERTY * len(properties.user_properties)
    return size


def stored_size(topic: str, properties: Properties, payload_bytes: int) -> int:
    """Return how many bytes a message occupies in the database."""
    block = 1 if properties is NO_PROPERTIES else len(encode_properties(properties))
    return STORED_ENTRY + len(topic.encode()) + block + payload_bytes
