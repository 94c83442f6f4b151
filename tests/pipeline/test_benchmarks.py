"""The pipeline's benchmarks run with little data."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.brokers import Site
from benchmarks.pipeline import live
from benchmarks.pipeline.figures import lines
from benchmarks.pipeline.jobs import CASES, databases_of
from benchmarks.wire import Wire
from tests.pipeline.stores import MAKES


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("cases", [["read", "filters"], pytest.param(list(CASES), marks=pytest.mark.nightly)])
def test_every_job_is_timed(spark: SparkSession, tmp_path: Path, cases: list[str]) -> None:
    """The table has all of them, with plain Python for the same work where that exists."""
    with databases_of(spark, 30, 1, False, tmp_path, set(cases)) as here:
        figures = [CASES[case](here) for case in cases]
    assert [figure.case for figure in figures] == cases
    assert all(figure.value > 0 for figure in figures)
    assert [figure.case for figure in figures if figure.plain is None] == [
        case for case in cases if case in ("asof-lake", "filters")
    ]
    table = list(lines(figures, markdown=True))
    assert len(table) == len(cases) + 2
    assert {line.count("|") for line in table} == {table[0].count("|")}


@pytest.mark.e2e
@pytest.mark.nightly
@pytest.mark.parametrize("make", MAKES)
def test_live_messages_are_timed_with_and_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    """For each QoS; the import is complete afterwards."""
    monkeypatch.setattr(live, "_IDLE", 0.05)
    figures = live.live(Site.here(str(tmp_path), Wire(4), postgres=make == "postgresql"), 300)
    assert len(figures) == 3 * 2 * 3
    assert all(figure.value > 0 for figure in figures)
