"""The charts of the report, as plain values that ``static/charts.js`` draws. Pure.

A chart is left out where it would be empty; the templates tell why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from attrs import Attribute, asdict, frozen
from markupsafe import Markup

from holdfast_pipeline.formatting import moment, number, share, size, span, visible
from holdfast_pipeline.report.figures import (
    AGE_BANDS,
    WHOLE,
    BandTotals,
    ChangeStep,
    Figures,
    History,
    NumberTotals,
    PrefixTotals,
    ReportTotals,
    anchor,
)
from holdfast_pipeline.report.templating import json_element

# What a chart shows, as plain values: the page holds them as JSON, and ``static/charts.js`` draws them.
#
# A kind of chart has a class here, and a function of the name of its ``kind`` there. Texts are shown as they are,
# never as markup, so they are made visible here.


@frozen(kw_only=True)
class ColumnChart:
    """Columns, each of one part or of several parts that are stacked.

    A column has a label, and the lines of its tooltip: a ``heading``, the same ``facts``. ``series`` has the name of
    each part and its values, whose ``unit`` is "count" or "bytes".
    """

    kind: ClassVar[str] = "columns"
    described: str
    #: The head of the table's column that names the columns of the chart.
    measured: str
    labels: Sequence[str]
    headings: Sequence[str]
    facts: Sequence[str]
    series: Sequence[tuple[str, Sequence[int]]]
    unit: str = "count"


@frozen(kw_only=True)
class DistributionChart:
    """How many values lie in each of the parts of equal width between ``low`` and ``high``."""

    kind: ClassVar[str] = "distribution"
    described: str
    low: float
    high: float
    bands: Sequence[int]


@frozen(kw_only=True)
class CourseChart:
    """Values between two times (seconds since the epoch): the means, and the area between the least and the highest.

    A step has its time, the least value, the mean and the highest. The scale reaches from ``low`` to ``high``.
    """

    kind: ClassVar[str] = "course"
    described: str
    since: int
    until: int
    low: float
    high: float
    steps: Sequence[tuple[int, float, float, float]]


@frozen(kw_only=True)
class MapNode:
    """A prefix in the map of topics, with the sizes of its tile: ``hue`` is its colour, from 0 to 7."""

    name: str
    told: str
    messages: int
    bytes: int
    hue: int
    children: Sequence[MapNode] = ()


@frozen(kw_only=True)
class MapChart:
    """The tree of topics. A tile is as large as its prefix's messages, or bytes."""

    kind: ClassVar[str] = "map"
    described: str
    nodes: Sequence[MapNode]


Chart = ColumnChart | DistributionChart | CourseChart | MapChart


def charts_element(charts: Mapping[str, Chart]) -> Markup:
    """Return the element of the page with the charts, by the ids of the elements where they are drawn."""
    drawn = {key: {"kind": one.kind, **asdict(one, filter=_is_drawn)} for key, one in charts.items()}
    return json_element("charts", drawn)


def _is_drawn(field: Attribute[Any], value: Any) -> bool:
    """Leave out what the templates write, and that a prefix has no prefixes below it: most have none."""
    return field.name not in ("described", "measured") and (field.name != "children" or bool(value))


# The charts of the values of a field: their distribution and their course. Pure.

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


# The map of topics: the tree of the larger prefixes, each with its share of its parent's colour. Pure.
#
# The tiles of the prefixes below a prefix fill its tile. So a prefix whose messages are not all below larger prefixes
# has one more tile, of its other topics: ``plant`` with 100 messages and ``plant/hall`` with 60 has a tile of 40
# others.

#: The last of the 8 colours. Prefixes without a colour of their own, and other topics, have it.
_PLAIN = 7
#: A prefix with this share of the whole gets no colour, but the prefixes below it do: else nearly all would have one.
_MOST_NODES = 0.7
#: Characters of a name in a tile, and of a prefix in a tooltip.
_LONGEST_NAME, _LONGEST_PREFIX = 40, 100
_Below = Mapping[str | None, Sequence[PrefixTotals]]


