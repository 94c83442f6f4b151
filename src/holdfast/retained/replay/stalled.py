"""Replays that wait for room: after a second, each frees its held messages, and hears no more changes.

A client that reads nothing then costs only the bytes that its transport holds, however large the messages are, and
costs the publishers nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

_log = Logger()

#: the replays that are released in one turn of the reactor
_AT_ONCE = 100
#: Seconds without room after which held messages are given up. A slow client that still reads has room again sooner.
PATIENCE = 1.0


class Releasable(Protocol):
    """Something that may hold messages which it cannot deliver."""

    def release(self) -> bool:
        """Give up the held messages if they still cannot be delivered. Returns whether there were any."""


class StalledReplays:
    """The replays that wait for room, and one timer for all of them."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._since: dict[Releasable, float] = {}  # in the order of the times
        self._timer: IDelayedCall | None = None

    def add(self, replay: Releasable) -> None:
        """Ask the replay to release its messages after a while. A replay that is added again waits anew."""
        self._since.pop(replay, None)
        self._since[replay] = self._clock.seconds()
        if self._timer is None:
            self._timer = self._clock.callLater(PATIENCE, self._check)

    def remove(self, replay: Releasable) -> None:
        """Remove a replay that is over."""
        self._since.pop(replay, None)
        if not self._since and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        released = False
        for replay, since in list(islice(self._since.items(), _AT_ONCE)):
            if since + PATIENCE > now:
                break
            del self._since[replay]
            try:
                released = replay.release() or released
            except Exception:  # noqa: BLE001 - the others must still be released, now and later
                _log.failure("a replay that waits for room could not free its messages")
        if released:
            _malloc_trim(0)
        first = next(iter(self._since.values()), None)
        if first is not None and self._timer is None:
            self._timer = self._clock.callLater(max(0.0, first + PATIENCE - now), self._check)


def _find_malloc_trim() -> Callable[[int], object]:
    """Return the function that gives freed memory back to the system.

    The GNU C library keeps large freed blocks resident as long as a younger block lies above them. A trim takes
    microseconds if little is free, milliseconds for tens of megabytes. Other C libraries give memory back themselves.
    """
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda _: None
    return trim


_malloc_trim = _find_malloc_trim()
