"""The geometry of the small charts of values, as paths; ``shape_pages.html`` draws them. Pure.

Both charts are drawn in a box of ``WIDTH`` by ``HEIGHT`` units, which the browser stretches to the room there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from holdfast.pipeline.report.shape_details import NumberTotals, ValueStep

WIDTH, HEIGHT = 240, 60


@frozen
class Course:
    """The values over time: the area between the least and the highest values, the line of the means, and the scale."""

    area: str
    line: str
    low: float
    high: float


def bands(numbers: NumberTotals) -> str:
    """Return the path of the columns of a distribution: the highest one has the full height, and each can be seen."""
    most = max(numbers.bands, default=0)
    width = WIDTH / max(1, len(numbers.bands))
    columns = []
    for place, count in enumerate(numbers.bands):
        if count:
            height = max(1.0, HEIGHT * count / most)
            columns.append(f"M{place * width + 0.5:.1f} {HEIGHT}v-{height:.1f}h{width - 1:.1f}v{height:.1f}z")
    return "".join(columns)


def course(numbers: NumberTotals, since: int, until: int) -> Course:
    """Return the course of the values between two times in milliseconds since the epoch.

    The scale has the quantiles and as much room again on both sides. So a single wrong value does not flatten the rest.
    """
    steps = numbers.course
    room = numbers.high - numbers.low
    low = max(min(one.least for one in steps), numbers.low - room)
    high = min(max(one.most for one in steps), numbers.high + room)
    if high <= low:
        margin = max(1.0, abs(low) / 1000)
        low, high = low - margin, low + margin
    whole = max(1, until - since)

    def points(chosen: Sequence[ValueStep], values: Sequence[float]) -> list[str]:
        return [
            f"{WIDTH * min(1.0, max(0.0, (one.at - since) / whole)):.1f} "
            f"{HEIGHT * (1 - (min(high, max(low, value)) - low) / (high - low)):.1f}"
            for one, value in zip(chosen, values, strict=True)
        ]

    around = points(steps, [one.most for one in steps])
    around += points(steps[::-1], [one.least for one in reversed(steps)])
    line = points(steps, [one.mean for one in steps])
    # A line of no length is drawn as a point.
    return Course(f"M{'L'.join(around)}z", f"M{'L'.join(line)}" + ("h0" if len(line) == 1 else ""), low, high)
