"""Reading the tables the short way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from holdfast.pipeline.columns import RETAINED, struct_of
from holdfast.pipeline.problem import PipelineError
from holdfast.pipeline.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    known = {column.name: column for column in RETAINED}
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise PipelineError(f"there is no column {unknown[0]!r}; the columns are: {', '.join(known)}")
    wanted = struct_of([known[name] for name in columns or known])
    pushdown = spark.conf.get("spark.sql.python.filterPushdown.enabled", "false")
    reader = spark.read.format("retained").schema(wanted).options(**snapshot.options)
    reader = reader.option("as_of", snapshot.taken_at).option("pushdown", str(pushdown))
    if topic_filter:
        reader = reader.option("filter", topic_filter)
    return reader.option("partitions", partitions or parallelism(spark)).load()


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks a session runs at once."""
    said = spark.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    if said:
        return int(said)
    # The one way to ask that works everywhere, also where the session is in another process.
    return max(1, spark.range(4096).select(F.spark_partition_id()).distinct().count())
