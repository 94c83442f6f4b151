"""A stream whose driver and JVM are killed while a batch is merged, or after it, retains the batch once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.commands import PATIENCE, environment
from tests.pipeline.sink.test_stream import kept, lines, written
from tests.pipeline.stores import Filled, message

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

#: The stream. When the batch is merged, and before Spark knows it, the driver stops for ever and makes a file.
SCRIPT = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from holdfast_pipeline import sink as retained_format
from holdfast_pipeline import sink as stream_writer

folder, url = Path(sys.argv[1]), sys.argv[2]

class Held(stream_writer.RetainedStreamWriter):
    def _tell(self, rejects):
        (folder / "mark").touch()
        time.sleep(3600)

class HeldFormat(retained_format.RetainedFormat):
    def streamWriter(self, schema, overwrite):
        options = retained_format.Options(self.name(), self.options, stream_writer.STREAM_OPTIONS)
        return Held(options, schema, overwrite)

spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.dataSource.register(HeldFormat)
rows = spark.readStream.schema("topic string, payload string").json(str(folder / "rows"))
stream = rows.selectExpr("topic", "encode(payload, 'utf-8') AS payload").writeStream.format("retained")
stream = stream.option("storage", url).option("merge", "replace")
stream = stream.option("checkpointLocation", str(folder / "checkpoint"))
stream.trigger(availableNow=True).start().awaitTermination()
"""


def test_a_killed_stream_retains_its_batch_once(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    """kill -9 after the merge and before Spark notes the batch: the repeated batch does not undo later messages."""
    lines(tmp_path, "1.json", ("a", "1"), ("b", "1"))
    log = tmp_path / "driver.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path), filled.url],
            env=environment(PYSPARK_PYTHON=sys.executable), stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / "mark").exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "checkpoint" / "commits" / "0").exists()
    assert kept(spark, filled) == {"a": b"1", "b": b"1"}
    filled.put(message("a", b"later"))
    lines(tmp_path, "2.json", ("b", "2"))
    assert written(spark, filled, tmp_path, merge="replace").awaitTermination(120)
    assert kept(spark, filled) == {"a": b"later", "b": b"2"}
