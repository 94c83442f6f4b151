"""Back-pressure from the store: while too many changes wait for their commit, publishing connections are not read."""

from __future__ import annotations

from collections import deque

from holdfast.sessions.connection.client_link import IClientLink


class Pressure:
    """Holds connections while too many changes wait for their commit, and then releases them in the same order."""

    def __init__(self) -> None:
        self.active = False
        self._held: deque[IClientLink] = deque()

    def change(self, active: bool) -> None:
        """Note that too many changes wait for their commit, or that few wait again."""
        self.active = active
        while self._held and not self.active:
            self._held.popleft().release()

    def hold(self, connection: IClientLink) -> None:
        """Hold a connection that has just added to the backlog of the store."""
        connection.hold()
        self._held.append(connection)
