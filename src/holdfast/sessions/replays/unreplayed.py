"""A Subscription without a replay whose marker is due: it has a place among the replays, and reads nothing.

The marker leaves in a turn of its own, so that many of them share the turns of the reactor with other Clients.
"""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.retained.replay.interfaces import IDelivery
from holdfast.sessions.connection.error_guard import ErrorGuard


class Unreplayed:
    """Sends the marker of one Subscription when all messages that are queued now have left."""

    #: nothing was delivered
    cursor = ""

    def __init__(self, delivery: IDelivery, clock: IReactorTime, guard: ErrorGuard) -> None:
        self._delivery = delivery
        self._guard = guard
        self._beginning: IDelayedCall | None = clock.callLater(0, self._begin)
        self._is_over = False

    def wake(self) -> None:
        """Look for room again."""
        if self._beginning is None and not self._is_over:
            self._try()

    def stop(self) -> None:
        """End at once."""
        self._is_over = True
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None

    def reread(self) -> None:
        """Do nothing: nothing is held."""

    def forget_queued(self) -> None:
        """Do nothing: nothing is left out."""

    def _begin(self) -> None:
        self._beginning = None
        with self._guard:
            self._try()

    def _try(self) -> None:
        if self._delivery.room() > 0 and self._delivery.conclude():
            self.stop()
            self._delivery.finished()
