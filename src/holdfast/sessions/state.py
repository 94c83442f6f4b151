"""Session State [MQTT5-4.1] as Sessions see it: subscriptions, due markers, and the seam to their store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from attrs import define, field, frozen
from zope.interface import Attribute, Interface, implementer

from holdfast.core.extensions import Facts
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.core.topics import wildcard_pattern
from holdfast.hot_values import hot_frozen
from holdfast.identity.interfaces import Principal
from holdfast.wire.packets import Will

# One granted subscription, and the stored progress of its replay.


@frozen
class Subscription:
    """The granted options of one subscription [MQTT5-3.8.3.1].

    ``qos`` is the maximum QoS; ``identifier`` the Subscription Identifier (1..268,435,455) or None. ``filtered`` tells
    that the authorizer is asked about each topic. It is not stored: a later process asks about the subscription anew.
    ``conflate`` is the interval of conflation in milliseconds, 0 for none.
    """

    topic_filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int | None = None
    group: str | None = None
    filtered: bool = False
    conflate: int = 0


@hot_frozen
class ReplayProgress:
    """How far a replay is. The Client has acknowledged all messages up to the topic ``after``.

    Changes with a revision above ``cut`` concern the Client as live messages; 0 if that is not certain. ``marker`` is
    the marker that is due at its end (:class:`.PendingMarker`), None for none. ``facts`` are told of each message.
    ``since`` is the turn after which it brings changes (:mod:`holdfast.changes.log`), None for all
    messages.
    """

    after: str
    cut: int
    marker: str | None = None
    facts: Facts = ()
    since: int | None = None


# The subscriptions of one Session, and the patterns of their wildcards.
#
# How it works. A search for the subscriptions that match a Topic Name follows each filter as far as it matches. Filters
# with ``+`` in the same levels follow one way together, since they have the Topic Name's own levels elsewhere. So the
# number of their *wildcard patterns* bounds the cost of the search, whatever the number of subscriptions:
#
#     site/+/temperature, site/+/#, town/+     one pattern
#     +/site                                   another one
#     all variants of a/a/a/a with a or +      16 patterns, with as many ways for the one Topic Name a/a/a/a


class Subscriptions(dict[str, Subscription]):
    """The subscriptions of one Session by Topic Filter, with its share. Changed through its own methods only."""

    __slots__ = ("patterns",)

    def __init__(self) -> None:
        #: by wildcard pattern: how many subscriptions have it; those without ``+`` are not counted
        self.patterns: dict[int, int] = {}

    def add(self, topic_filter: str, subscription: Subscription) -> None:
        """Add or replace a subscription."""
        if topic_filter not in self:
            pattern = wildcard_pattern(subscription.topic_filter)
            if pattern:
                self.patterns[pattern] = self.patterns.get(pattern, 0) + 1
        self[topic_filter] = subscription

    def remove(self, topic_filter: str) -> bool:
        """Remove a subscription. Return False if there was none."""
        subscription = self.pop(topic_filter, None)
        if subscription is None:
            return False
        pattern = wildcard_pattern(subscription.topic_filter)
        if pattern:
            self.patterns[pattern] -= 1
            if not self.patterns[pattern]:
                del self.patterns[pattern]
        return True


# The marker that a Client is sent after a replay, as long as it is due: what it will tell, and how it is stored.
#
# It belongs to the position of the replay (:mod:`holdfast.sessions.delivery.replay_positions`), so it is Session State.


#: in ``left_out``: messages above the Client's Maximum Packet Size
TOO_LARGE = "too large"
#: in ``left_out``: the Client may not receive every message that the Topic Filter matches
NOT_AUTHORIZED = "not authorized"
#: in ``left_out``: the history does not have the time of the replay any more, or does not know some topics then
NO_HISTORY = "no history"
#: in ``left_out``: nobody has noted what the replay left out before the marker was asked for
ASKED_LATE = "asked for during the replay"
#: in ``left_out``: changes since the token are not kept any more
NOT_KEPT = "changes not kept"
#: why the marker of a Subscription without a replay tells no complete state
NOT_REPLAYED = "not replayed"


@define(eq=False)
class PendingMarker:
    """A marker that is due.

    ``topic`` is its Topic Name, and ``carrier`` the Subscription of the Client that matches it, by the Topic Filter of
    its SUBSCRIBE. ``replayed`` is false for a Subscription without a replay. ``count`` and ``size`` (bytes) are of the
    messages sent so far, with repeats if the replay was ``resumed``. ``left_out`` has the reasons why messages were
    left out. ``token`` is for the next request of changes, None for none. ``since`` is "full" or "delta" where changes
    since a token were asked for, else "".
    """

    topic: str
    carrier: str
    replayed: bool = True
    resumed: bool = False
    count: int = 0
    size: int = 0
    left_out: set[str] = field(factory=set)
    token: str | None = None
    since: str = ""

    def sent(self, count: int, size: int) -> None:
        """Note messages of the replay, with the bytes of their packets."""
        self.count += count
        self.size += size

    def take_over(self, earlier: PendingMarker) -> None:
        """Tell what another marker of the same replay would have told: this one takes its place."""
        self.replayed, self.resumed = earlier.replayed, earlier.resumed
        self.count, self.size = earlier.count, earlier.size
        self.left_out = earlier.left_out

    def anew(self, *, replayed: bool, token: str | None, since: str) -> PendingMarker:
        """Return this marker for another replay, which begins now and takes the place of its own.

        The arguments tell of that replay what the fields tell. If it has no token, the earlier one is as good: replays
        since that token bring more.
        """
        return PendingMarker(self.topic, self.carrier, replayed, token=token or self.token, since=since)

    def payload(self, topic_filter: str, at: str) -> bytes:
        """Return the payload for a Topic Filter, at a time in ISO 8601."""
        fields: dict[str, object] = {
            "filter": topic_filter,
            "count": self.count,
            "bytes": self.size,
            "token": None if NOT_KEPT in self.left_out else self.token,
            "at": at,
            "replayed": self.replayed,
            "resumed": self.resumed,
            "complete": self.replayed and not self.left_out,
        }
        if self.since:
            fields["since"] = self.since
        reasons = sorted(self.left_out) if self.replayed else [NOT_REPLAYED]
        if reasons:
            fields["why"] = ", ".join(reasons)
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    def text(self) -> str:
        """Return the marker for its row."""
        fields = (
            self.topic, self.carrier, self.replayed, self.resumed, self.count, self.size, sorted(self.left_out),
            self.token, self.since,
        )  # fmt: skip
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def marker_of(text: str) -> PendingMarker:
    """Return the marker of a row. A replay that is restored was interrupted."""
    topic, carrier, replayed, _, count, size, left_out, *later = json.loads(text)
    return PendingMarker(topic, carrier, replayed, True, count, size, set(left_out), *later)


# The seam between Sessions and the store of Session State [MQTT5-4.1]. Every change returns a commit ticket.
#
# A Session writes to its *record* the state that must survive the process. A Session that ends with its Network
# Connection has the record :data:`~holdfast.sessions.state.UNRECORDED`, which stores nothing and costs nothing.


#: the time of expiry of a Session that is being ended, in milliseconds since the epoch
LONG_AGO = 0


class KeptMessage:
    """An Application Message that is stored once for all its deliveries.

    ``ticket`` is settled when the message is durable, with every delivery that was noted in the same turn. ``forget``
    is called when no delivery refers to the message any more.
    """

    __slots__ = ("_forget", "identifier", "references", "ticket")

    def __init__(self, identifier: int, ticket: CommitTicket, forget: Callable[[int], None]) -> None:
        self.identifier = identifier
        self.ticket = ticket
        self.references = 0
        self._forget = forget

    def share(self, forget: Callable[[int], None]) -> None:
        """Call this in place of ``forget``: a Session of another node may have a delivery of the message too."""
        self._forget = forget

    def acquire(self) -> None:
        """Count one more delivery."""
        self.references += 1

    def release(self) -> None:
        """Count one delivery less. The last one deletes the message."""
        self.references -= 1
        if not self.references:
            self._forget(self.identifier)


@hot_frozen
class DeliveryState:
    """The stored state of one QoS 1 or 2 delivery to one Client.

    ``seq`` orders the deliveries of a Session. ``packet_identifier`` is 0 while the message is queued. ``released``
    tells that PUBREC has come and PUBREL is due. ``shared_filter`` is the shared subscription that it serves, if any.
    """

    seq: int
    message: int | None
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    packet_identifier: int = 0
    released: bool = False
    shared_filter: str | None = None


class ISessionRecord(Interface):
    """The stored state of one Session."""

    durable = Attribute("Whether the Session outlives the process.")
    identifier = Attribute("The stored identifier of the Session, 0 if it ends with the process.")

    def attached(principal: Principal, listener: str, expiry_interval: float | None) -> CommitTicket:
        """Store that the Client is connected through this listener, and how long after it the Session expires.

        ``expiry_interval`` is in seconds, None for never.
        """

    def detached(expiry_interval: float | None, expires_at: int | None) -> CommitTicket:
        """Store that the Client is away.

        The Session expires at ``expires_at`` (milliseconds since the epoch), None for never.
        """

    def ended() -> CommitTicket:
        """Discard the Session and all its state."""

    def subscribed(topic_filter: str, subscription: Subscription, progress: ReplayProgress | None) -> CommitTicket:
        """Add or replace a subscription. ``topic_filter`` is the filter in SUBSCRIBE, with its share.

        ``progress`` is that of its replay. None: the replay is over.
        """

    def lost(void_cuts: int) -> None:
        """Store that replays with a cut of at most this revision may have lost queued messages."""

    def unsubscribed(topic_filter: str) -> CommitTicket:
        """Remove a subscription."""

    def delivering(delivery: DeliveryState, fresh: bool) -> CommitTicket:
        """Store the state of a delivery. ``fresh`` tells that it is stored for the first time."""

    def delivered(seq: int) -> None:
        """Delete a delivery that is over."""

    def received(packet_identifier: int, at: int, fresh: bool) -> CommitTicket:
        """Store that a QoS 2 PUBLISH came at this time (milliseconds since the epoch). ``fresh``: not again."""

    def released(packet_identifier: int) -> CommitTicket:
        """Store that a QoS 2 PUBLISH was released with PUBREL, or refused."""


@hot_frozen
class StoredDelivery:
    """A delivery found in the store. ``message`` and ``kept`` are None if it is released."""

    state: DeliveryState
    message: ApplicationMessage | None
    kept: KeptMessage | None


@hot_frozen
class StoredSession:
    """A Session found in the store. ``expires_at`` is None if it never expires or its Client was connected.

    ``superseded`` tells that a later Session of the same Client has replaced it. Its end was not complete.
    """

    record: ISessionRecord
    principal: Principal
    listener: str
    expiry_interval: float | None
    expires_at: int | None
    void_cuts: int
    subscriptions: Mapping[str, tuple[Subscription, ReplayProgress | None]]
    deliveries: Sequence[StoredDelivery]
    received: Mapping[int, int]
    superseded: bool = False


@hot_frozen
class StoredWill:
    """The Will Message of a Client, as it is stored. ``due_at`` (milliseconds since the epoch) is None while its Client
    is connected.

    ``delay`` is in seconds: the lesser of its Will Delay Interval and the Session's expiry. ``lost`` tells that the
    Client was lost while the broker ran; ``untold`` that the broker chose the Client Identifier and could not tell it,
    as in MQTT 3.1.1: no Client returns with it.
    """

    principal: Principal
    will: Will
    delay: float
    due_at: int | None = None
    lost: bool = False
    untold: bool = False


class ISessionStates(Interface):
    """Stores Session State and Will Messages."""

    def record(client_id: str) -> ISessionRecord:
        """Return the record of a new Session that outlives its Network Connection."""

    def keep(message: ApplicationMessage) -> KeptMessage:
        """Store a message before the deliveries that refer to it."""

    def changed(kept: KeptMessage, message: ApplicationMessage) -> None:
        """Store another form of a message that is kept."""

    def will_kept(will: StoredWill) -> CommitTicket:
        """Store the Will Message of a Client, in place of its earlier one."""

    def will_over(client_id: str) -> None:
        """Delete a Will Message, because it is published or discarded."""

    def load() -> tuple[Sequence[StoredSession], Sequence[StoredWill]]:
        """Return all stored state, and delete orphaned rows. Called once, before any other method."""


# Session State that ends with the process: the Sessions hold it themselves, and nothing is stored.


@implementer(ISessionRecord)
class Unrecorded:
    """The record of a Session that ends with its Network Connection or with the process."""

    durable = False
    identifier = 0

    def attached(self, principal: Principal, listener: str, expiry_interval: float | None) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def detached(self, expiry_interval: float | None, expires_at: int | None) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def ended(self) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def subscribed(
        self, topic_filter: str, subscription: Subscription, progress: ReplayProgress | None
    ) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def lost(self, void_cuts: int) -> None:
        """Store nothing."""

    def unsubscribed(self, topic_filter: str) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def delivering(self, delivery: DeliveryState, fresh: bool) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def delivered(self, seq: int) -> None:
        """Store nothing."""

    def received(self, packet_identifier: int, at: int, fresh: bool) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def released(self, packet_identifier: int) -> CommitTicket:
        """Store nothing."""
        return COMMITTED


UNRECORDED = Unrecorded()


@implementer(ISessionStates)
class MemorySessionStates:
    """Stores nothing: the Sessions hold their state, which ends with the process."""

    def record(self, client_id: str) -> ISessionRecord:
        """Return a record that stores nothing."""
        return UNRECORDED

    def keep(self, message: ApplicationMessage) -> KeptMessage:
        """Store nothing."""
        return KeptMessage(0, COMMITTED, lambda _: None)

    def changed(self, kept: KeptMessage, message: ApplicationMessage) -> None:
        """Store nothing."""

    def will_kept(self, will: StoredWill) -> CommitTicket:
        """Store nothing."""
        return COMMITTED

    def will_over(self, client_id: str) -> None:
        """Store nothing."""

    def load(self) -> tuple[Sequence[StoredSession], Sequence[StoredWill]]:
        """Return nothing."""
        return (), ()
