"""Rates, and the token bucket that keeps to one: arithmetic only, the caller tells the time."""

from __future__ import annotations

from attrs import frozen


@frozen
class Rate:
    """So many (1 or more) in so many seconds (above 0)."""

    amount: int
    seconds: float

    @property
    def per_second(self) -> float:
        """How many per second; above 0."""
        return self.amount / self.seconds


def slower(*rates: Rate | None) -> Rate | None:
    """Return the rate with the fewest per second; None stands for unlimited."""
    return min((rate for rate in rates if rate is not None), key=lambda rate: rate.per_second, default=None)


#: seconds by which tokens may come early: timers are not more exact
_PRECISION = 1e-6


class TokenBucket:
    """Tokens that come at a rate, at most the rate's amount at a time: what is not taken by then is not saved up.

    In any span of *t* seconds at most ``amount + t * per_second`` are taken, to the microsecond. ``now`` is in seconds,
    on any clock; should that be set back, tokens come from there on.
    """

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._level = float(rate.amount)
        self._at = now

    def wait(self, count: int, now: float) -> float:
        """Return the seconds until that many (1 to the rate's amount) can be taken, 0 for now."""
        self._fill(now)
        wait = (count - self._level) / self.rate.per_second
        return wait if wait > _PRECISION else 0.0

    def take(self, count: int, now: float) -> None:
        """Take tokens that need not be waited for."""
        self._fill(now)
        self._level -= count

    def change(self, rate: Rate, now: float) -> None:
        """Go on with another rate, and with the tokens there are, as far as it lets them be saved up."""
        self._fill(now)
        self.rate = rate
        self._level = min(self._level, float(rate.amount))

    def _fill(self, now: float) -> None:
        elapsed = max(0.0, now - self._at)
        self._at = now
        self._level = min(float(self.rate.amount), self._level + elapsed * self.rate.per_second)
