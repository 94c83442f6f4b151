"""An import whose driver and JVM are killed at any point is complete after it is repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.commands import stand_in
from holdfast.retained.import_jobs import read_job
from holdfast.retained.records import line_of
from holdfast_pipeline import Source
from holdfast_pipeline.jobs.imports import Imported, import_messages
from holdfast_pipeline.sink import OPTIONS, RetainedFormat, RetainedWriter, Target
from holdfast_pipeline.sources.options import Options, register_once
from tests.pipeline.commands import PATIENCE, environment
from tests.pipeline.sink.test_sink import contents
from tests.pipeline.stores import Filled, database, message

COUNT = 1200
#: The import. It stops at the named point for ever, and makes a file there.
SCRIPT = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from holdfast.commands import stand_in
from holdfast_pipeline import register, sink
from holdfast_pipeline.sources.options import Options
from holdfast_pipeline.jobs import imports

source, url, point, mark = sys.argv[1:]

def stop():
    Path(mark).touch()
    time.sleep(3600)

class Held(sink.RetainedWriter):
    def write(self, iterator):
        def first():
            for batch in iterator:
                yield batch
                if point == "staging":
                    stop()
        return super().write(first())

    def commit(self, messages):
        if point == "staged":
            stop()
        stand_in._ROWS = 250  # more than one part
        merge, target = sink.Target.merge, self._target
        def told(*arguments):
            for said in merge(target, *arguments):
                yield said
                if point == "merging":
                    stop()
        object.__setattr__(self, "_target", type("Told", (), {"merge": staticmethod(told)}))
        super().commit(messages)

    def _tell(self, rejects):
        if point == "merged":
            stop()

class HeldSource(sink.RetainedFormat):
    def writer(self, schema, overwrite):
        return Held(Options(self.name(), self.options, sink.OPTIONS), schema, overwrite)

spark = SparkSession.builder.master("local[2]").getOrCreate()
register(spark)
spark.dataSource.register(HeldSource)
imports.import_messages(spark, source, "ndjson", sink.Target(url, None), job="killed")
"""


def killed_at(point: str, source: Path, url: str, folder: Path) -> None:
    """Import until a point is reached; then kill -9 the driver, its JVM and its workers."""
    mark, log = folder / f"{point}.mark", folder / f"{point}.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(source), url, point, str(mark)],
            env=environment(PYSPARK_PYTHON=sys.executable), stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE
        while not mark.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def position(url: str) -> str:
    """Return the state of the job."""
    with Source(url).transaction() as transaction:
        job = read_job(transaction.connection.cursor(), "killed")
    return "" if job is None else "done" if job.is_done else job.position


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("make", "points"),
    [
        ("sqlite", ("staging", "staged", "merging", "merged")),
        ("postgresql", ("staging", "staged", "merging", "merged")),
    ],
)
def test_a_repeated_import_is_complete_after_kill_9_at_any_point(
    spark: SparkSession, tmp_path: Path, make: str, points: tuple[str, ...]
) -> None:
    """During staging, after it, between two parts, and after the last part before the driver knows of it."""
    source = tmp_path / "in.ndjson"
    expected = [message(f"t/{number:04}", b"%d" % number, qos=number % 3) for number in range(COUNT)]
    source.write_bytes(b"".join(map(line_of, expected)))
    with database(make, tmp_path) as target:
        for point in points:
            killed_at(point, source, target.url, tmp_path)
            if point in ("staging", "staged"):
                assert position(target.url) == ""
            elif point == "merging":
                assert "t/0000" < position(target.url) < "t/1199"
            else:
                assert position(target.url) == "done"
        for before in (points[-1] == "merged", True):
            done = import_messages(spark, str(source), "ndjson", Target(target.url, None), job="killed")
            assert done == Imported("killed", before, COUNT, 0, 0, 0, 0, 0)
        found = contents(spark, target)
        assert [row[:3] for row in found] == [(one.topic, one.payload, one.qos) for one in expected]
        assert staged(target) == []


def killing(mark: Path) -> type[RetainedFormat]:
    """Return the format, with a writer that kills its own process after the first part, once."""

    class Killing(RetainedWriter):
        def commit(self, messages: list[WriterCommitMessage | None]) -> None:
            merge = self._target.merge

            def told(*arguments: Any) -> Iterator[dict[str, Any]]:
                for said in merge(*arguments):
                    yield said
                    if not mark.exists():
                        mark.touch()
                        os.kill(os.getpid(), signal.SIGKILL)

            stand_in._ROWS = 250  # more than one part
            object.__setattr__(self, "_target", SimpleNamespace(merge=told))
            super().commit(messages)

    class KillingFormat(RetainedFormat):
        def writer(self, schema: StructType, overwrite: bool) -> RetainedWriter:
            return Killing(Options(self.name(), self.options, OPTIONS), schema, overwrite)

    return KillingFormat


@pytest.mark.spark
def test_a_repeated_import_is_complete_after_kill_9_of_the_merging_process(spark: SparkSession, tmp_path: Path) -> None:
    """Between two parts. Spark itself goes on."""
    source = tmp_path / "in.ndjson"
    expected = [message(f"t/{number:04}", b"%d" % number, qos=number % 3) for number in range(COUNT)]
    source.write_bytes(b"".join(map(line_of, expected)))
    with database("sqlite", tmp_path) as target:
        register_once(spark, killing(tmp_path / "mark"))
        try:
            with pytest.raises(Py4JJavaError, match="crashed"):
                import_messages(spark, str(source), "ndjson", Target(target.url, None), job="killed")
            assert "t/0000" < position(target.url) < "t/1199"
            done = import_messages(spark, str(source), "ndjson", Target(target.url, None), job="killed")
        finally:
            spark.dataSource.register(RetainedFormat)
        assert done == Imported("killed", False, COUNT, 0, 0, 0, 0, 0)
        assert [row[:3] for row in contents(spark, target)] == [(one.topic, one.payload, one.qos) for one in expected]
        assert staged(target) == []


def staged(target: Filled) -> list[str]:
    """Return the names of the remaining staging areas."""
    if target.url.startswith("sqlite"):
        return [path.name for path in (Path(target.url.removeprefix("sqlite:///")).parent / "staging").iterdir()]
    with Source(target.url).transaction() as transaction:
        return [
            name for (name,) in transaction.rows("SELECT tablename FROM pg_tables WHERE tablename LIKE 'holdfast_st%'")
        ]
