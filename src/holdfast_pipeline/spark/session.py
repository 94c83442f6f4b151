"""Prepares a session: sets a few settings for the jobs, and registers the formats for users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_pipeline.sink.retained_format import RetainedFormat
from holdfast_pipeline.sources.file_check import FileCheckSource
from holdfast_pipeline.sources.files import FilesSource
from holdfast_pipeline.sources.history import HistorySource, TelemetrySource
from holdfast_pipeline.sources.registration import register_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Without it, Spark refuses to read a format that lets the database evaluate conditions.
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
#: The jobs rely on these settings. A running session accepts all of them.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    _PUSHDOWN: "true",
    # Other readers interpret Spark's older form of times (INT96) as local times.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A cached result then has as many partitions as its size needs, instead of 200.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # Otherwise Spark keeps a table by a copy of the session, which it never closes: a server would keep the rows that
    # commands have sent.
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
}

#: A small input is in one task. Then nothing is exchanged among tasks, and the few exchanges left need no second plan.
#: Its groups fit into memory: beyond 128 of them, Spark would sort the rows for some functions. A kept table is not
#: compressed. Compiled code computes the columns of the driver's rows, rather than the optimiser of queries.
_SMALL_SETTINGS = {
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "300000",
}
_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_LOCAL_ROWS = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"


def register(spark: SparkSession) -> None:
    """Make the formats ``retained``, ``retained_history`` and ``retained_files`` known to a session.

    It also lets formats evaluate conditions in the database (``spark.sql.python.filterPushdown.enabled``), and has the
    workers use the Python of this process, if no setting names another one (:mod:`..sources.registration`).
    """
    spark.conf.set(_PUSHDOWN, "true")
    for source in (RetainedFormat, HistorySource, TelemetrySource, FilesSource, FileCheckSource):
        register_once(spark, source)


def prepare(spark: SparkSession, is_small: bool = False) -> None:
    """Set the settings of the jobs, for a small input if it ``is_small``. They register the formats that they use."""
    settings = dict(_SETTINGS)
    if is_small:
        excluded = spark.conf.get(_EXCLUDED_RULES, None)
        settings |= {**_SMALL_SETTINGS, _EXCLUDED_RULES: f"{excluded},{_LOCAL_ROWS}" if excluded else _LOCAL_ROWS}
    for key, value in settings.items():
        spark.conf.set(key, value)


def is_local(master: str) -> bool:
    """Tell whether a master runs its tasks in its own process."""
    return master == "local" or master.startswith("local[")
