"""DataFrames of the formats ``retained`` and ``retained_history``, with shorter calls than Spark's own readers have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import frozen
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StructField, StructType, TimestampType

from holdfast_pipeline.database.connection import Source
from holdfast_pipeline.database.history_range import telemetry_range
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.sources.columns import CHANGED, HISTORY, NOW, RETAINED, TELEMETRY, Column, named, struct_of
from holdfast_pipeline.sources.driver_reads import MOST_ROWS, read_here
from holdfast_pipeline.sources.history import HistorySource, TelemetrySource
from holdfast_pipeline.sources.lake import CHANGES, CURRENT, Lake, escaped
from holdfast_pipeline.sources.lake import TELEMETRY as TELEMETRY_TABLE
from holdfast_pipeline.sources.registration import register_once
from holdfast_pipeline.sources.retained import RetainedSource
from holdfast_pipeline.sources.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


def age() -> SparkColumn:
    """Return the age of a row's message at the time in the column :data:`NOW`: whole seconds, never negative."""
    return F.greatest(F.lit(0), F.floor((F.unix_millis(NOW) - F.unix_millis("stored_at")) / 1000)).cast("long")


@frozen
class ReadTable:
    """A table, and whether it ``is_small``: then the driver has read it."""

    frame: DataFrame
    is_small: bool


def read_retained(
    spark: SparkSession,
    snapshot: Snapshot,
    topic_filter: str = "",
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
    since: str | None = None,
) -> DataFrame:
    """Return the retained messages in a snapshot whose topics match a Topic Filter ("" for all topics).

    Only the named ``columns`` are read (by default all). ``partitions`` is the number of tasks: by default as many as
    the session runs at once, or none, since the driver reads small results itself, and so it reads all of an SQLite
    database (:mod:`.driver_reads`). With
    ``since``, a token of an earlier snapshot or a time, only what has changed since: then the first column is ``op``,
    "set" or "clear", and the last one ``changed_at``. Raises :class:`PipelineError`.
    """
    return _read_retained(spark, snapshot, topic_filter, columns, since, partitions).frame


def retained_table(
    spark: SparkSession,
    snapshot: Snapshot,
    topic_filter: str = "",
    columns: Sequence[str] | None = None,
    since: str | None = None,
) -> ReadTable:
    """Return the table of :func:`read_retained`, with the time of the snapshot in the column :data:`NOW`."""
    return _read_retained(spark, snapshot, topic_filter, columns, since, now=snapshot.taken_at)


def _read_retained(
    spark: SparkSession,
    snapshot: Snapshot,
    topic_filter: str,
    columns: Sequence[str] | None,
    since: str | None,
    partitions: int | None = None,
    now: int | None = None,
) -> ReadTable:
    known = _named(RETAINED if since is None else CHANGED, columns)
    if isinstance(snapshot.source, Lake):
        if since is not None:
            raise PipelineError(
                f"{snapshot.name}: a lake does not know what has changed since a token; read the database"
            )
        at = F.timestamp_millis(F.lit(snapshot.taken_at))
        alive = F.col("expires_at").isNull() | (F.col("expires_at") > at)
        return _read_lake(spark, snapshot.source, CURRENT, known, topic_filter, alive, now)
    options = {"expired_at": str(snapshot.taken_at), "filter": topic_filter}
    if since is not None:
        options["since"] = since
    options["pushdown"] = str(spark.conf.get("spark.sql.python.filterPushdown.enabled", "false"))
    total = snapshot.messages if since is None and not topic_filter else None
    with phase("reading", total) as reading:
        return _read(spark, RetainedSource, snapshot.source, options, known, partitions, now, reading.add)


