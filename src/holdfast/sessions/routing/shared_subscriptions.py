"""Shared subscriptions [MQTT5-4.8.2]: one member of the group gets each message.

Members that are online and members that are away are listed apart. So a message finds its member at once, however many
members are away.
"""

from __future__ import annotations

from collections import OrderedDict

from holdfast.sessions.counters import Holdings
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.subscription import Subscription

Members = OrderedDict[Session, Subscription]


class SharedGroup:
    """The Sessions that share one Topic Filter under one ShareName. They get messages in turn."""

    def __init__(self, shared_filter: str, holdings: Holdings) -> None:
        self._holdings = holdings
        self.shared_filter = shared_filter  #: as Clients write it, with $share/NAME/
        # the member whose turn is next comes first
        self._online: Members = OrderedDict()
        self._away: Members = OrderedDict()

    def add(self, session: Session, subscription: Subscription) -> None:
        """Add a member, or replace its options."""
        self._holdings.shared_subscriptions += session not in self._online and session not in self._away
        (self._away if session.link is None else self._online)[session] = subscription

    def remove(self, session: Session) -> None:
        """Remove a member, if it is one."""
        for members in (self._online, self._away):
            self._holdings.shared_subscriptions -= members.pop(session, None) is not None

    def came(self, session: Session) -> None:
        """Note that a member is online. Its turn comes after those of all others."""
        if session in self._away:
            self._online[session] = self._away.pop(session)

    def left(self, session: Session) -> None:
        """Note that a member is away. Its turn comes after those of all others."""
        if session in self._online:
            self._away[session] = self._online.pop(session)

    def __len__(self) -> int:
        return len(self._online) + len(self._away)

    def away(self) -> list[Session]:
        """Return the members whose Clients are not connected."""
        return list(self._away)

    def next_connected(self) -> Session | None:
        """Return the connected member that gets the next message, None if no member is connected."""
        return next(iter(self._online), None)

    def choose(self, but: Session | None = None, online: bool = False) -> tuple[Session, Subscription] | None:
        """Return the next member that is online, else the next member, whose Session can queue the message.

        Never returns the member ``but`` or a later Session of its Client. With ``online``, returns only members that
        are online.
        """
        for members in (self._online,) if online else (self._online, self._away):
            for session, subscription in members.items():
                if but is None or session.client_id != but.client_id:
                    members.move_to_end(session)  # its next turn comes after the turns of all other members
                    return session, subscription
        return None
