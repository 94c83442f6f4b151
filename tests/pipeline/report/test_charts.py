"""What the charts are told: JSON that holds all figures, of any names and numbers."""

from __future__ import annotations

import json
import re
from typing import Any

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from holdfast_pipeline.report.charts import (
    ColumnChart,
    MapNode,
    charts_element,
    charts_of,
    course,
    distribution,
    topic_map,
)
from holdfast_pipeline.report.figures import NumberTotals, ValueStep
from holdfast_pipeline.report.page import page
from tests.pipeline.report.figures import HOSTILE, NOW, branch, empty, figures

NUMBERS = NumberTotals("$", 3, 1.0, 1.0, 2.0, 3.0, 3.0)


def told(text: str) -> Any:
    """Return the JSON of the element with the charts, whichever else is in the text."""
    (found,) = re.findall('<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def test_each_chart_has_one_place_on_the_page_and_each_place_its_chart() -> None:
    for found in (figures(), figures(HOSTILE), evolve(figures(), history=None), empty()):
        text = page(found)
        places = re.findall('data-chart="([^"]*)"', text)
        assert sorted(places) == sorted(told(text))
        assert len(places) == len(set(places))


def test_a_name_cannot_end_the_element_and_stays_as_it_is() -> None:
    """Invisible characters are shown as escapes, as everywhere on the page."""
    text = str(charts_element(charts_of(figures(HOSTILE))))
    assert text.count("<") == 2
    names = {one["name"] for one in told(text)["map"]["nodes"]}
    assert {"{b}{a|__proto__}", "(empty)", "\\u202egnp.exe\\u2066", "others"} <= names


def test_columns_without_messages_are_there_and_the_table_has_their_numbers() -> None:
    found = figures()
    assert found.history is not None
    charts = charts_of(evolve(found, history=evolve(found.history, churn=found.history.churn[3:4])))
    changes = charts["changes"]
    assert isinstance(changes, ColumnChart)
    assert [name for name, _ in changes.series] == ["set", "cleared", "expired"]
    assert [sum(values) for _, values in changes.series] == [3, 1, 2]
    assert len(changes.labels) == len(changes.headings) == len(changes.facts) == 25
    text = page(found)
    assert '<tr><td>more than 1.0 KB, up to 2.0 KB</td><td data-v="2048">2.0 KB</td></tr>' in text


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 500)), max_size=12), st.integers(0, 99))
def test_the_tiles_below_a_prefix_have_all_its_messages_and_bytes(
    found: list[tuple[int, int, int]], elsewhere: int
) -> None:
    """What is not below a larger prefix is in the tile of the others."""
    below = {(first, second): count for first, second, count in found}
    first: dict[int, int] = {}
    for (one, _), count in below.items():
        first[one] = first.get(one, elsewhere) + count
    branches = [branch(str(one), count) for one, count in first.items()]
    branches += [branch(f"{one}/{other}", count) for (one, other), count in below.items()]
    whole = sum(first.values()) + elsewhere
    totals = evolve(figures().totals, messages=whole, bytes=whole * 10)

    def sums(nodes: Any) -> tuple[int, int]:
        return sum(one.messages for one in nodes), sum(one.bytes for one in nodes)

    def check(node: MapNode) -> None:
        assert node.messages >= 0
        assert 0 <= node.hue < 8
        if node.children:
            assert sums(node.children) == (node.messages, node.bytes)
        for child in node.children:
            check(child)

    nodes = topic_map(evolve(figures(), branches=tuple(branches), totals=totals)).nodes
    assert sums(nodes) == (whole, whole * 10)
    for node in nodes:
        check(node)


values = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.lists(values, min_size=3, max_size=3)), min_size=1, max_size=9))
def test_courses_of_any_values_keep_their_order_and_have_a_scale(found: list[tuple[int, list[float]]]) -> None:
    """A single wrong value leaves room for the others; all are JSON, which has no infinity."""
    steps = [ValueStep(at, *sorted(three)) for at, three in sorted(found)]
    least, most = min(one.least for one in steps), max(one.most for one in steps)
    numbers = evolve(NUMBERS, low=least, high=most, course=tuple(steps), bands=(1, 2))
    drawn = course(numbers, steps[0].at, steps[-1].at)
    assert drawn.low <= drawn.high
    assert all(low <= mean <= high for _, low, mean, high in drawn.steps)
    json.dumps([drawn.steps, drawn.low, drawn.high, distribution(numbers).low], allow_nan=False)
    wrong = course(evolve(numbers, low=0.0, high=1.0), steps[0].at, steps[-1].at)
    assert wrong.low >= -1
    assert wrong.high <= 2


def test_a_meter_that_counts_slowly_has_no_staircase() -> None:
    """Values are rounded by their range, not by their digits."""
    steps = tuple(ValueStep(NOW + place, *[1_234_567.0 + place / 100] * 3) for place in range(9))
    drawn = course(evolve(NUMBERS, low=steps[0].mean, high=steps[-1].mean, course=steps), NOW, NOW + 9)
    assert len({mean for _, _, mean, _ in drawn.steps}) == 9
