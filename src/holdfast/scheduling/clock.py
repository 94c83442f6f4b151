"""The broker's time of day: the machine's time at the start, plus a monotonic clock.

Messages are stored with the time of day at which they expire. If the broker read the machine's clock each time, then
setting that clock would make messages expire too early, or would bring expired messages back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: The clock of Linux that also counts while the machine sleeps, if there is one.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _monotonic_ns() -> int:
    return time.clock_gettime_ns(_MONOTONIC)


class MonotonicClock:
    """The time of day. ``wall`` and ``monotonic`` return nanoseconds; ``wall`` is read once."""

    def __init__(self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = _monotonic_ns) -> None:
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return (self._offset + self._monotonic()) // 1_000_000

    def seconds(self) -> float:
        """Return the time in seconds since the epoch."""
        return (self._offset + self._monotonic()) / 1_000_000_000
