"""The limiter of a rate: waiters get tokens first in, first out, and no waiter is refused."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.rates import Rate, TokenBucket

_log = Logger()


class Waiter(Protocol):
    """Something that waits for permission."""

    def proceed(self) -> None:
        """Ask again: the permission is there."""


class RateLimiter:
    """Grants tokens at a rate (None for any number), in the order in which the waiters asked.

    One timer runs until the tokens of the first waiter are there; the other waiters need no timer. A
    waiter that was told to proceed stays first until it asks again or leaves, so no other waiter passes it.
    """

    def __init__(self, clock: IReactorTime, rate: Rate | None) -> None:
        self._clock = clock
        self._bucket = None if rate is None else TokenBucket(rate, clock.seconds())
        self._queue: dict[Waiter, int] = {}  # in order of arrival: how many tokens each waiter wants
        self._timer: IDelayedCall | None = None

    def seconds_until_full(self) -> float:
        """Return the seconds until all tokens that were taken are back, 0 if they are."""
        bucket = self._bucket
        return 0.0 if bucket is None else bucket.wait(bucket.rate.amount, self._clock.seconds())

    def allows(self, waiter: Waiter, wanted: int) -> int:
        """Return how many tokens may be taken now, at most ``wanted``. At 0 the waiter is in the queue."""
        bucket = self._bucket
        if bucket is None:
            return wanted
        first = next(iter(self._queue), waiter)
        count = min(wanted, bucket.rate.amount)
        if first is waiter and not bucket.wait(count, self._clock.seconds()):
            self.leave(waiter)
            return count
        self._queue[waiter] = wanted
        if first is waiter:
            self._set_timer()
        return 0

    def take(self, count: int) -> None:
        """Take tokens that were allowed in this turn."""
        if self._bucket is not None:
            self._bucket.take(count, self._clock.seconds())
            self._set_timer()

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter from the queue, if it is there."""
        if waiter in self._queue:
            del self._queue[waiter]
            self._set_timer()

    def change(self, rate: Rate | None) -> None:
        """Use another rate at once."""
        if rate is None:
            self._bucket = None
            queue, self._queue = self._queue, {}
            self._set_timer()
            for waiter in queue:
                waiter.proceed()
        elif self._bucket is None:
            self._bucket = TokenBucket(rate, self._clock.seconds())
        else:
            self._bucket.change(rate, self._clock.seconds())
            self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer for the first waiter, or for none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        bucket = self._bucket
        if self._queue and bucket is not None:
            count = min(next(iter(self._queue.values())), bucket.rate.amount)
            self._timer = self._clock.callLater(bucket.wait(count, self._clock.seconds()), self._due)

    def _due(self) -> None:
        self._timer = None
        first = next(iter(self._queue))
        try:
            first.proceed()
        except Exception:  # noqa: BLE001 - the waiters behind this one must still get their turn
            _log.failure("a replay that waited for its rate could not proceed")
            self.leave(first)

    def __len__(self) -> int:
        return len(self._queue)
