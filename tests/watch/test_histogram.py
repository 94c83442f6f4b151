"""Histograms: every observation is in its bucket, and quantiles are in the bucket of the true one."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from holdfast.watch.metrics import Histogram, quantile

BOUNDS = (0.5, 1.0, 2.0, 5.0)


def test_an_observation_belongs_to_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
    histogram = Histogram(BOUNDS)
    histogram.observe(1.0)
    histogram.observe(1.01, 3)
    histogram.observe(99.0)
    assert histogram.counts == [0, 1, 3, 0, 1]
    assert histogram.count == 5
    assert histogram.total == 1.0 + 3 * 1.01 + 99.0


def test_without_observations_there_is_no_quantile() -> None:
    assert quantile(BOUNDS, [0] * 5, 0.99) is None


@given(st.lists(st.floats(0, 4.9), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_in_the_bucket_of_the_true_one(values: list[float], share: float) -> None:
    histogram = Histogram(BOUNDS)
    for value in values:
        histogram.observe(value)
    found = quantile(BOUNDS, histogram.counts, share)
    true = sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]
    assert found is not None
    place = bisect_left(BOUNDS, true)
    assert (BOUNDS[place - 1] if place else 0.0) <= found <= BOUNDS[place]


def test_of_the_last_bucket_only_its_lower_end_is_known() -> None:
    assert quantile(BOUNDS, [0, 0, 0, 0, 7], 0.5) == 5.0
