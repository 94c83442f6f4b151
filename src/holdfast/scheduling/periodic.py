"""Periodic jobs: every one survives a run that fails, says so once, and goes on.

Twisted's ``LoopingCall`` ends for ever when its function fails once. A broker runs for months, and one failed run (no
free file descriptor, a database that is away) must not end a job until the next restart. So jobs use this class.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.log.lasting_failure import LastingFailure


class PeriodicJob:
    """Runs ``run`` every ``interval`` seconds while it is started. ``run`` may answer with a Deferred.

    A run begins only after the run before it has ended; runs that are missed meanwhile are left out. The first failure
    in a row is logged, and the first success after it; ``name`` and ``foreseen`` are those of :class:`LastingFailure`.
    """

    def __init__(
        self,
        run: Callable[[], object],
        *,
        name: str,
        interval: float,
        clock: IReactorTime,
        foreseen: tuple[type[Exception], ...] = (),
    ) -> None:
        self._run = run
        #: seconds from the beginning of a run to that of the next one
        self.interval = interval
        self._clock = clock
        self._failure = LastingFailure(name, f"and is tried again every {interval:g} s", foreseen)
        self._running = False
        self._is_busy = False  # a run is under way
        self._delay: float | None = None  # of the run after it; None: as the interval tells
        self._next: IDelayedCall | None = None

    def start(self, delay: float = 0) -> None:
        """Begin to run, for the first time after ``delay`` seconds, counted from the end of a run that is under way."""
        self.stop()
        self._running = True
        if self._is_busy:
            self._delay = delay
        else:
            self._next = self._clock.callLater(delay, self._attempt)

    def stop(self) -> None:
        """Begin no further run. A run may stop its own job."""
        self._running = False
        self._delay = None
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def hurry(self) -> None:
        """Let the next run begin at once, or as soon as the present one has ended; nothing if the job is stopped."""
        if self._next is not None:
            self._next.reset(0)
        elif self._running:
            self._delay = 0

    def _attempt(self) -> None:
        self._next = None
        self._is_busy = True
        begun = self._clock.seconds()
        run = maybeDeferred(self._run).addCallbacks(lambda _: self._failure.succeeded(), self._failure.failed)
        run.addCallback(lambda _: self._ended(begun))

    def _ended(self, begun: float) -> None:
        self._is_busy = False
        delay, self._delay = self._delay, None
        if self._running:
            if delay is None:
                passed = self._clock.seconds() - begun
                delay = self.interval - passed % self.interval
            self._next = self._clock.callLater(delay, self._attempt)