def read_history(
    spark: SparkSession,
    source: Source | Lake,
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
    if isinstance(source, Lake):
        last = source.coverage.last_seq if to_seq is None else min(to_seq, source.coverage.last_seq)
        inside = F.col("seq").between(from_seq, last)
        frame = _read_lake(spark, source, CHANGES, _named(HISTORY, columns), topic_filter, inside).frame
        return newest_of(frame) if newest else frame
    options = {"from_seq": str(from_seq), "filter": topic_filter, "newest": str(newest).lower()}
    if to_seq is not None:
        options["to_seq"] = str(to_seq)
    return _read(spark, HistorySource, source, options, _named(HISTORY, columns), partitions).frame


def read_telemetry(
    spark: SparkSession,
    source: Source | Lake,
    to_seq: int,
    topic_filter: str = "",
    columns: Sequence[str] | None = None,
    partitions: int | None = None,
) -> DataFrame:
    """Return the recorded messages without RETAIN up to ``to_seq``; the other arguments are as for read_retained."""
    known = _named(TELEMETRY, columns)
    if isinstance(source, Lake):
        return _read_lake(spark, source, TELEMETRY_TABLE, known, topic_filter, F.col("seq") <= to_seq).frame
    options = {"filter": topic_filter, "to_seq": str(to_seq)}
    return _read(spark, TelemetrySource, source, options, known, partitions).frame


def last_of_telemetry(source: Source | Lake) -> int:
    """Return the position of the last recorded message. Raises :class:`PipelineError` for a lake without any."""
    if isinstance(source, Lake):
        return source.last_of(TELEMETRY_TABLE)
    with source.transaction() as transaction:
        return telemetry_range(transaction).last


def history_table(
    spark: SparkSession, snapshot: Snapshot, topic_filter: str, columns: Sequence[str], from_seq: int = 1
) -> ReadTable:
    """Return the entries of a snapshot's history from ``from_seq`` on, with the snapshot's time in :data:`NOW`."""
    if isinstance(snapshot.source, Lake):
        inside = F.col("seq").between(from_seq, snapshot.last_seq)
        known = _named(HISTORY, columns)
        return _read_lake(spark, snapshot.source, CHANGES, known, topic_filter, inside, snapshot.taken_at)
    options = {"from_seq": str(from_seq), "to_seq": str(snapshot.last_seq), "filter": topic_filter}
    return _read(spark, HistorySource, snapshot.source, options, _named(HISTORY, columns), now=snapshot.taken_at)


def newest_of(entries: DataFrame) -> DataFrame:
    """Return the last entry of each topic."""
    # The positions alone are shuffled first, so that no payload of an older entry is.
    places = entries.groupBy("topic").agg(F.max("seq").alias("seq")).select("seq")
    return entries.join(places, "seq", "left_semi")


def parallelism(spark: SparkSession) -> int:
    """Return the number of tasks that a session runs at once."""
    setting = spark.conf.get("spark.sql.leafNodeDefaultParallelism", None)
    if setting:
        return int(setting)
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except PySparkException:  # Spark Connect has no SparkContext: only a query tells
        return max(1, spark.range(4096).select(F.spark_partition_id()).distinct().count())


def _read(
    spark: SparkSession,
    format_: type[RetainedSource | HistorySource | TelemetrySource],
    source: Source,
    options: dict[str, str],
    columns: Sequence[Column],
    partitions: int | None = None,
    now: int | None = None,
    added: Callable[[int], None] = lambda _: None,
) -> ReadTable:
    """Read a table. ``now`` is in milliseconds since the epoch; ``added`` is told how many rows the driver has read.

    The time is a column, because Java compiles the code of a query anew if a literal in it is another one.
    """
    schema, held = struct_of(columns), source.held
    if partitions is None or held is not None:
        here = source if held is None else Source(source.url)
        reader: Any = format_({**options, **here.options}).reader(schema)
        reader.source = source
        found = read_here(reader, columns, now, None if held is None else held.folder, added=added)
        if isinstance(found, pa.Table):
            # One partition: Spark exchanges nothing to group its rows.
            frame = spark.createDataFrame(found).coalesce(1)
            return ReadTable(frame if partitions is None else frame.repartition(partitions), True)
        if found is not None:
            if now is not None:
                schema = StructType([*schema.fields, StructField(NOW, TimestampType(), True)])
            frame = spark.read.schema(schema).parquet(f"file://{escaped(str(found))}")
            return ReadTable(frame if partitions is None else frame.repartition(partitions), False)
        partitions = parallelism(spark)
    register_once(spark, format_)
    options = {**options, **source.options, "partitions": str(partitions)}
    frame = spark.read.format(format_.name()).schema(schema).options(**options).load()
    return ReadTable(frame if now is None else frame.withColumn(NOW, F.timestamp_millis(F.lit(now))), False)


def _read_lake(
    spark: SparkSession,
    lake: Lake,
    table: str,
    columns: Sequence[Column],
    topic_filter: str,
    where: SparkColumn,
    now: int | None = None,
) -> ReadTable:
    """Read a table of a lake. ``now`` is in milliseconds since the epoch."""
    frame = lake.read(spark, table, [column.name for column in columns], topic_filter, where)
    is_small = lake.rows(table) <= MOST_ROWS
    return ReadTable(frame if now is None else frame.withColumn(NOW, F.timestamp_millis(F.lit(now))), is_small)


def _named(all_columns: Sequence[Column], names: Sequence[str] | None) -> Sequence[Column]:
    return named(all_columns, names) if names else all_columns
