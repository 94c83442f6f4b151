"""Line charts as SVG, for light and dark pages, without a library: the benchmarks' pictures need no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 760
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 34, 34
_LINE = 17
_STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .small { fill: #57606a }
.grid { stroke: #d0d7de; stroke-width: 1 } .line { fill: none; stroke-width: 2 }
.c0 { stroke: #0969da } .c1 { stroke: #bc4c00 } .c2 { stroke: #1a7f37 } .c3 { stroke: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .grid { stroke: #30363d }
.c0 { stroke: #4493f8 } .c1 { stroke: #f0883e } .c2 { stroke: #3fb950 } .c3 { stroke: #ab7df8 }
}
"""


@dataclass(frozen=True)
class Line:
    """One line: its name, its points from left to right, the number of its colour (0 to 3)."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0


@dataclass(frozen=True)
class Chart:
    """Some lines over one axis. ``names`` are the marks of the x axis by their value; without any, they are numbers.

    A logarithmic axis shows values above 0 only.
    """

    title: str
    lines: Sequence[Line]
    x_title: str = ""
    names: Sequence[tuple[float, str]] = ()
    log_x: bool = False
    log_y: bool = False
    height: int = 170


def picture(title: str, charts: Sequence[Chart], caption: Sequence[str] = ()) -> str:
    """Return an SVG with the charts below each other, and the lines of the caption below them."""
    top, parts = 30, [f'<text class="title" x="10" y="20" font-size="14">{escape(title)}</text>']
    for chart in charts:
        parts.append(f'<g transform="translate(0,{top})">{_drawn(chart)}</g>')
        top += chart.height
    for line in caption:
        parts.append(f'<text class="small" x="10" y="{top + 12}">{escape(line)}</text>')
        top += _LINE
    height = top + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img"><title>{escape(title)}</title><style>{_STYLE}</style>{"".join(parts)}</svg>\n'
    )


def _drawn(chart: Chart) -> str:
    points = [point for line in chart.lines for point in line.points]
    if not points:
        return f'<text class="title" x="10" y="20">{escape(chart.title)}: no figures</text>'
    x = _axis([point[0] for point in points], chart.log_x, _LEFT, WIDTH - _RIGHT, from_zero=False)
    y = _axis([point[1] for point in points], chart.log_y, chart.height - _BOTTOM, _TOP, from_zero=True)
    parts = [f'<text class="title" x="10" y="20">{escape(chart.title)}</text>']
    for value, text in y.marks:
        at = y.place(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="small" x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>')
    for value, text in chart.names or x.marks:
        at, below = x.place(value), chart.height - _BOTTOM + 16
        parts.append(f'<text class="small" x="{at:.1f}" y="{below}" text-anchor="middle">{escape(text)}</text>')
    if chart.x_title:
        below, right = chart.height - _BOTTOM + 16, WIDTH - _RIGHT + 14
        parts.append(f'<text class="small" x="{right}" y="{below}">{escape(chart.x_title)}</text>')
    labels = []
    for line in chart.lines:
        shown = [(x.place(a), y.place(b)) for a, b in line.points if x.has(a) and y.has(b)]
        if not shown:
            continue
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in shown)
        parts.append(f'<polyline class="line c{line.colour}" points="{path}"/>')
        labels.append((shown[-1][1], line))
    parts += [_label(at, line) for at, line in _apart(labels)]
    return "".join(parts)


def _label(at: float, line: Line) -> str:
    left = WIDTH - _RIGHT + 10
    return (
        f'<line class="line c{line.colour}" x1="{left}" x2="{left + 18}" y1="{at:.1f}" y2="{at:.1f}"/>'
        f'<text x="{left + 24}" y="{at + 4:.1f}">{escape(line.name)}</text>'
    )


def _apart(labels: Sequence[tuple[float, Line]]) -> list[tuple[float, Line]]:
    """Move labels down, so that none covers another."""
    placed: list[tuple[float, Line]] = []
    for at, line in sorted(labels, key=lambda label: label[0]):
        placed.append((max(at, placed[-1][0] + _LINE) if placed else at, line))
    return placed


@dataclass(frozen=True)
class _Axis:
    """Finds the place of a value; ``marks`` are values with their texts."""

    place: Callable[[float], float]
    has: Callable[[float], bool]
    marks: Sequence[tuple[float, str]]


def _axis(values: Sequence[float], is_log: bool, start: float, end: float, from_zero: bool) -> _Axis:
    if is_log:
        shown = [value for value in values if value > 0]
        low = math.floor(math.log10(min(shown, default=1)))
        high = max(math.ceil(math.log10(max(shown, default=10))), low + 1)
        marks = [(10.0**power, _text(10.0**power)) for power in range(low, high + 1)]
        scale = (end - start) / (high - low)
        return _Axis(lambda value: start + (math.log10(value) - low) * scale, lambda value: value > 0, marks)
    least, most = (0.0 if from_zero else min(values)), max(values)
    most = most if most > least else least + 1
    step = _step((most - least) / 4)
    count = math.floor(most / step) - math.ceil(least / step)
    marks = [(step * (math.ceil(least / step) + number), "") for number in range(count + 1)]
    if from_zero and marks[-1][0] < most:  # the highest line lies above all values
        marks.append((marks[-1][0] + step, ""))
        most = marks[-1][0]
    scale = (end - start) / (most - least)
    return _Axis(
        lambda value: start + (value - least) * scale, lambda _: True, [(value, _text(value)) for value, _ in marks]
    )


def _step(least: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 ..."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def _text(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"
