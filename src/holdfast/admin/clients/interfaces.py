"""The clients of the broker, as the calls see them."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import Deferred

from holdfast.client_views import ClientSearch, ClientView, Found, SubscriptionSearch, SubscriptionView, Waiting
from holdfast.tickets import CommitTicket

#: a Client Identifier and one of its Topic Filters; None: behind all of them
Place = tuple[str, str | None]


class IClients(Protocol):
    """Shows clients, and kicks them."""

    @property
    def client_count(self) -> int:
        """How many clients have a Session."""

    @property
    def subscription_count(self) -> int:
        """How many subscriptions they have, shared ones too."""

    def client(self, client_id: str) -> ClientView | None:
        """Return a client, None if it has no Session."""

    def clients(self, search: ClientSearch, after: str, limit: int) -> Deferred[Found[ClientView, str]]:
        """Return the next clients behind this Client Identifier ("" for the first ones)."""

    def subscriptions(
        self, search: SubscriptionSearch, after: Place, limit: int
    ) -> Deferred[Found[SubscriptionView, Place]]:
        """Return the next subscriptions behind this place."""

    def queued(self, client_id: str, position: int, limit: int, most_bytes: int) -> Waiting | None:
        """Return queued messages from a position on; None if the client has no Session."""

    def inflight(self, client_id: str, position: int, limit: int, most_bytes: int) -> Waiting | None:
        """Return messages in flight from a Packet Identifier on; None if the client has no Session."""

    def kick(self, client_id: str) -> CommitTicket | None:
        """End the connection and the Session of a client; None if it has none."""
