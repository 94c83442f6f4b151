"""Shared subscriptions [MQTT5-4.8.2]: one member of the group gets each message."""

from __future__ import annotations

from holdfast.sessions.session.session import Session
from holdfast.sessions.state.subscription import Subscription


class SharedGroup:
    """The Sessions that share one Topic Filter under one ShareName. They get messages in turn."""

    def __init__(self, shared_filter: str) -> None:
        self.shared_filter = shared_filter  #: as Clients write it, with $share/NAME/
        self._members: dict[Session, Subscription] = {}  # the member whose turn is next comes first

    def add(self, session: Session, subscription: Subscription) -> None:
        """Add a member, or replace its options."""
        self._members[session] = subscription

    def remove(self, session: Session) -> None:
        """Remove a member, if it is one."""
        self._members.pop(session, None)

    def __len__(self) -> int:
        return len(self._members)

    def away(self) -> list[Session]:
        """Return the members whose Clients are not connected."""
        return [session for session in self._members if session.link is None]

    def next_connected(self) -> Session | None:
        """Return the connected member that gets the next message, None if no member is connected."""
        return next((session for session in self._members if session.link is not None), None)

    def choose(self, but: Session | None = None, online: bool = False) -> tuple[Session, Subscription] | None:
        """Return the next member that is online, else the next member, whose Session can queue the message.

        Never returns the member ``but``. With ``online``, returns only members that are online.
        """
        chosen = None
        for session, subscription in self._members.items():
            if session is but or (online and session.link is None):
                continue
            if session.link is not None:
                chosen = session, subscription
                break
            if chosen is None:
                chosen = session, subscription
        if chosen is not None:  # its next turn comes after the turns of all other members
            del self._members[chosen[0]]
            self._members[chosen[0]] = chosen[1]
        return chosen
