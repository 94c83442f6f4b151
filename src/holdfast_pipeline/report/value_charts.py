"""The charts of the values of a field: their distribution and their course. Pure."""

from __future__ import annotations

import math

from holdfast_pipeline.formatting import visible
from holdfast_pipeline.report.chart import CourseChart, DistributionChart
from holdfast_pipeline.report.shape_details import WHOLE, NumberTotals

#: Payloads may hold any double. Near the largest ones, sums and differences overflow: charts take this in their place.
_MOST = 1e300
#: Characters of a field's name.
_LONGEST = 60


def distribution(numbers: NumberTotals) -> DistributionChart:
    """Return how many of the retained values lie in each part of their range."""
    return DistributionChart(
        described=f"Distribution of the retained values{_of(numbers)}",
        low=_drawn(numbers.low),
        high=_drawn(numbers.high),
        bands=numbers.bands,
    )


def course(numbers: NumberTotals, since: int, until: int) -> CourseChart:
    """Return the course of the values between two times in milliseconds since the epoch.

    The scale has the quantiles and as much room again on both sides. So a single wrong value does not flatten the rest.
    """
    low, high = _drawn(numbers.low), _drawn(numbers.high)
    room = high - low
    low = max(_drawn(min(one.least for one in numbers.course)), low - room)
    high = min(_drawn(max(one.most for one in numbers.course)), high + room)
    digits = _digits(high - low)
    least, mean, most = (
        [round(_drawn(value), digits) for value in values]
        for values in zip(*((one.least, one.mean, one.most) for one in numbers.course), strict=True)
    )
    return CourseChart(
        described=f"Values{_of(numbers)} over time: means, and the area between the least and the highest",
        since=since // 1000,
        until=until // 1000,
        low=low,
        high=high,
        steps=list(zip([one.at // 1000 for one in numbers.course], least, mean, most, strict=True)),
    )


def _of(numbers: NumberTotals) -> str:
    return "" if numbers.field == WHOLE else f" of {visible(numbers.field[1:], _LONGEST)}"


def _drawn(value: float) -> float:
    return max(-_MOST, min(_MOST, value))


def _digits(span: float) -> int:
    """Return after how many decimals values are rounded: a chart cannot show a ten-thousandth of its scale."""
    return 4 - math.floor(math.log10(span)) if span > 0 else 15
