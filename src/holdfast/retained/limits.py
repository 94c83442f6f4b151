"""The configured limits on retained messages, and the exceptions that name the limit of a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from attrs import frozen

from holdfast.core.clients import payers_of
from holdfast.core.units import Rate
from holdfast.retained.policies import NO_POLICIES, Policies, Policy
from holdfast.wire.datatypes import control_character
from holdfast.wire.properties import Properties

if TYPE_CHECKING:
    from holdfast.config.sections.retainer import RetainerConfig


class Treatment(Enum):
    """The treatment of a message with RETAIN 1 that is over a limit. None removes messages of other topics."""

    REFUSE = "refuse"  #: tell the publisher; nobody gets the message, and the older message of its topic stays
    DISCONNECT = "disconnect"  #: disconnect the publisher; nobody gets the message, and the older message stays
    #: acknowledge the message and deliver it live. No older message stays behind it: the topic is cleared, or, beyond
    #: the publish rate, the message waits until the rate allows to store it
    DELIVER = "deliver"


class OnLimit(Enum):
    """The policy for messages with RETAIN 1 that are over a limit."""

    REJECT = "reject"
    DELIVER_ONLY = "deliver_only"
    DROP_OLD = "drop_old"
    DISCONNECT = "disconnect"

    @property
    def told(self) -> Treatment:
        """The treatment with MQTT 5 and QoS 1 or 2: an acknowledgement can tell the publisher of a refusal."""
        return _TREATMENTS[self][0]

    @property
    def untold(self) -> Treatment:
        """The treatment with MQTT 5 and QoS 0, and with MQTT 3."""
        return _TREATMENTS[self][1]


#: with MQTT 5 and QoS 1 or 2; otherwise
_TREATMENTS = {
    OnLimit.REJECT: (Treatment.REFUSE, Treatment.DELIVER),
    OnLimit.DELIVER_ONLY: (Treatment.DELIVER, Treatment.DELIVER),
    OnLimit.DROP_OLD: (Treatment.DELIVER, Treatment.DELIVER),
    OnLimit.DISCONNECT: (Treatment.DISCONNECT, Treatment.DISCONNECT),
}


class Limit(Enum):
    """The limits, by their names in ``$SYS`` counters."""

    PAYLOAD_SIZE = "payload_size"
    TOPIC_LENGTH = "topic_length"
    PUBLISH_RATE = "publish_rate"
    MESSAGES = "messages"
    BYTES = "bytes"
    CLIENT_QUOTA = "client_quota"
    TOPIC_QUOTA = "topic_quota"
    USER_QUOTA = "user_quota"
    GUESTS_QUOTA = "guests_quota"


class NotRetained(Exception):
    """The message is not stored. The text says why."""


class RetainRefused(NotRetained):
    """The message is over a limit. The text names the limit's option."""

    def __init__(self, limit: Limit, why: str) -> None:
        super().__init__(why)
        self.limit = limit


@frozen
class Quota:
    """The most messages and bytes (:func:`holdfast.core.messages.stored_size`); 0 means unlimited.

    ``key`` is the beginning of its options' names.
    """

    key: str
    max_messages: int = 0
    max_bytes: int = 0

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self.max_messages or self.max_bytes)

    def excess(self, messages: int, size: int) -> str:
        """Describe how messages of ``size`` bytes together exceed the quota; "" if they do not."""
        counted = (("messages", messages, self.max_messages), ("bytes", size, self.max_bytes))
        return " and ".join(
            f"{used} {unit} ({self.key}max_retained_{unit} is {most})"
            for unit, used, most in counted
            if 0 < most < used
        )


@frozen
class PayerQuotas:
    """The quotas of one zone: of each payer (:mod:`holdfast.core.clients`), and of all guests together."""

    own: Quota = Quota("limits.")
    guests: Quota = Quota("limits.guests_")

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.own.is_limited or self.guests.is_limited


@frozen
class PayerLimits:
    """The quotas of payers, by listener. ``otherwise`` is for a listener that is not known any more.

    ``names_proven`` tells whether User Names are payers. What a payer has retained through any listener counts.
    """

    names_proven: bool
    by_listener: Mapping[str, PayerQuotas]
    otherwise: PayerQuotas = PayerQuotas()

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.otherwise.is_limited or any(quotas.is_limited for quotas in self.by_listener.values())

    def payers(self, username: str | None, client_id: str | None) -> tuple[str, ...]:
        """Return the payers of a message of this publisher."""
        return payers_of(username, client_id, self.names_proven)

    def quotas(self, listener: str | None) -> PayerQuotas:
        """Return the quotas for a message that comes through a listener; None: it is not a Client's."""
        return UNLIMITED if listener is None else self.by_listener.get(listener, self.otherwise)


UNLIMITED = PayerQuotas()