def topic_map(found: Figures) -> MapChart:
    """Return the map of a report's larger prefixes."""
    below: dict[str | None, list[PrefixTotals]] = {}
    for branch in sorted(found.branches, key=lambda one: (-one.messages, one.prefix)):
        below.setdefault(branch.prefix.rpartition("/")[0] if branch.depth > 1 else None, []).append(branch)
    hues = _hues(below, found.totals.messages)
    totals = found.totals
    nodes = [_node(branch, below, hues, _PLAIN, totals) for branch in below.get(None, ())]
    nodes += _others(nodes, totals.messages, totals.bytes, totals)
    return MapChart(described="Topics: each prefix is as large as its share", nodes=nodes)


def _node(branch: PrefixTotals, below: _Below, hues: Mapping[str, int], hue: int, totals: ReportTotals) -> MapNode:
    """Return the node of a prefix. It is as deep as the report's prefixes, which have few levels."""
    own = hues.get(branch.prefix, hue)
    children = [_node(one, below, hues, own, totals) for one in below.get(branch.prefix, ())]
    if children:
        children += _others(children, branch.messages, branch.bytes, totals)
    return MapNode(
        name=visible(branch.prefix.rpartition("/")[2], _LONGEST_NAME) or "(empty)",
        told=f"{visible(branch.prefix, _LONGEST_PREFIX) or '(empty)'}\n"
        f"{_totals(branch.messages, branch.bytes, totals)}; median age {span(branch.median_age)}, newest"
        f" {span(branch.newest_age)}; {number(branch.expiring)} expire",
        messages=branch.messages,
        bytes=branch.bytes,
        hue=own,
        children=children,
    )


def _others(nodes: Sequence[MapNode], messages: int, size_of_all: int, totals: ReportTotals) -> list[MapNode]:
    """Return the node of the topics that are not in these nodes; none if they are all."""
    messages -= sum(one.messages for one in nodes)
    size_of_all -= sum(one.bytes for one in nodes)
    if messages <= 0 and size_of_all <= 0:
        return []
    left, bytes_left = max(0, messages), max(0, size_of_all)
    told = f"Other topics and smaller prefixes\n{_totals(left, bytes_left, totals)}"
    return [MapNode(name="others", told=told, messages=left, bytes=bytes_left, hue=_PLAIN)]


def _totals(messages: int, size_of_all: int, totals: ReportTotals) -> str:
    return (
        f"{number(messages)} messages ({share(messages, totals.messages)}), {size(size_of_all)}"
        f" ({share(size_of_all, totals.bytes)})"
    )


def _hues(below: _Below, whole: int) -> dict[str, int]:
    """Return the colours, the first for the largest prefix. Prefixes below a coloured one have its colour, too."""
    coloured: list[PrefixTotals] = []
    prefix: str | None = None
    while True:
        here = below.get(prefix, ())
        if not here or here[0].messages < _MOST_NODES * whole or not below.get(here[0].prefix):
            coloured += here
            break
        coloured += here[1:]
        prefix = here[0].prefix
    coloured.sort(key=lambda one: (-one.messages, one.prefix))
    return {branch.prefix: min(place, _PLAIN) for place, branch in enumerate(coloured)}


_HOUR, _DAY = 3_600_000, 86_400_000
#: Columns for less time than this (seconds) have an hour in their labels.
_HOURS_SHOWN_BELOW = 14_400


def charts_of(found: Figures) -> dict[str, Chart]:
    """Return all charts of the page."""
    charts: dict[str, Chart] = {}
    if found.totals.messages:
        charts["map"] = topic_map(found)
        charts["ages"] = _ages(found)
    if found.history is not None:
        charts["changes"] = _changes(found.history)
    if found.totals.expiring:
        charts["expiry-hours"] = _outlook(found.taken_at, found.expiry.hours, _HOUR, "hour", "%H:%M")
        charts["expiry-days"] = _outlook(found.taken_at, found.expiry.days, _DAY, "day", "%d %b")
    if found.sizes:
        charts["messages-by-size"] = _by_size(found, "messages", "count", lambda part: part.messages)
        charts["bytes-by-size"] = _by_size(found, "bytes", "bytes", lambda part: part.bytes)
    for shape, details in found.details.items():
        for place, numbers in enumerate(details.numbers):
            charts[f"{anchor(shape)}-{place}-distribution"] = distribution(numbers)
            if numbers.course and found.history is not None:
                span = found.history.first_change, found.history.last_change
                charts[f"{anchor(shape)}-{place}-course"] = course(numbers, *span)
    return charts


