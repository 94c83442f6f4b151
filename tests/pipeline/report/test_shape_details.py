"""The examples and the numbers of each shape: the computation, and the charts."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from holdfast.pipeline import snapshot_of
from holdfast.pipeline.jobs.report import report
from holdfast.pipeline.report.shape_details import NumberTotals, ValueStep, anchor
from holdfast.pipeline.report.value_charts import HEIGHT, WIDTH, bands, course
from holdfast.retained.replay.flow_settings import FlowSettings
from tests.pipeline.report.figures import HOSTILE
from tests.pipeline.stores import NOW, database, message

HOUR = 3_600_000
NUMBERS = NumberTotals("$", 3, 1.0, 1.0, 2.0, 3.0, 3.0)


@pytest.mark.spark
def test_each_shape_has_examples_and_the_numbers_of_its_payloads(spark: SparkSession, tmp_path: Path) -> None:
    """Payloads that are numbers, and numbers in objects; not texts with digits, nor numbers beyond a double.

    The course has the mean of all changes in a step; the distribution only what is retained.
    """
    with database("sqlite", tmp_path, recorded=True) as filled:
        filled.put(*(message(f"site/t-{number}", b"%d" % number) for number in range(1, 5)), at=NOW)
        filled.put(message("site/t-1", b"100"), message("site/t-5", b"1e400"), message("site/t-6", b"?"), at=NOW + HOUR)
        filled.put(
            *(
                message(f"lamp/l-{number}", b'{"level": %d.5, "name": "7", "on": true}' % number)
                for number in (1, 2, 3)
            ),
            at=NOW + HOUR,
        )
        with snapshot_of(filled.url) as snapshot:
            found = report(spark, snapshot, FlowSettings())
    thermometers, lamps = (
        next(details for shape, details in found.details.items() if shape.startswith(level))
        for level in ("site", "lamp")
    )
    (numbers,) = thermometers.numbers
    assert (numbers.field, numbers.count, numbers.least, numbers.most) == ("$", 4, 2.0, 100.0)
    assert (sum(numbers.bands), numbers.bands[0], numbers.bands[-1]) == (4, 3, 1)
    assert [(one.least, one.mean, one.most) for one in numbers.course] == [(1, 2.5, 4), (100, 100, 100)]
    assert [(kind.kind, kind.messages) for kind in thermometers.kinds] == [("number", 5), ("text", 1)]
    assert (thermometers.kinds[1].newest.topic, thermometers.kinds[1].newest.payload) == ("site/t-6", "?")
    assert thermometers.newest is not None
    assert thermometers.oldest is not None
    assert (thermometers.newest.topic, thermometers.oldest.topic) == ("site/t-6", "site/t-2")
    assert [(one.field, one.count, one.median) for one in lamps.numbers] == [(".level", 3, 2.5)]


def test_the_address_of_a_shape_is_of_letters_and_digits_and_its_own() -> None:
    """Whatever the shape is called; the same in each report."""
    assert anchor("hq/{floor}/light") == anchor("hq/{floor}/light") != anchor("hq/{floor}/Light")
    found = {anchor(one) for one in HOSTILE}
    assert len(found) == len(HOSTILE)
    assert all(re.fullmatch("shape-[a-z0-9-]{1,60}", one) for one in found)


values = st.floats(-1e300, 1e300)


@given(st.lists(st.tuples(st.integers(0, 10**12), st.lists(values, min_size=3, max_size=3)), min_size=1, max_size=9))
def test_charts_stay_in_their_box_whatever_the_values_are(found: list[tuple[int, list[float]]]) -> None:
    steps = [ValueStep(at, *sorted(three)) for at, three in sorted(found)]
    low, high = min(one.least for one in steps), max(one.most for one in steps)
    drawn = course(evolve(NUMBERS, low=low, high=high, course=tuple(steps)), steps[0].at, steps[-1].at)
    assert drawn.low < drawn.high
    for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", drawn.area + drawn.line):
        assert 0 <= float(x) <= WIDTH
        assert 0 <= float(y) <= HEIGHT
    assert "nan" not in drawn.area + drawn.line


@given(st.lists(st.integers(0, 10**9), max_size=30))
def test_each_band_with_values_has_a_column_in_the_box(counts: list[int]) -> None:
    path = bands(evolve(NUMBERS, bands=tuple(counts)))
    heights = [float(one) for one in re.findall(r"v-([\d.]+)", path)]
    assert len(heights) == sum(1 for count in counts if count)
    assert all(1 <= one <= HEIGHT for one in heights)
    assert not heights or math.isclose(max(heights), HEIGHT)
