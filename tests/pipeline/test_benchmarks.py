"""The pipeline's benchmarks run with little data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from benchmarks.brokers import Site
from benchmarks.pipeline import cluster, live
from benchmarks.pipeline.figures import lines
from benchmarks.pipeline.jobs import CASES, databases_of
from benchmarks.wire import Wire
from tests.pipeline import stores
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


def test_what_executors_read_is_counted_by_executor() -> None:
    """Each task tells its rows; the table adds them for each number of executors."""
    batches = [pa.RecordBatch.from_pydict({"topic": ["a", "b"]}), pa.RecordBatch.from_pydict({"topic": ["c"]})]
    (told,) = cluster.counted(iter(batches))
    assert told["rows"].to_pylist() == [3]
    assert told["bytes"].to_pylist() == [sum(batch.nbytes for batch in batches)]
    (told,) = cluster.counted(iter(()))
    assert told["rows"].to_pylist() == [0]
    lines = list(cluster.table({1: [("0", 3, 2_000_000), ("0", 1, 0)], 2: [("1", 1, 0), ("0", 3, 9_000_000)]}))
    assert lines[2:] == ["| 1 | 4 | 2 | 2 | 100 % |", "| 2 | 3, 1 | 9, 0 | 1, 1 | 75 % |"]


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.usefixtures("java")
def test_a_cluster_reads_each_message_once(tmp_path: Path) -> None:
    """Two executors are processes of their own."""
    with stores.database("postgresql", tmp_path) as filled:
        filled.put(*(stores.message(f"t/{number}") for number in range(50)))
        tasks = cluster.on_cluster(filled.url, 2, 4, tmp_path)
    assert sum(rows for _, rows, _ in tasks) == 50
    assert len(tasks) == 4


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
