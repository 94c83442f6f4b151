"""Spark tells how many of its tasks are done."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast_pipeline.progress import Tasks
from holdfast_pipeline.spark.session import _Watched, tasks_of
from tests.pipeline.commands import PATIENCE


@pytest.mark.spark
def test_a_session_tells_of_the_stage_that_runs(spark: SparkSession, tmp_path: Path) -> None:
    """One task is done and the other one waits."""
    mark = tmp_path / "mark"

    def held(rows: Iterator[object]) -> None:
        if any(rows):
            deadline = time.monotonic() + PATIENCE
            while not mark.exists() and time.monotonic() < deadline:
                time.sleep(0.01)

    ask = tasks_of(spark)
    running = threading.Thread(target=spark.range(0, 1, 1, 2).foreachPartition, args=(held,))
    running.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while ask() != Tasks(1, 2, 0):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        mark.touch()
        running.join()
    while ask() is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_tells_of_its_stages_while_a_query_runs() -> None:
    """Stages that are done count no more."""

    class Stage:
        def __init__(self, tasks: int, completed: int, done: bool) -> None:
            self.num_tasks, self.num_completed_tasks, self.done = tasks, completed, done

    watched = _Watched()
    assert watched.tasks is None
    watched([Stage(4, 4, True), Stage(8, 3, False)], 2, "7", False)
    assert watched.tasks == Tasks(3, 8, 0)
    watched(None, 0, "7", True)
    assert watched.tasks is None
