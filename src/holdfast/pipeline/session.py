"""The Spark session of the jobs, and the registration of the sources. Which master it is, is never said here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.pipeline.files import FilesSource
from holdfast.pipeline.history import HistorySource
from holdfast.pipeline.retained import RetainedSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What the jobs rely on; all may be set while a session runs.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # What is kept in memory for several questions has as many parts as it needs, not 200.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}


def register(spark: SparkSession) -> None:
    """Make the formats ``retained``, ``retained_history`` and ``retained_files`` known to a session."""
    spark.dataSource.register(RetainedSource)
    spark.dataSource.register(HistorySource)
    spark.dataSource.register(FilesSource)


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Give a session as the environment says it should be, with the sources registered; one of our own is stopped."""
    # Spark's workers would run whatever "python3" is found first.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    spark = before or SparkSession.builder.appName(name).getOrCreate()
    try:
        prepare(spark)
        yield spark
    finally:
        if before is None:
            spark.stop()


def prepare(spark: SparkSession) -> None:
    """Register the sources, and set what the jobs rely on."""
    register(spark)
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)
