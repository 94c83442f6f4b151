"""Shared subscriptions [MQTT5-4.8.2]: one member of the group gets each message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.sessions.state.subscription import Subscription

if TYPE_CHECKING:
    from holdfast.sessions.session.session import Session


class SharedGroup:
    """The Sessions that share one Topic Filter under one ShareName, served in turn."""

    def __init__(self, shared_filter: str) -> None:
        self.shared_filter = shared_filter  #: as Clients write it, with $share/NAME/
        self._members: dict[Session, Subscription] = {}

    def add(self, session: Session, subscription: Subscription) -> None:
        """Add a member, or replace its options."""
        self._members[session] = subscription

    def remove(self, session: Session) -> None:
        """Remove a member, if it is one."""
        self._members.pop(session, None)

    def is_empty(self) -> bool:
        """Tell whether no member is left."""
        return not self._members

    def __len__(self) -> int:
        return len(self._members)

    def choose(self, but: Session | None = None, online: bool = False) -> tuple[Session, Subscription] | None:
        """Return the member whose turn it is: online ones first, else one whose Session can queue the message.

        ``but`` is left out; with ``online`` so are all that are away.
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
        if chosen is not None:  # to the end of the line
            del self._members[chosen[0]]
            self._members[chosen[0]] = chosen[1]
        return chosen
