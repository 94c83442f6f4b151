"""The charts of the values of a field: their distribution and their course. Pure."""

from __future__ import annotations

from holdfast.pipeline.report.chart import CourseChart, DistributionChart
from holdfast.pipeline.report.shape_details import NumberTotals

#: Payloads may hold any double. Near the largest ones, sums and differences overflow: charts take this in their place.
_MOST = 1e300


def distribution(numbers: NumberTotals) -> DistributionChart:
    """Return how many of the retained values lie in each part of their range."""
    return DistributionChart(
        described="Distribution of the retained values",
        low=_drawn(numbers.low),
        high=_drawn(numbers.high),
        bands=numbers.bands,
    )


def course(numbers: NumberTotals, since: int, until: int) -> CourseChart:
    """Return the course of the values between two times in milliseconds since the epoch.

    The scale has the quantiles and as much room again on both sides. So a single wrong value does not flatten the rest.
    """
    steps = [(one.at // 1000, _drawn(one.least), _drawn(one.mean), _drawn(one.most)) for one in numbers.course]
    low, high = _drawn(numbers.low), _drawn(numbers.high)
    room = high - low
    low = max(min(least for _, least, _, _ in steps), low - room)
    high = min(max(most for _, _, _, most in steps), high + room)
    return CourseChart(
        described="Values over time: means, and the area between the least and the highest",
        since=since // 1000,
        until=until // 1000,
        low=low,
        high=high,
        steps=steps,
    )


def _drawn(value: float) -> float:
    """Return the value with the digits that a chart can show."""
    return float(f"{max(-_MOST, min(_MOST, value)):.6g}")
