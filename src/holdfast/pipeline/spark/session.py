"""Prepares a session for the jobs: registers the formats, and sets a few settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.pipeline.sink.retained_format import RetainedFormat
from holdfast.pipeline.sources.file_check import FileCheckSource
from holdfast.pipeline.sources.files import FilesSource
from holdfast.pipeline.sources.history import HistorySource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The jobs rely on these settings. A running session accepts all of them.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # Other readers interpret Spark's older form of times (INT96) as local times.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A cached result then has as many partitions as its size needs, instead of 200.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}


def register(spark: SparkSession) -> None:
    """Make the formats ``retained``, ``retained_history`` and ``retained_files`` known to a session."""
    for source in (RetainedFormat, HistorySource, FilesSource, FileCheckSource):
        spark.dataSource.register(source)


def prepare(spark: SparkSession) -> None:
    """Register the formats, and set the settings of the jobs."""
    register(spark)
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)


def is_local(master: str) -> bool:
    """Tell whether a master runs its tasks in its own process."""
    return master == "local" or master.startswith("local[")
