"""The limiter of a rate: waiters get tokens first in, first out, and no waiter is refused."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.core.units import Rate, TokenBucket

_log = Logger()


class Waiter(Protocol):
    """Something that waits for permission, for a client."""

    client_id: str

    def proceed(self) -> None:
        """Ask again: the permission is there."""


class RateLimiter:
    """Grants tokens at a rate (None for any number), in turn to the clients that wait for them.

    Each client's waiters are served in the order in which they asked. Saved tokens are granted at once, and tokens that
    were waited for in parts (:attr:`Rate.tenth`). One timer runs until the
    part of the first waiter is there; the other waiters need no timer. A waiter that was told to proceed stays first
    until it asks again or leaves, so no other waiter passes it.
    """

    def __init__(self, clock: IReactorTime, rate: Rate | None) -> None:
        self._clock = clock
        self._bucket = None if rate is None else TokenBucket(rate, clock.seconds())
        #: by client, the next one first; in order of arrival: how many tokens each waiter wants
        self._queues: dict[str, dict[Waiter, int]] = {}
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
        first = self._first or waiter
        now = self._clock.seconds()
        if first is waiter and not bucket.wait(min(wanted, bucket.rate.tenth), now):
            # A waiter that never waited takes all saved tokens at once. One from the queue takes one part, so that
            # tokens are handed out evenly under load.
            most = bucket.rate.tenth if self._is_waiting(waiter) else bucket.available(now)
            self._served(waiter)
            return min(wanted, most)
        self._queues.setdefault(waiter.client_id, {})[waiter] = wanted
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
        queue = self._queues.get(waiter.client_id)
        if queue is not None and waiter in queue:
            del queue[waiter]
            if not queue:
                del self._queues[waiter.client_id]
            self._set_timer()

    def change(self, rate: Rate | None) -> None:
        """Use another rate at once."""
        if rate is None:
            self._bucket = None
            queues, self._queues = self._queues, {}
            self._set_timer()
            for queue in queues.values():
                for waiter in queue:
                    waiter.proceed()
        elif self._bucket is None:
            self._bucket = TokenBucket(rate, self._clock.seconds())
        else:
            self._bucket.change(rate, self._clock.seconds())
            self._set_timer()

    @property
    def _first(self) -> Waiter | None:
        """The waiter whose turn it is."""
        queue = next(iter(self._queues.values()), None)
        return None if queue is None else next(iter(queue))

    def _is_waiting(self, waiter: Waiter) -> bool:
        return waiter in self._queues.get(waiter.client_id, ())

    def _served(self, waiter: Waiter) -> None:
        """Remove a waiter that gets tokens. The turn passes to the next client."""
        self.leave(waiter)
        queue = self._queues.pop(waiter.client_id, None)
        if queue is not None:
            self._queues[waiter.client_id] = queue

    def _set_timer(self) -> None:
        """Set the timer for the first waiter, or for none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        first, bucket = self._first, self._bucket
        if first is not None and bucket is not None:
            count = min(self._queues[first.client_id][first], bucket.rate.tenth)
            self._timer = self._clock.callLater(bucket.wait(count, self._clock.seconds()), self._due)

    def _due(self) -> None:
        self._timer = None
        first = self._first
        assert first is not None
        try:
            first.proceed()
        except Exception:  # noqa: BLE001 - the waiters behind this one must still get their turn
            _log.failure("a replay that waited for its rate could not proceed")
            self.leave(first)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))
