"""The knowledge of the model: Sessions, messages on their way, Wills and retained messages, as plain values."""

from __future__ import annotations

from attrs import define, field, frozen

#: the topics of the test, each with the filters that match it
TOPICS = {
    "t/a": ("t/a", "t/+", "#"),
    "t/b": ("t/+", "#"),
    "u": ("u", "#"),
    "v": ("#",),
    "w/a": ("w/+", "#"),
    "w/b": ("w/+", "#"),
    "w/c": ("w/+", "#"),
}
FILTERS = sorted({topic_filter for filters in TOPICS.values() for topic_filter in filters})

LONGEST = 300  #: mqtt.session_expiry_interval
GRACE = 60  #: mqtt.will_restart_grace


@frozen
class Message:
    """An Application Message. Payloads are unique, except the empty one that clears a topic."""

    publisher: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    expires_at: int | None = None

    def has_expired(self, now: int) -> bool:
        """Tell whether its Message Expiry Interval has passed."""
        return self.expires_at is not None and self.expires_at <= now


@define(eq=False)
class Delivery:
    """A message on its way to one Session. ``seen`` is its Packet Identifier at the Client, None before it arrives.

    ``connection`` is the one, by number, on which it came last; ``released`` tells that the Client has sent PUBREC.
    """

    number: int
    message: Message
    qos: int
    identifiers: frozenset[int]
    seen: int | None = None
    connection: int = 0
    released: bool = False


@define(eq=False)
class Session:
    """A Session. ``received`` has the QoS 2 messages that its Client has not released, with the fact of each."""

    number: int
    durable: bool
    expiry: int
    expires_at: int | None = None  #: None while its Client is connected
    subscriptions: dict[str, tuple[int, int | None]] = field(factory=dict)
    subscribed_at: dict[str, int] = field(factory=dict)  #: the fact of the first SUBSCRIBE to each filter
    owed: list[Delivery] = field(factory=list)
    received: dict[int, int | None] = field(factory=dict)

    def has_history(self) -> bool:
        """Tell whether its Client must remember an exchange."""
        return bool(self.received) or any(delivery.seen for delivery in self.owed)


@define(eq=False)
class Will:
    """A Will Message. ``due`` is None while its Client is connected; ``restored``: the broker was restarted."""

    message: Message
    lifetime: int | None
    delay: int
    due: int | None = None
    restored: bool = False
    accepted: int = 0  #: the fact that must be on disk before its Client is admitted: before that there is no Will


@define(eq=False)
class State:
    """The whole state."""

    sessions: dict[str, Session] = field(factory=dict)
    wills: dict[str, Will] = field(factory=dict)
    retained: dict[str, tuple[int, Message]] = field(factory=dict)  #: with the fact of each
    replaced: dict[bytes, int] = field(factory=dict)  #: payloads that were retained -> the fact that ended that
    fact: int = 0  #: the latest
