"""Back-pressure from the store: while too many changes wait for their commit, a Client that adds to them is not read.

How it works. A Client is held after the packet whose change waits, not before it: only then is it known that there is
a change. So each Client that is connected when the pressure begins exceeds the limit by one packet. A Client that
connects later must not have one packet more with each connection, so its packets that may cause a change wait before
they take effect. An example:

    a is connected    PUBLISH is taken, its PUBACK waits; a is held
    the pressure begins
    b is connected    SUBSCRIBE to its stored Session is taken, its SUBACK waits; b is held
    c connects        CONNECT waits if a row would be stored for it
    d connects        it has no stored Session and no Will: CONNACK; its first PUBLISH waits
    the pressure ends 25 connections are released in each turn of the reactor, in their order
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

#: connections that are released in one turn of the reactor: each may have packets that waited
RELEASED_IN_A_TURN = 25


class Holdable(Protocol):
    """A connection, as the pressure sees it."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection is over."""

    def wait_for(self, answer: Deferred[None], otherwise: None, then: Callable[[None], None]) -> None:
        """Act on no further packet until the answer arrives, then act on the answer."""


class Pressure:
    """The connections that wait while too many changes wait for their commit."""

    def __init__(self, clock: IReactorTime) -> None:
        self.active = False
        self._clock = clock
        #: by connection, the longest waiting first
        self._waiting: OrderedDict[Holdable, list[Deferred[None]]] = OrderedDict()
        self._scheduled = False

    def change(self, active: bool) -> None:
        """Note that too many changes wait for their commit, or that few wait again."""
        self.active = active
        if not active:
            self._schedule()

    def charge(self, connection: Holdable) -> None:
        """Hold a connection whose Client has just added to the changes that wait, if these are too many."""
        if self.active and connection not in self._waiting and not connection.is_closed:
            connection.wait_for(self.relief(connection), None, _nothing)

    def relief(self, connection: Holdable) -> Deferred[None]:
        """Return a Deferred that fires when the pressure is over. It never fires if the connection ends before."""
        relieved: Deferred[None] = Deferred()
        self._waiting.setdefault(connection, []).append(relieved)
        return relieved

    def leave(self, connection: Holdable) -> None:
        """Forget a connection that has ended."""
        self._waiting.pop(connection, None)

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._clock.callLater(0, self._release)

    def _release(self) -> None:
        """Release some connections. One that adds too much again ends this, and waits behind the others."""
        self._scheduled = False
        for _ in range(min(RELEASED_IN_A_TURN, len(self._waiting))):
            if self.active:
                return
            for relieved in self._waiting.popitem(last=False)[1]:
                relieved.callback(None)
        if not self.active:
            self._schedule()

    def __len__(self) -> int:
        """Return how many connections wait."""
        return len(self._waiting)


def _nothing(_: None) -> None:
    """Go on with the next packet."""
