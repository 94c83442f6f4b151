"""At what rate replays may deliver: those that must wait are served first in, first out, and nothing is dropped."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.rates import Rate, TokenBucket


class Waiter(Protocol):
    """Something that waits for its turn."""

    def proceed(self) -> None:
        """Go on: what was waited for is there."""


class RateLimiter:
    """Lets those who ask go on at a rate (None for any), in the order in which they asked.

    One timer runs for the first in the queue, for the moment at which there are tokens enough for it; the others are
    not looked at. Whoever has been told to proceed asks again, or leaves: nobody passes it meanwhile.
    """

    def __init__(self, clock: IReactorTime, rate: Rate | None) -> None:
        self._clock = clock
        self._bucket = None if rate is None else TokenBucket(rate, clock.seconds())
        self._queue: dict[Waiter, int] = {}  # in order of arrival, with how many tokens each wants
        self._timer: IDelayedCall | None = None

    def rest(self) -> float:
        """Return the seconds until nothing is left of what was taken; 0 when that is so."""
        bucket = self._bucket
        return 0.0 if bucket is None else bucket.wait(bucket.rate.amount, self._clock.seconds())

    def allows(self, waiter: Waiter, wanted: int) -> int:
        """Return how many may be taken now, at most ``wanted``; at 0 the waiter is in the queue."""
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
            self._watch_first()
        return 0

    def take(self, count: int) -> None:
        """Take tokens that were allowed in this turn."""
        if self._bucket is not None:
            self._bucket.take(count, self._clock.seconds())
            self._watch_first()

    def leave(self, waiter: Waiter) -> None:
        """Give up the place in the queue, if there is one."""
        if waiter in self._queue:
            del self._queue[waiter]
            self._watch_first()

    def change(self, rate: Rate | None) -> None:
        """Go on with another rate, at once."""
        if rate is None:
            self._bucket = None
            queue, self._queue = self._queue, {}
            self._watch_first()
            for waiter in queue:
                waiter.proceed()
        elif self._bucket is None:
            self._bucket = TokenBucket(rate, self._clock.seconds())
        else:
            self._bucket.change(rate, self._clock.seconds())
            self._watch_first()

    def _watch_first(self) -> None:
        """Set the timer for whoever is first now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        bucket = self._bucket
        if self._queue and bucket is not None:
            count = min(next(iter(self._queue.values())), bucket.rate.amount)
            self._timer = self._clock.callLater(bucket.wait(count, self._clock.seconds()), self._due)

    def _due(self) -> None:
        self._timer = None
        next(iter(self._queue)).proceed()

    def __len__(self) -> int:
        return len(self._queue)
