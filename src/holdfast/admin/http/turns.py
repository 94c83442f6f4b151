"""Lets connections take turns if their clients send many requests without waiting for answers (pipelining).

How it works. 64 KiB that arrive at one moment may have two thousand requests in them. Twisted would answer all of them
before it does anything else. Here each later request waits in one line for all connections, and a turn of the reactor
answers a few of this line only.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: requests of one turn of the reactor; each takes some tenths of a millisecond
MOST = 8


class Turns:
    """The line of waiting connections. Each is in it at most once."""

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self._line: dict[object, Callable[[], None]] = {}
        self._timer: IDelayedCall | None = None

    def enter(self, who: object, go_on: Callable[[], None]) -> None:
        """Call ``go_on`` in a later turn of the reactor."""
        self._line.setdefault(who, go_on)
        self._schedule()

    def leave(self, who: object) -> None:
        """Leave the line."""
        self._line.pop(who, None)

    def _schedule(self) -> None:
        if self._timer is None and self._line:
            self._timer = self._reactor.callLater(0, self._turn)

    def _turn(self) -> None:
        self._timer = None
        for who in list(self._line)[:MOST]:
            go_on = self._line.pop(who, None)
            if go_on is not None:  # else the ones before have ended it
                go_on()
        self._schedule()
