"""The rate limiter: never above the rate, in order of arrival, and never idle while there are tokens."""

from __future__ import annotations

from fractions import Fraction
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import LogEvent

from holdfast.core.units import Rate
from holdfast.scheduling.rate_limiter import RateLimiter

NUMBERS = count(1)


class Asker:
    """Takes its tokens as soon as it may, and notes when."""

    def __init__(self, limiter: RateLimiter, clock: Clock, wanted: int, client_id: str = "") -> None:
        self.client_id = client_id or f"client {next(NUMBERS)}"
        self.limiter = limiter
        self.clock = clock
        self.wanted = wanted
        self.taken: list[tuple[float, int]] = []
        self.told = 0

    def ask(self) -> None:
        allowed = self.limiter.allows(self, self.wanted)
        if allowed:
            self.limiter.take(allowed)
            self.taken.append((self.clock.seconds(), allowed))

    def proceed(self) -> None:
        self.told += 1
        self.ask()


def expected(rate: Rate, asked: list[tuple[Fraction, int]]) -> list[tuple[float, int]]:
    """Compute when an ideal token bucket serves each request, first come, first served, in parts at least."""
    refill = Fraction(rate.amount) / Fraction(rate.seconds)
    level, now = Fraction(rate.amount), Fraction(0)
    served = []
    for arrival, wanted in asked:
        start = max(arrival, now)
        level = min(Fraction(rate.amount), level + (start - now) * refill)
        wait = max(Fraction(0), (min(wanted, rate.tenth) - level) / refill)
        level += wait * refill
        got = min(wanted, rate.tenth if start + wait > arrival else int(level))
        level -= got
        now = start + wait
        served.append((float(now), got))
    return served


@given(
    st.builds(Rate, st.integers(1, 50), st.sampled_from([0.001, 0.5, 1.0, 2.0, 60.0])),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 80)), min_size=1, max_size=30),
)
def test_every_request_is_served_when_an_ideal_token_bucket_would_serve_it(
    rate: Rate, arrivals: list[tuple[int, int]]
) -> None:
    """So no span of time gets more than the rate and the saved tokens allow, the bucket is never idle while a request
    could be served, and no request starves.
    """
    clock = Clock()
    limiter = RateLimiter(clock, rate)
    askers: list[Asker] = []
    asked: list[tuple[Fraction, int]] = []
    moment = Fraction(0)
    for delay, wanted in arrivals:
        moment += Fraction(delay, 64)
        asked.append((moment, wanted))
        askers.append(Asker(limiter, clock, wanted))
        clock.callLater(float(moment), askers[-1].ask)
    while clock.getDelayedCalls():
        clock.advance(clock.getDelayedCalls()[0].getTime() - clock.seconds())
    came = [taken for asker in askers for taken in asker.taken]
    for (when, got), (due, wanted) in zip(came, expected(rate, asked), strict=True):
        assert when == pytest.approx(due, rel=0, abs=2e-6)
        assert got == wanted
    for first in range(len(came)):
        total = 0
        for when, got in came[first:]:
            total += got
            assert total <= rate.amount + rate.per_second * (when - came[first][0] + 2e-6)
    assert all(one[0] <= other[0] for one, other in pairwise(came))
    assert len(limiter) == 0


def test_no_waiter_polls() -> None:
    """One timer runs for all waiters. Each is told once, when its tokens are there."""
    clock = Clock()
    limiter = RateLimiter(clock, Rate(1, 1))
    askers = [Asker(limiter, clock, 1) for _ in range(5)]
    for asker in askers:
        asker.ask()
    assert len(clock.getDelayedCalls()) == 1
    clock.pump([0.1] * 50)
    assert [asker.told for asker in askers] == [0, 1, 1, 1, 1]
    assert clock.getDelayedCalls() == []


