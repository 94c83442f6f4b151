"""Rates and the token bucket."""

from __future__ import annotations

import pytest

from holdfast.core.units import Rate, TokenBucket


def test_a_bucket_begins_full_and_has_at_most_its_amount() -> None:
    bucket = TokenBucket(Rate(10, 2), 0.0)
    assert bucket.wait(10, 0.0) == 0
    bucket.take(10, 0.0)
    assert [bucket.wait(1, 0.0), bucket.wait(10, 0.0)] == pytest.approx([0.2, 2.0])
    bucket.take(10, 1000.0)
    assert bucket.wait(1, 1000.0) == pytest.approx(0.2)


def test_a_changed_rate_keeps_the_tokens() -> None:
    """Neither a slower nor a faster rate adds tokens."""
    bucket = TokenBucket(Rate(10, 1), 0.0)
    bucket.take(6, 0.0)
    bucket.change(Rate(100, 1), 0.0)  # 4 are there
    assert [bucket.wait(4, 0.0), bucket.wait(5, 0.0)] == pytest.approx([0.0, 0.01])
    bucket.change(Rate(2, 1), 0.0)  # 2 of them may be kept
    assert bucket.wait(2, 0.0) == 0
    bucket.take(2, 0.0)
    assert bucket.wait(1, 0.0) == pytest.approx(0.5)


def test_a_clock_that_is_set_back_costs_few_tokens() -> None:
    """The bucket does not wait for the hour to pass again."""
    bucket = TokenBucket(Rate(10, 1), 5000.0)
    bucket.take(10, 5000.0)
    assert bucket.wait(10, 1400.0) == pytest.approx(1.0)
    assert bucket.wait(10, 1401.0) == 0


def test_what_is_available_can_be_taken() -> None:
    bucket = TokenBucket(Rate(10, 1), 0.0)
    assert bucket.available(0.0) == 10
    bucket.take(10, 0.0)
    assert bucket.available(0.0) == 0
    for tenth in range(1, 11):
        assert bucket.available(tenth / 10) == tenth


def test_a_portion_is_a_tenth_and_at_least_one() -> None:
    assert [Rate(amount, 1).tenth for amount in (1, 9, 10, 100, 1005)] == [1, 1, 1, 10, 100]


def test_a_rate_is_shown_as_it_is_written() -> None:
    assert [str(rate) for rate in (Rate(100, 1), Rate(60, 60), Rate(1, 0.1))] == ["100/s", "60/60s", "1/0.1s"]
