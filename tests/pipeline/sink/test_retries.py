"""A task that fails after it has staged its rows, and is repeated, adds no row twice."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.pipeline.commands import environment
from tests.pipeline.stores import Filled

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Writes through a sink whose first attempts fail when all is staged; three attempts are allowed.
SCRIPT = """
import sys
from pyspark import TaskContext
from pyspark.sql import SparkSession
from holdfast_pipeline.sources.options import Options
from holdfast_pipeline.sources.retained import RetainedSource
from holdfast_pipeline.sink import OPTIONS, RetainedWriter

class FlakyWriter(RetainedWriter):
    def write(self, iterator):
        staged = super().write(iterator)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("after staging")
        return staged

class FlakySource(RetainedSource):
    @classmethod
    def name(cls):
        return "flaky"
    def writer(self, schema, overwrite):
        return FlakyWriter(Options("flaky", self.options, OPTIONS), schema, overwrite)

spark = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(FlakySource)
frame = spark.range(0, 1000, 1, 2).selectExpr("concat('t/', id) as topic", "encode(id, 'utf-8') as payload")
frame.write.format("flaky").mode("append").option("storage", sys.argv[1]).option("job", "flaky").save()
spark.stop()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("filled", ["sqlite", "postgresql"], indirect=True)
def test_a_task_that_fails_after_staging_and_is_tried_again_counts_once(filled: Filled) -> None:
    """The rows of its first attempt are never merged."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, filled.url], env=environment(PYSPARK_PYTHON=sys.executable), capture_output=True,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "after staging" in done.stderr
    with filled.store() as store:
        assert store.statistics().count == 1000
