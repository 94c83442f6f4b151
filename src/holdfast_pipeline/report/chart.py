"""What a chart shows, as plain values: the page holds them as JSON, and ``static/charts.js`` draws them.

A kind of chart has a class here, and a function of the name of its ``kind`` there. Texts are shown as they are, never
as markup, so they are made visible here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import Attribute, asdict, frozen
from markupsafe import Markup

from holdfast_pipeline.report.json_element import json_element


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
