"""The limit on concurrent replays: further replays wait, first in, first out."""

from __future__ import annotations

from holdfast.retained.replay.rate_limiter import Waiter


class ConcurrencyLimit:
    """Lets at most ``limit`` waiters run at once (None for any number). The others wait in order of arrival."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._running: set[Waiter] = set()
        self._waiting: dict[Waiter, None] = {}

    def enter(self, waiter: Waiter) -> bool:
        """Return whether the waiter may run now. If not, it waits and is told to proceed."""
        if self._is_full():
            self._waiting[waiter] = None
            return False
        self._running.add(waiter)
        return True

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter, whether it runs or waits."""
        self._waiting.pop(waiter, None)
        if waiter in self._running:
            self._running.discard(waiter)
            self._admit()

    def change(self, limit: int | None) -> None:
        """Use another limit. A lower one removes no running waiter."""
        self._limit = limit
        self._admit()

    def _is_full(self) -> bool:
        return self._limit is not None and len(self._running) >= self._limit

    def _admit(self) -> None:
        while self._waiting and not self._is_full():
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            self._running.add(waiter)
            waiter.proceed()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)
