"""``holdfast-pipeline archive``, killed with all its processes while the history grows, archives each change once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from holdfast.changes.periods import read_state
from holdfast_pipeline import Source
from holdfast_pipeline.archive.entries import read_archive
from holdfast_pipeline.database.confirmation import confirm_archived
from holdfast_pipeline.jobs.archive import archive
from holdfast_pipeline.output.folder import Folder
from tests.pipeline.commands import COMMAND, PATIENCE, environment
from tests.pipeline.database.test_confirmation import configured
from tests.pipeline.stores import Filled, database, message

#: the changes in a batch, and those before each run: two batches, so that no run ends before it is killed
ROWS, GROWTH = 100, 200


def driver(url: str, out: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a driver in a new process group, with its JVM and workers."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            [COMMAND, "archive", "--storage", url, "--out", out, "--rows", str(ROWS)],
            env=environment(MASTER="local[2]"), stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
        )  # fmt: skip


def await_that(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a condition is true or the driver ends."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None:
            raise AssertionError(f"the driver ended: {log.read_text()}")
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def batches(out: Path, kind: str) -> int:
    """Return the number of started batches ("offsets") or of complete ones ("commits")."""
    folder = out / "checkpoint" / kind
    return sum(path.name.isdigit() for path in folder.iterdir()) if folder.is_dir() else 0


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver's group, and wait for the driver."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
def test_kill_9_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """During the first batch, between batches and in the middle of one. The last run, in this process, ends."""
    kills = (("offsets", 1), ("commits", 1), ("offsets", 2))
    out, log = tmp_path / "archive", tmp_path / "driver.log"
    with database("postgresql", tmp_path, recorded=True) as filled:
        grow(filled, 0)
        for run, (kind, more) in enumerate(kills, 1):
            before = batches(out, kind)
            process = driver(filled.url, out, log)
            try:
                await_that(lambda kind=kind, upto=before + more: batches(out, kind) >= upto, process, log)  # type: ignore[misc]
                grow(filled, run)
            finally:
                end(process)
        confirm = partial(confirm_archived, configured(filled, tmp_path))
        archive(spark, Source(filled.url), Folder(str(out)), confirm, ROWS)
        found = require_each_change_once(spark, filled, out)
    assert found == (1 + len(kills)) * GROWTH


@pytest.mark.spark
@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_what_a_kill_in_a_batch_leaves_is_made_good(spark: SparkSession, recorded: Filled, tmp_path: Path) -> None:
    """Files of rows that no list names, then also a list of a batch that is not complete. Nothing was confirmed."""
    out = tmp_path / "archive"
    run = partial(archive, spark, Source(recorded.url), Folder(str(out)))
    grow(recorded, 0)
    confirm = partial(confirm_archived, configured(recorded, tmp_path))
    run(confirm)
    for number, lists in enumerate((("data/_spark_metadata", "checkpoint/commits"), ("checkpoint/commits",)), 1):
        coverage = (out / "archive.json").read_bytes()
        grow(recorded, number)
        run(list[int]().append)
        for each in lists:
            (out / each / str(number)).unlink()
            (out / each / f".{number}.crc").unlink()
        (out / "archive.json").write_bytes(coverage)
        run(confirm)
        assert require_each_change_once(spark, recorded, out) == (number + 1) * GROWTH


def require_each_change_once(spark: SparkSession, filled: Filled, out: Path) -> int:
    """Require that archive and history have the same changes, all confirmed. Return how many."""
    figures = (F.count("*"), F.count_distinct("seq"), F.min("seq"), F.max("seq"), F.sum("seq"))
    found = tuple(read_archive(spark, Folder(str(out))).agg(*figures).collect()[0])
    with Source(filled.url).transaction() as transaction:
        (expected,) = transaction.rows(
            "SELECT count(*), count(DISTINCT seq), min(seq), max(seq), CAST(sum(seq) AS bigint) FROM retained_history"
        )
        state = read_state(transaction.connection.cursor())
    assert found == tuple(expected)
    assert state.archived_seq == state.last_seq
    return int(found[0])


def grow(filled: Filled, run: int) -> None:
    """Record more changes."""
    filled.put(*(message(f"t/{run}/{number}") for number in range(GROWTH)))
