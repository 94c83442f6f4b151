"""Session State that ends with the process: the Sessions hold it themselves, and nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence

from zope.interface import implementer

from holdfast.auth.interfaces import Principal
from holdfast.messages import ApplicationMessage
from holdfast.sessions.state.interfaces import (
    DeliveryState,
    ISessionRecord,
    ISessionStates,
    KeptMessage,
    StoredSession,
    StoredWill,
)
from holdfast.sessions.state.subscription import ReplayProgress, Subscription
from holdfast.tickets import COMMITTED, CommitTicket


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
