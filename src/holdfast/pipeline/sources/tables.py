"""DataFrames of the formats ``retained`` and ``retained_history``, with shorter calls than Spark's own readers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from holdfast.pipeline.database.connection import Source
from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.sources.columns import CHANGED, HISTORY, RETAINED, Column, named, struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def read_retained(
    spark: SparkSession,
    snapshot: Snapshot,
    topic_filter: str = "",
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    since: str | None = None,
) -> DataFrame:
    """Return the retained messages in a snapshot whose topics match a Topic Filter ("" for all topics).

    Only the named ``columns`` are read (by default all). ``partitions`` is the number of tasks (by default as many as
    the session runs at once). With ``since``, a token of an earlier snapshot or a time, only what has changed since:
    then the first column is ``op``, "set" or "clear", and the last one ``changed_at``. Raises :class:`PipelineError`.
    """
    pushdown = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false")
    known = RETAINED if since is None else CHANGED
    reader = spark.read.format("retained").schema(_named(known, columns)).options(**snapshot.options)
    if since is not None:
        reader = reader.option("since", since)
    reader = (
        reader.option("expired_at", snapshot.taken_at).option("pushdown", str(pushdown)).option("filter", topic_filter)
    )
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
    """Return the entries of the history from ``from_seq`` to ``to_seq``, both included (by default all entries).

    With ``newest``, only the last of these entries for each topic. The other arguments are those of
    :func:`read_retained`.
    """
    reader = spark.read.format("retained_history").schema(_named(HISTORY, columns)).options(**source.options)
    if to_seq is not None:
        reader = reader.option("to_seq", to_seq)
    reader = reader.option("from_seq", from_seq).option("filter", topic_filter).option("newest", str(newest).lower())
    return reader.option("partitions", partitions or parallelism(spark)).load()


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs at once."""
    setting = spark.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    if setting:
        return int(setting)
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect has no SparkContext: only a query tells
        return max(1, spark.range(4096).select(F.spark_partition_id()).distinct().count())


def _named(all_columns: Sequence[Column], names: Sequence[str] | None) -> StructType:
    return struct_of(named(all_columns, names) if names else all_columns)
