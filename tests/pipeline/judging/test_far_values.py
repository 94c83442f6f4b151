"""The fields in which values may be far from the median, by their quartiles alone."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import Row

from holdfast_pipeline.checks.discovered import LEAST_VALUES, Z_SCORE
from holdfast_pipeline.judging.discovery import may_be_far


def quantile(values: list[float], share: float) -> float:
    """Return the first value that so many of the sorted values do not exceed, as Spark does."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def figures(values: list[float]) -> Row:
    shares = {"lower": 0.25, "median": 0.5, "upper": 0.75}
    found = {name: quantile(values, share) for name, share in shares.items()}
    return Row(count=len(values), least=values[0], most=values[-1], **found)


NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-10_000, 10_000), st.floats(-1e6, 1e6))


@given(st.lists(NUMBERS, min_size=LEAST_VALUES, max_size=60))
@example([*range(20), 1000])
@example([20.0] * 12 + [21.0] * 9 + [400.0])
def test_no_field_with_a_far_value_is_passed_over(numbers: list[float]) -> None:
    values = sorted(float(number) for number in numbers)
    found = figures(values)
    apart = sorted(abs(value - found.median) for value in values)
    deviation = quantile(apart, 0.5)
    if deviation > 0 and 0.6745 * apart[-1] / deviation > Z_SCORE:
        assert may_be_far(found)


def test_fields_with_even_values_or_with_few_are_passed_over() -> None:
    assert not may_be_far(figures([float(number) for number in range(100)]))
    assert not may_be_far(figures([7.0] * 99 + [1000.0]))
    assert not may_be_far(figures([*map(float, range(LEAST_VALUES - 2)), 1e6]))
    assert may_be_far(figures([*map(float, range(LEAST_VALUES)), 1e6]))
