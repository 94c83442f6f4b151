"""Rates, and the token bucket that keeps to one: arithmetic only, the caller tells the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen
else:
    from attrs import define as frozen


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


class TokenBucket:
    """Tokens that come at a rate, at most the rate's amount at a time: what is not taken by then is not saved up.

    In any span of *t* seconds at most ``amount + t * per_second`` are taken. All moments are in seconds, on any clock
    that does not go back.
    """

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self._full_at = float("-inf")

    @property
    def full_at(self) -> float:
        """The moment from which on nothing is missing."""
        return self._full_at

    def available_at(self, count: int) -> float:
        """Return the moment from which on that many (1 to the rate's amount) can be taken."""
        rate = self.rate
        return self._full_at - (rate.amount - count) / rate.per_second

    def take(self, count: int, now: float) -> None:
        """Take tokens that are available."""
        self._full_at = max(self._full_at, now) + count / self.rate.per_second

    def change(self, rate: Rate, now: float) -> None:
        """Go on with another rate, and with the tokens there are, as far as it lets them be saved up."""
        old = self.rate
        there = old.amount - max(0.0, self._full_at - now) * old.per_second
        self.rate = rate
        self._full_at = now + max(0.0, rate.amount - there) / rate.per_second
