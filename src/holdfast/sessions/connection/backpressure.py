"""Back-pressure from the store: while too much waits to be committed, publishing connections are not read."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Holdable(Protocol):
    """A connection whose packets can be left unread for a while."""

    def hold(self) -> None:
        """Process no further packets."""

    def release(self) -> None:
        """Go on."""


class Pressure:
    """Holds connections while the store is behind, and releases them in the order in which they were held."""

    def __init__(self) -> None:
        self.active = False
        self._held: deque[Holdable] = deque()

    def change(self, active: bool) -> None:
        """Take note that the store is behind, or has caught up."""
        self.active = active
        while self._held and not self.active:
            self._held.popleft().release()

    def hold(self, connection: Holdable) -> None:
        """Hold a connection that has just added to the backlog."""
        connection.hold()
        self._held.append(connection)
