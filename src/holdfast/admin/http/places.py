"""The places of the listener: which connection gives way when all are taken.

How it works. Addresses of this machine have no limit of their own, and strangers may have many addresses. So others can
take all places, and an operator would find none. Each connection has a standing:

    STRANGER         waits for a request, or for the rest of one, and has proven nothing
    ASKING_STRANGER  waits for an answer: to a wrong password, for example, which comes late
    KNOWN            waits for a request; its last one had a valid key or session
    ASKING           makes a call with a valid key or session

A new connection takes the place of one with the first of these standings that occurs: of the one that has had this
standing longest. Calls with a valid key or session never give way. An operator's connection begins as a stranger too.
Then it is the youngest one, so a flood has to replace all older strangers first. The head of its first request ends
this.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Standing(Enum):
    """What a connection has proven and does; those that give way come first."""

    STRANGER = "no request"
    ASKING_STRANGER = "a request without a proof"
    KNOWN = "no request, after one with a proof"
    ASKING = "a request with a proof"


class Places(Generic[T]):
    """The standings of connections. Every step takes the same short time, however many there are."""

    def __init__(self) -> None:
        self._standings: dict[T, Standing] = {}
        #: of each standing, the connections in the order in which they got it
        self._waiting: dict[Standing, dict[T, None]] = {standing: {} for standing in Standing}

    def __len__(self) -> int:
        return len(self._standings)

    def take(self, connection: T) -> None:
        """Add a new connection."""
        self._change(connection, Standing.STRANGER)

    def asks(self, connection: T, *, known: bool) -> None:
        """Note that the request of a connection has a valid key or session, or has arrived without them."""
        if connection in self._standings:
            self._change(connection, Standing.ASKING if known else Standing.ASKING_STRANGER)

    def answered(self, connection: T) -> None:
        """Note that the request of a connection is over."""
        match self._standings.get(connection):
            case Standing.ASKING:
                self._change(connection, Standing.KNOWN)
            case Standing.ASKING_STRANGER:
                self._change(connection, Standing.STRANGER)

    def leave(self, connection: T) -> None:
        """Forget a connection."""
        standing = self._standings.pop(connection, None)
        if standing is not None:
            del self._waiting[standing][connection]

    def who_gives_way(self) -> T | None:
        """Return the connection that gives way, None if all make calls that go on."""
        for standing in (Standing.STRANGER, Standing.ASKING_STRANGER, Standing.KNOWN):
            for connection in self._waiting[standing]:
                return connection
        return None

    def _change(self, connection: T, standing: Standing) -> None:
        self.leave(connection)
        self._standings[connection] = standing
        self._waiting[standing][connection] = None
