"""Replays without room: after a while each gives up what it holds, so that a client that reads nothing costs little."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.retained.replay.heap_trim import trim_heap

#: Seconds without room after which what was read is given up: a client that is merely slow has room again sooner.
PATIENCE = 1.0


class Releasable(Protocol):
    """Something that may hold what it cannot deliver."""

    def release(self) -> bool:
        """Give up what is held, if it still cannot be delivered, and tell whether it was; it can be had again."""


class StalledReplays:
    """Those that rest, and one timer for all of them."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since: dict[Releasable, float] = {}
        self._timer: IDelayedCall | None = None

    def note(self, one: Releasable) -> None:
        """Take note that one begins to rest: it is asked to release what it holds unless it rests anew meanwhile."""
        self._since[one] = self._clock.seconds()
        if self._timer is None:
            self._timer = self._clock.callLater(PATIENCE, self._look)

    def forget(self, one: Releasable) -> None:
        """It holds nothing any more."""
        self._since.pop(one, None)
        if not self._since and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._clock.seconds()
        released = False
        for one in [one for one, since in self._since.items() if since + PATIENCE <= now]:
            del self._since[one]
            released = one.release() or released
        if released:
            trim_heap()
        self._timer = self._clock.callLater(PATIENCE, self._look) if self._since else None
