"""The examples and the numbers of each shape."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.retained.limits import FlowSettings
from holdfast_pipeline import snapshot_of
from holdfast_pipeline.jobs.report import report
from holdfast_pipeline.report.figures import anchor
from tests.pipeline.report.figures import HOSTILE
from tests.pipeline.stores import NOW, database, message

HOUR = 3_600_000


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