def _changes(history: History) -> ColumnChart:
    """Return the changes by time, also the times without changes."""
    length = history.step * 1000
    known = {one.at // length: one for one in history.churn}
    form = "%d %b" if history.step >= _HOURS_SHOWN_BELOW else "%d %b %H:%M"
    begins = range(history.since // length * length, history.until + 1, length)
    steps = [known.get(at // length, ChangeStep(at, 0, 0, 0, 0)) for at in begins]
    return ColumnChart(
        described="Changes over time",
        measured="from",
        labels=[_time(at, form) for at in begins],
        headings=[moment(at) for at in begins],
        facts=[
            f"{number(one.sets)} set, {number(one.clears)} cleared, {number(one.expires)} expired; {size(one.bytes)}"
            for one in steps
        ],
        series=[
            ("set", [one.sets for one in steps]),
            ("cleared", [one.clears for one in steps]),
            ("expired", [one.expires for one in steps]),
        ],
    )


def _ages(found: Figures) -> ColumnChart:
    labels = [label for _, label in AGE_BANDS]
    parts = list(_filled(found.ages, range(len(AGE_BANDS))))
    return ColumnChart(
        described="Messages by age",
        measured="age",
        labels=labels,
        headings=labels,
        facts=[_facts(part, found) for part in parts],
        series=[("messages", [part.messages for part in parts])],
    )


def _outlook(taken_at: int, counts: Sequence[int], length: int, unit: str, form: str) -> ColumnChart:
    """Return how many messages expire in each of the next steps of this ``length``."""
    begins = [taken_at + place * length for place in range(len(counts))]
    return ColumnChart(
        described=f"Expiry by {unit}",
        measured="expiry",
        labels=[_time(at, form) for at in begins],
        headings=[f"in {place} to {place + 1} {unit}s (from {moment(at)})" for place, at in enumerate(begins)],
        facts=[f"{number(count)} messages" for count in counts],
        series=[("messages", list(counts))],
    )


def _by_size(found: Figures, name: str, unit: str, value: Callable[[BandTotals], int]) -> ColumnChart:
    keys = [part.key for part in found.sizes]
    parts = list(_filled(found.sizes, range(min(keys), max(keys) + 1)))
    return ColumnChart(
        described=f"{name.capitalize()} by size",
        measured="payload",
        labels=[_short_size(2**part.key) for part in parts],
        headings=[_limits(part.key) for part in parts],
        facts=[_facts(part, found) for part in parts],
        series=[(name, [value(part) for part in parts])],
        unit=unit,
    )


def _limits(key: int) -> str:
    return "up to 1 byte" if key == 0 else f"more than {size(2 ** (key - 1))}, up to {size(2**key)}"


def _short_size(count: float) -> str:
    """Return a number of bytes with the room of a label: 512 B, 4 KB."""
    return size(count).replace(".0 ", " ").replace(" bytes", " B").replace(" byte", " B")


def _facts(part: BandTotals, found: Figures) -> str:
    totals = found.totals
    return (
        f"{number(part.messages)} messages ({share(part.messages, totals.messages)}), {size(part.bytes)}"
        f" ({share(part.bytes, totals.bytes)})"
    )


def _filled(parts: Iterable[BandTotals], keys: Iterable[int]) -> Iterator[BandTotals]:
    """Give a part for each key, an empty one where nothing was found."""
    known = {part.key: part for part in parts}
    return (known.get(key, BandTotals(key, 0, 0)) for key in keys)


def _time(at: int, form: str) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime(form)