def test_a_waiter_that_leaves_lets_the_next_proceed() -> None:
    """Even after it was told to proceed. A small request is not served before a large one that came first."""
    clock = Clock()
    limiter = RateLimiter(clock, Rate(100, 1))
    Asker(limiter, clock, 100).ask()
    large, small = Asker(limiter, clock, 10), Asker(limiter, clock, 1)
    large.ask()
    small.ask()
    clock.advance(0.05)
    assert small.taken == []
    limiter.leave(large)
    clock.advance(0)
    assert small.taken == [(0.05, 1)]
    limiter.leave(large)  # leaving a queue without waiting is no error
    assert (len(limiter), clock.getDelayedCalls()) == (0, [])


def test_a_changed_rate_counts_at_once_for_waiters() -> None:
    clock = Clock()
    limiter = RateLimiter(clock, Rate(1, 60))
    first, second = Asker(limiter, clock, 1), Asker(limiter, clock, 100)
    Asker(limiter, clock, 1).ask()
    first.ask()
    second.ask()
    limiter.change(Rate(10, 1))
    clock.advance(0.1)
    assert first.taken == [(0.1, 1)]
    assert second.taken == []
    limiter.change(None)
    assert second.taken == [(0.1, 100)]
    assert (len(limiter), clock.getDelayedCalls()) == (0, [])
    limiter.change(Rate(5, 1))
    assert limiter.allows(first, 9) == 5


def test_a_waiter_that_fails_keeps_no_other_from_its_tokens(logged_failures: list[LogEvent]) -> None:
    class Failing(Asker):
        def proceed(self) -> None:
            raise OSError

    clock = Clock()
    limiter = RateLimiter(clock, Rate(1, 1.0))
    first, failing, last = Asker(limiter, clock, 1), Failing(limiter, clock, 1), Asker(limiter, clock, 1)
    for asker in (first, failing, last):
        asker.ask()
    clock.advance(1)
    clock.advance(1)
    assert [len(asker.taken) for asker in (first, failing, last)] == [1, 0, 1]
    assert len(logged_failures) == 1
    logged_failures.clear()


class Greedy(Asker):
    """Asks again as soon as it has tokens, as a replay does."""

    def ask(self) -> None:
        before = len(self.taken)
        super().ask()
        if len(self.taken) > before:
            self.clock.callLater(0, self.ask)


@pytest.mark.parametrize(("rate", "part"), [(Rate(100, 1), 10), (Rate(5, 1), 1), (Rate(1000, 60), 100)])
def test_under_load_the_tokens_come_in_portions_of_a_tenth(rate: Rate, part: int) -> None:
    """Not as one lump for each whole amount."""
    clock = Clock()
    asker = Greedy(RateLimiter(clock, rate), clock, 10_000)
    asker.ask()
    clock.pump([rate.seconds / 1000] * 2000)
    assert asker.taken[0] == (0.0, rate.amount)
    assert {got for _, got in asker.taken[1:]} == {part}
    assert sum(got for _, got in asker.taken[1:]) == pytest.approx(2 * rate.amount, abs=part)


def test_after_a_pause_the_whole_amount_comes_at_once() -> None:
    clock = Clock()
    limiter = RateLimiter(clock, Rate(100, 1))
    Asker(limiter, clock, 100).ask()
    clock.advance(1)
    asker = Asker(limiter, clock, 1000)
    asker.ask()
    assert asker.taken == [(1.0, 100)]


def test_a_client_with_many_waiters_gets_no_more_than_a_client_with_one() -> None:
    clock = Clock()
    limiter = RateLimiter(clock, Rate(100, 1))
    many = [Greedy(limiter, clock, 10_000, "many") for _ in range(16)]
    one = Greedy(limiter, clock, 10_000, "one")
    for asker in (*many, one):
        asker.ask()
    clock.pump([0.01] * 1000)
    alone = sum(got for _, got in one.taken)
    together = sum(got for asker in many for _, got in asker.taken) - 100  # the saved tokens
    assert alone == pytest.approx(together, rel=0.05)