@frozen
class RetainerLimits:
    """All limits of the retainer. 0 means unlimited (expiry: never). Intervals are in seconds, sizes in bytes.

    ``control_characters`` tells whether operators may set topics that contain some; clients' packets are checked when
    they arrive. ``max_publish_rate`` counts messages, None for unlimited. With
    ``msg_expiry_interval_override`` None no expiry is overridden. ``topic_quotas`` are pairs of a Topic Filter and its
    quota. ``payers`` has the quotas of users and guests, None for none. ``policies`` have the quotas of their topics.
    """

    enable: bool = True
    msg_expiry_interval: float = 0
    msg_clear_interval: float = 60
    msg_clear_limit: int = 50_000
    max_payload_size: int = 2112 << 10
    payload_option: str = "retainer.max_payload_size"  #: the option that sets it
    max_retained_messages: int = 0
    max_topic_length: int = 2600
    tombstone_ttl: float = 86_400
    max_retained_bytes: int = 0
    max_publish_rate: Rate | None = None
    on_limit: OnLimit = OnLimit.REJECT
    msg_expiry_interval_override: float | None = None
    allow_never_expire: bool = True
    client_quota: Quota | None = None
    topic_quotas: tuple[tuple[str, Quota], ...] = ()
    payers: PayerLimits | None = None
    policies: Policies = NO_POLICIES
    control_characters: bool = True
    refuse_unavailable: bool = False  #: while the store cannot be read: refuse a replay instead of delaying it

    @property
    def total_quota(self) -> Quota:
        """The quota of all retained messages together."""
        return Quota("retainer.", self.max_retained_messages, self.max_retained_bytes)

    @property
    def quotas(self) -> tuple[object, ...]:
        """The quotas of all messages, of each Client and of Topic Filters, to compare."""
        return (self.total_quota, self.client_quota, self.topic_quotas)

    @property
    def counts_all(self) -> bool:
        """Whether a quota may count messages of topics without a policy."""
        return self.total_quota.is_limited or bool(self.client_quota or self.topic_quotas or self.payers)

    @property
    def has_quotas(self) -> bool:
        """Whether any quota is configured."""
        return self.counts_all or self.policies.has_quotas


def size_refusal(limits: RetainerLimits, topic: str, size: int, policy: Policy | None = None) -> RetainRefused | None:
    """Return the refusal of a message whose payload (``size`` bytes) or topic is too long, None if neither is.

    The limit of a ``policy`` replaces the general one.
    """
    most, option = limits.max_payload_size, limits.payload_option
    if policy is not None and policy.max_payload_size is not None:
        most, option = policy.max_payload_size, f"{policy.name}max_payload_size"
    if most and size > most:
        return RetainRefused(Limit.PAYLOAD_SIZE, f"the payload has {size} bytes, {option} is {most}")
    if 4 * len(topic) > limits.max_topic_length:  # a character has at most 4 bytes: short topics are not encoded
        length = len(topic.encode())
        if length > limits.max_topic_length:
            return RetainRefused(
                Limit.TOPIC_LENGTH,
                f"the topic has {length} bytes, at most {limits.max_topic_length} are retained",
            )
    return None


def name_refusal(limits: RetainerLimits, topic: str, properties: Properties) -> str | None:
    """Return why operators may not set a message with this topic and Response Topic, None if they may."""
    if limits.control_characters:
        return None
    for field, name in (("topic", topic), ("Response Topic", properties.response_topic or "")):
        refused = control_character(name)
        if refused is not None:
            return f'the {field} contains {refused}, mqtt.control_characters is "refuse"'
    return None


# The settings of flow control, as plain values. The pipeline reads them too, without Twisted.


#: The bytes of one read of the store. A longer message is a read of its own. Fewer bytes would cost more reads, more
#: would cost memory for each replay.
BATCH_BYTES = 1 << 20
#: The replays of one Session that run at a time. The others wait, in the order of their Topic Filters.
REPLAYS_OF_SESSION = 16


@frozen
class FlowSettings:
    """The settings of flow control.

    ``batch_read_number`` (1 or more) and ``batch_deliver_number`` (0 for the whole batch) count retained messages: they
    are upper bounds, since slices are bounded by bytes and time too (:mod:`holdfast.retained.store.bounded_read`).
    ``delivery_rate`` is for all replays together, ``client_rate`` for all replays of one client; None means unlimited.
    The configuration does not set the other bounds.
    """

    batch_read_number: int = 1000
    batch_deliver_number: int = 0
    max_batch_bytes: int = BATCH_BYTES
    delivery_rate: Rate | None = None
    client_rate: Rate | None = None
    max_replays_per_client: int = REPLAYS_OF_SESSION


def flow_of(retainer: RetainerConfig) -> FlowSettings:
    """Return the settings of flow control."""
    flow = retainer.flow_control
    return FlowSettings(
        batch_read_number=flow.read_rows,
        batch_deliver_number=flow.batch_deliver_number,
        delivery_rate=retainer.delivery_rate,
        client_rate=flow.client_rate,
    )
