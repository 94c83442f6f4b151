"""The seam between Sessions and where Session State is kept [MQTT5-4.1]. Every change returns a commit ticket.

What of a Session must outlive the process is written to its *record*. A Session that ends with its Network Connection
has the record :data:`~holdfast.sessions.state.memory.UNRECORDED`, which keeps nothing and costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zope.interface import Attribute, Interface

from holdfast.auth.interfaces import Principal
from holdfast.hot_values import hot_frozen
from holdfast.messages import ApplicationMessage
from holdfast.sessions.state.subscription import Subscription
from holdfast.tickets import CommitTicket
from holdfast.wire.packets import Will


class KeptMessage:
    """An Application Message kept once for all deliveries that refer to it.

    ``ticket`` is settled when the message, and every delivery of it noted in the same breath, is durable. ``forget``
    is called when the last reference is gone.
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
        """Count one delivery less."""
        self.references -= 1
        if not self.references:
            self._forget(self.identifier)


@hot_frozen
class DeliveryState:
    """One QoS 1 or 2 delivery to one Client, as it is kept.

    ``seq`` orders the deliveries of a Session. ``packet_identifier`` is 0 while the message is queued; ``released``
    tells that PUBREC has come and PUBREL is due. ``shared_filter`` names the shared subscription it was sent for.
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
    """What is kept of one Session."""

    durable = Attribute("Whether the Session outlives the process.")

    def attached(principal: Principal, listener: str, expiry_interval: float | None) -> CommitTicket:
        """The Client is connected, through this listener; the Session may expire (seconds, None for never)."""

    def detached(expiry_interval: float | None, expires_at: int | None) -> CommitTicket:
        """The Client is away until ``expires_at`` (milliseconds since the epoch, None for ever)."""

    def ended() -> CommitTicket:
        """Discard the Session and all its state."""

    def subscribed(topic_filter: str, subscription: Subscription, replay_after: str | None) -> CommitTicket:
        """Add or replace a subscription; ``replay_after`` is up to where its replay is acknowledged, None: it is over.

        ``topic_filter`` is as the Client wrote it.
        """

    def unsubscribed(topic_filter: str) -> CommitTicket:
        """Remove a subscription."""

    def delivering(delivery: DeliveryState, fresh: bool) -> CommitTicket:
        """Note where a delivery stands; ``fresh`` when it is its first note."""

    def delivered(seq: int) -> None:
        """Forget a delivery: the Client has the message, or never will."""

    def received(packet_identifier: int, at: int, fresh: bool) -> CommitTicket:
        """A QoS 2 PUBLISH came from the Client (``fresh``: not again), at this time (milliseconds since the epoch)."""

    def released(packet_identifier: int) -> CommitTicket:
        """The Client has released a QoS 2 PUBLISH with PUBREL (or the PUBLISH was refused)."""


@hot_frozen
class StoredDelivery:
    """A delivery found in the store; ``message`` and ``kept`` are None for a released one."""

    state: DeliveryState
    message: ApplicationMessage | None
    kept: KeptMessage | None


@hot_frozen
class StoredSession:
    """A Session found in the store. ``expires_at`` is None for never, or while the Client was connected."""

    record: ISessionRecord
    principal: Principal
    listener: str
    expiry_interval: float | None
    expires_at: int | None
    subscriptions: Mapping[str, tuple[Subscription, str | None]]
    deliveries: Sequence[StoredDelivery]
    received: Mapping[int, int]


@hot_frozen
class StoredWill:
    """A Will Message found in the store; ``due_at`` (milliseconds since the epoch) is None if its Client was there.

    ``delay`` is in seconds: the lesser of its Will Delay Interval and the Session's expiry.
    """

    principal: Principal
    will: Will
    delay: float
    due_at: int | None


class ISessionStates(Interface):
    """Keeps Session State and Will Messages."""

    def record(client_id: str) -> ISessionRecord:
        """Return the record of a new Session that is to outlive its Network Connection."""

    def keep(message: ApplicationMessage) -> KeptMessage:
        """Keep a message for the deliveries that are about to refer to it."""

    def will_kept(principal: Principal, will: Will, delay: float, due_at: int | None) -> CommitTicket:
        """Keep the Will Message of a Client: due ``delay`` seconds after it is lost, or at ``due_at`` if it is."""

    def will_over(client_id: str) -> None:
        """Forget a Will Message: it is published, or never will be."""

    def load() -> tuple[Sequence[StoredSession], Sequence[StoredWill]]:
        """Return all that is kept, and discard what belongs to nothing. Called once, before anything else."""
