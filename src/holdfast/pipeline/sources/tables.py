"""Reading the tables the short way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it
from pyspark.sql.types import DateType

from holdfast.pipeline.archive.coverage import DATA
from holdfast.pipeline.database.connection import Source
from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.filters.patterns import pattern
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.sources.columns import HISTORY, RETAINED, Column, named, struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_retained(
    spark: SparkSession,
    snapshot: Snapshot,
    topic_filter: str = "",
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """Return what is retained in a snapshot, of the topics that match a Topic Filter ("" for all topics).

    ``columns`` are the names of those that are needed (all by default): no others are read. ``partitions`` is the
    number of tasks (by default as many as the session runs at once). Raises :class:`PipelineError`.
    """
    pushdown = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false")
    reader = spark.read.format("retained").schema(_named(RETAINED, columns)).options(**snapshot.options)
    reader = reader.option("as_of", snapshot.taken_at).option("pushdown", str(pushdown)).option("filter", topic_filter)
    return reader.option("partitions", partitions or parallelism(spark)).load()


def read_history(
    spark: SparkSession,
    source: Source,
    from_seq: int = 1,
    to_seq: int | None = None,
    topic_filter: str = "",
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    newest: bool = False,
) -> DataFrame:
    """Return the entries of the history from one place to another (all of them by default), both included.

    With ``newest``, of each topic only the last of these. The other arguments are as for :func:`read_retained`.
    """
    reader = spark.read.format("retained_history").schema(_named(HISTORY, columns)).options(**source.options)
    if to_seq is not None:
        reader = reader.option("to_seq", to_seq)
    reader = reader.option("from_seq", from_seq).option("filter", topic_filter).option("newest", str(newest).lower())
    return reader.option("partitions", partitions or parallelism(spark)).load()


def read_archive(spark: SparkSession, folder: Folder, topic_filter: str = "") -> DataFrame:
    """Return the entries in an archive of the history, compacted or not, with the ``date`` of each.

    The other argument is as for :func:`read_retained`.
    """
    schema = struct_of(HISTORY).add("date", DateType())
    frame = spark.read.schema(schema).parquet(folder.below(DATA))
    return frame.where(F.col("topic").rlike(rf"\A(?:{pattern(topic_filter)})\z")) if topic_filter else frame


def _named(all_columns: Sequence[Column], names: Sequence[str] | None) -> StructType:
    return struct_of(named(all_columns, names) if names else all_columns)


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks a session runs at once."""
    said = spark.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    if said:
        return int(said)
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except PySparkException:  # the session is in another process: there, only a query tells
        return max(1, spark.range(4096).select(F.spark_partition_id()).distinct().count())
