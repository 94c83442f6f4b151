"""The broker's time of day: the machine's when the broker starts, then as steady as time passes.

What expires is stored with a time of day. Were that read from the machine each time, setting the machine's clock would
make messages vanish, or bring back those that are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

#: Linux has a clock that also counts while the machine sleeps.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _steady_ns() -> int:
    return time.clock_gettime_ns(_STEADY)


class SteadyClock:
    """Tells the time. ``wall`` and ``steady`` return nanoseconds; ``wall`` is asked but once."""

    def __init__(self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = _steady_ns) -> None:
        self._steady = steady
        self._ahead = wall() - steady()

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return (self._ahead + self._steady()) // 1_000_000

    def seconds(self) -> float:
        """Return the time in seconds since the epoch."""
        return (self._ahead + self._steady()) / 1_000_000_000
