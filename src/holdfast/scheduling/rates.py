"""Rates, and a token bucket. Arithmetic only: the caller passes the time.

Every rate of the configuration has this meaning: after a pause, ``amount`` may come at once. Under sustained load the
tokens come evenly, and a waiter takes them in portions of a tenth of the amount.
"""

from __future__ import annotations

from attrs import frozen


@frozen
class Rate:
    """An amount (1 or more) in a number of seconds (above 0)."""

    amount: int
    seconds: float

    @property
    def per_second(self) -> float:
        """The amount per second; above 0."""
        return self.amount / self.seconds

    @property
    def portion(self) -> int:
        """The tokens for which a waiter waits under sustained load: a tenth of the amount, and at least 1."""
        return max(1, self.amount // 10)

    def __str__(self) -> str:
        """Return the rate as in the configuration, without units of time other than seconds."""
        return f"{self.amount}/{'' if self.seconds == 1 else f'{self.seconds:g}'}s"


def slower(*rates: Rate | None) -> Rate | None:
    """Return the slowest rate; None means no limit."""
    return min((rate for rate in rates if rate is not None), key=lambda rate: rate.per_second, default=None)


#: tokens may come this many seconds earlier, because timers are not more exact
_PRECISION = 1e-6


class TokenBucket:
    """A bucket that a rate fills with tokens, up to the rate's amount. A full bucket takes no more.

    In any *t* seconds, at most ``amount + t * per_second`` tokens are taken, to the microsecond. ``now`` is in seconds
    of any clock. If the clock is set back, the bucket continues from the new time.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._level = float(rate.amount)
        self._at = now

    def wait(self, count: int, now: float) -> float:
        """Return the seconds until ``count`` tokens (1 to the rate's amount) can be taken; 0 for at once."""
        self._fill(now)
        wait = (count - self._level) / self.rate.per_second
        return wait if wait > _PRECISION else 0.0

    def available(self, now: float) -> int:
        """Return how many tokens can be taken now."""
        self._fill(now)
        return max(0, int(self._level + _PRECISION * self.rate.per_second))

    def take(self, count: int, now: float) -> None:
        """Take tokens that are :meth:`available`, or for which :meth:`wait` returned 0."""
        self._fill(now)
        self._level -= count

    def change(self, rate: Rate, now: float) -> None:
        """Continue with another rate. The tokens stay, up to the new amount."""
        self._fill(now)
        self.rate = rate
        self._level = min(self._level, float(rate.amount))

    def _fill(self, now: float) -> None:
        elapsed = max(0.0, now - self._at)
        self._at = now
        self._level = min(float(self.rate.amount), self._level + elapsed * self.rate.per_second)
