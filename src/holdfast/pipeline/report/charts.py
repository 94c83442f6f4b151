"""Charts as SVG that keeps its letters' size whatever its width: places are per cent, heights are pixels. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import frozen

from holdfast.pipeline.report.markup import Markup, el, percent

_PLOT, _TOP, _FOOT = 150, 14, 20
#: Between the figures of a scale, which stand left of the chart (the page leaves them room), and the chart.
_GAP = 5
_LABELS = 6
#: A label whose middle is nearer to the edge than this part of the width would hang over it.
_EDGE = 0.05


@frozen
class Step:
    """A column: its label below, what is told of it, and its parts from the bottom up."""

    label: str
    told: str
    parts: tuple[float, ...]


@frozen
class Bar:
    """A row of a ranking: its name, its value in words, and how long it is (0 to 1)."""

    name: Markup
    value: str
    length: float


def columns(
    steps: Sequence[Step],
    described: str,
    figure: Callable[[float], str],
    every_label: bool = False,
    thousand: int = 1000,
) -> Markup:
    """Draw columns of one or more parts, which have the classes s0, s1, ...

    ``figure`` writes a value, in units that are a ``thousand`` of each other (1024 for bytes).
    """
    highest = max((sum(step.parts) for step in steps), default=0)
    scale = ceiling(highest, thousand)
    levels = {value: _TOP + _PLOT * (1 - value / scale) for value in _marked(scale)}
    lines = [el("line", x1=0, x2="100%", y1=y, y2=y, class_="grid") for y in levels.values()]
    figures = [el("text", figure(value), x=-_GAP, y=y + 4, class_="tick end figure") for value, y in levels.items()]
    count = max(1, len(steps))
    apart = 1 if every_label else -(-count // _LABELS)
    drawn = []
    for place, step in enumerate(steps):
        drawn.append(_column(step, place / count, 1 / count, scale))
        if place % apart == 0:
            crowded = not every_label and place // apart % 2 == 1
            drawn.append(_label(step.label, place, count, crowded))
    base = el("line", x1=0, x2="100%", y1=_TOP + _PLOT, y2=_TOP + _PLOT, class_="base")
    return el(
        "svg", lines, drawn, base, figures, class_="columns", role="img", aria_label=described,
        width="100%", height=_TOP + _PLOT + _FOOT,
    )  # fmt: skip


def bars(rows: Iterable[Bar], hue: int = 0) -> Markup:
    """Draw a ranking."""
    return el(
        "ol",
        [
            el(
                "li",
                el("span", row.name, class_="label"),
                el("svg", el("rect", width=percent(row.length), height="100%", rx=2), class_=f"bar s{hue}",
                   width="100%", height=6, aria_hidden="true"),
                el("span", row.value, class_="value"),
            )
            for row in rows
        ],
        class_="bars",
    )  # fmt: skip


def legend(*names: str) -> Markup:
    """Say what the parts of columns are."""
    return el("p", [el("span", name, class_=f"key s{place}") for place, name in enumerate(names)], class_="legend")


def ceiling(highest: float, thousand: int = 1000) -> float:
    """Return a number not below the highest value, at least 2, that is round in its unit, and so is its half."""
    unit = 1.0
    while highest >= thousand * unit:
        unit *= thousand
    tens = 10.0 ** (len(str(int(highest / unit))) - 1)
    scale = next(factor * tens for factor in (1, 2, 4, 6, 8, 10, 20) if factor * tens * unit >= highest) * unit
    return max(2.0, scale)


def _marked(scale: float) -> tuple[float, ...]:
    return (scale / 2, scale)


def _label(text: str, place: int, count: int, crowded: bool) -> Markup:
    """Write a column's label in its middle, or so that it does not hang over the chart's edge."""
    middle = (place + 0.5) / count
    x, side = (middle, "middle")
    if middle < _EDGE:
        x, side = place / count, "begin"
    elif middle > 1 - _EDGE:
        x, side = (place + 1) / count, "end"
    return el(
        "text", text, x=percent(x), y=_TOP + _PLOT + 15, class_=f"tick {side} odd" if crowded else f"tick {side}"
    )  # fmt: skip


def _column(step: Step, left: float, width: float, scale: float) -> Markup:
    """Draw a column; what is not nothing can be seen."""
    drawn, y = [], float(_TOP + _PLOT)
    for place, part in enumerate(step.parts):
        if part > 0:
            high = max(1.0, _PLOT * part / scale)
            y -= high
            drawn.append(el("rect", x="8%", width="84%", y=y, height=high, class_=f"s{place}"))
    hit = el("rect", width="100%", height="100%", class_="hit")
    return el(
        "svg", el("title", step.told), hit, drawn, x=percent(left), width=percent(width), y=0, height=_TOP + _PLOT
    )
