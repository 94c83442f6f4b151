"""The seam between Sessions and the store of Session State [MQTT5-4.1]. Every change returns a commit ticket.

A Session writes to its *record* the state that must survive the process. A Session that ends with its Network
Connection has the record :data:`~holdfast.sessions.state.memory.UNRECORDED`, which stores nothing and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zope.interface import Attribute, Interface

from holdfast.auth.interfaces import Principal
from holdfast.hot_values import hot_frozen
from holdfast.messages import ApplicationMessage
from holdfast.sessions.state.subscription import ReplayProgress, Subscription
from holdfast.tickets import CommitTicket
from holdfast.wire.packets import Will


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
