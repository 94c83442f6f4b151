"""Gives memory that was freed back to the system, so that a burst does not raise the broker's memory for good.

How it works. The C library returns memory to the system from the end of the heap only. Say the packets of ten slow
readers took 8 MB and are freed: one small block behind them that is still in use keeps all of it in the process.
``malloc_trim`` of glibc gives back every free page. It takes some tenths of a millisecond, more in a large process. So
it is called every second at most, rests for a thousand times as long as it took, and for an hour after it took longer
than :data:`TOO_LONG`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from holdfast.scheduling.periodic import PeriodicJob

#: seconds between two calls, where they are quick
INTERVAL = 1.0
#: of the time, at most this share is spent
_SHARE = 0.001
#: seconds that nobody may wait for this
TOO_LONG = 0.005
_LONG_REST = 3600.0


def _malloc_trim() -> Callable[[int], int] | None:
    """Return the function of the C library; None if it has none."""
    try:
        function: Callable[[int], int] = ctypes.PyDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
    return function


class FreedMemory:
    """The job that gives freed memory back. Without glibc it does nothing.

    ``trim`` and ``elapsed`` stand in for the C library and its time in tests.
    """

    def __init__(
        self,
        clock: IReactorTime,
        trim: Callable[[int], int] | None = None,
        elapsed: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._trim = trim or _malloc_trim()
        self._elapsed = elapsed
        self._due = 0.0
        self._job = PeriodicJob(self._give_back, name="giving memory back", interval=INTERVAL, clock=clock)

    def start(self) -> None:
        """Begin."""
        if self._trim is not None:
            self._job.start(INTERVAL)

    def stop(self) -> None:
        """Stop."""
        self._job.stop()

    def _give_back(self) -> None:
        now = self._clock.seconds()
        if self._trim is None or now < self._due:
            return
        begun = self._elapsed()
        self._trim(0)
        took = self._elapsed() - begun
        self._due = now + (_LONG_REST if took > TOO_LONG else took / _SHARE)
