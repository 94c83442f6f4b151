"""Where Session State is kept [MQTT5-4.1]. Every change of it returns a commit ticket."""

from __future__ import annotations

from zope.interface import Interface, implementer

from holdfast.sessions.subscriptions import Subscription
from holdfast.tickets import COMMITTED, CommitTicket


class ISessionStates(Interface):
    """Makes changes of Session State durable. Sessions are named by their Client Identifier."""

    def started(client_id: str, expiry_interval: float | None) -> CommitTicket:
        """Start a Session, or set the expiry (seconds after disconnecting, None for never) of one that goes on."""

    def ended(client_id: str) -> CommitTicket:
        """Discard the Session and all its state."""

    def subscribed(client_id: str, subscription: Subscription) -> CommitTicket:
        """Add or replace a subscription."""

    def unsubscribed(client_id: str, topic_filter: str) -> CommitTicket:
        """Remove a subscription."""

    def sent(client_id: str, packet_identifier: int, packet: bytes) -> CommitTicket:
        """A PUBLISH with QoS 1 or 2 goes to the Client."""

    def received_by_client(client_id: str, packet_identifier: int) -> CommitTicket:
        """The Client has answered a QoS 2 PUBLISH with PUBREC."""

    def completed(client_id: str, packet_identifier: int) -> CommitTicket:
        """The Client has acknowledged a PUBLISH for good (PUBACK or PUBCOMP)."""

    def received(client_id: str, packet_identifier: int) -> CommitTicket:
        """A QoS 2 PUBLISH came from the Client."""

    def released(client_id: str, packet_identifier: int) -> CommitTicket:
        """The Client has released a QoS 2 PUBLISH with PUBREL (or the PUBLISH was refused)."""


@implementer(ISessionStates)
class MemorySessionStates:
    """Keeps Session State in the Sessions themselves: it lives as long as the process."""

    def started(self, client_id: str, expiry_interval: float | None) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED

    def ended(self, client_id: str) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED

    def subscribed(self, client_id: str, subscription: Subscription) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED

    def unsubscribed(self, client_id: str, topic_filter: str) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED

    def sent(self, client_id: str, packet_identifier: int, packet: bytes) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED

    def received_by_client(self, client_id: str, packet_identifier: int) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED

    def completed(self, client_id: str, packet_identifier: int) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED

    def received(self, client_id: str, packet_identifier: int) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED

    def released(self, client_id: str, packet_identifier: int) -> CommitTicket:
        """Answer that nothing has to be committed."""
        return COMMITTED
