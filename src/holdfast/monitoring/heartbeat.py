"""The heartbeat of the reactor: a timed call that notes how late it is."""

from __future__ import annotations

from twisted.application.service import Service
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.metrics.histogram import LAG_SECONDS, Histogram

#: Seconds between two heartbeats. Each costs some microseconds.
INTERVAL = 0.1


class Heartbeat(Service):
    """Beats while it runs. ``lag`` has the lateness of all beats; ``beaten_at`` is the time of the last one.

    A beat is late by the time that the reactor was busy with other work when it was due.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.lag = Histogram(LAG_SECONDS)
        #: the longest lateness since :meth:`take_worst` was called last
        self._worst = 0.0
        self._clock = clock
        self._due = 0.0
        self._next: IDelayedCall | None = None

    @property
    def late_by(self) -> float:
        """By how many seconds the next beat is late already."""
        return max(0.0, self._clock.seconds() - self._due) if self._next is not None else 0.0

    def startService(self) -> None:
        """Begin."""
        Service.startService(self)
        self._schedule()

    def stopService(self) -> None:
        """End."""
        Service.stopService(self)
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def take_worst(self) -> float:
        """Return the longest lateness since the last call, in seconds."""
        worst, self._worst = self._worst, 0.0
        return worst

    def _schedule(self) -> None:
        self._due = self._clock.seconds() + INTERVAL
        self._next = self._clock.callLater(INTERVAL, self._beat)

    def _beat(self) -> None:
        late = max(0.0, self._clock.seconds() - self._due)
        self.lag.observe(late)
        self._worst = max(self._worst, late)
        self._schedule()
