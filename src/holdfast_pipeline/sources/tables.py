"""DataFrames of the formats, with shorter calls than Spark's own readers have."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from attrs import frozen
from pyarrow.parquet import ParquetWriter
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import StructField, StructType, TimestampType

from holdfast_pipeline.database import Source, telemetry_range
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.progress import phase
from holdfast_pipeline.sources.columns import (
    CHANGED,
    HISTORY,
    NOW,
    RETAINED,
    TELEMETRY,
    TIME,
    Column,
    arrow_schema,
    named,
    struct_of,
)
from holdfast_pipeline.sources.history import HistorySource, TelemetrySource
from holdfast_pipeline.sources.lake import CHANGES, CURRENT, Lake, escaped
from holdfast_pipeline.sources.lake import TELEMETRY as TELEMETRY_TABLE
from holdfast_pipeline.sources.options import register_once
from holdfast_pipeline.sources.retained import RetainedSource
from holdfast_pipeline.sources.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession


# Results that the driver reads itself: small ones, and all of an SQLite database.
#
# To read with a format, Spark plans in one Python process and reads in others. Their start takes seconds, whatever
# the size. So the driver reads a result that is small as a format's reader would, and hands it over as one Arrow
# table.
#
# Larger results of an SQLite database are read by the driver too, since a transaction belongs to one process. It
# writes them to a Parquet file, which Spark's tasks read without Python. Their row groups are of limited size, so
# that several tasks share the file, and so that the driver needs little memory.

#: A result with more rows or more bytes is not small. So many are read before that is known.
MOST_ROWS = 50_000
MOST_BYTES = 16 << 20
#: A row group ends at this many rows, or bytes.
_GROUP_ROWS, _GROUP_BYTES = 100_000, 32 << 20


class TableReader(Protocol):
    """A reader of a format, for a table."""

    def partitions(self) -> Sequence[Any]:
        """Divide the result."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read a part."""


def read_here(
    reader: TableReader,
    columns: Sequence[Column],
    now: int | None = None,
    folder: Path | None = None,
    most_rows: int = MOST_ROWS,
    most_bytes: int = MOST_BYTES,
    added: Callable[[int], None] = lambda _: None,
) -> pa.Table | Path | None:
    """Return the result of a reader of these columns: a table if it is small, else the path of a file in ``folder``.

    None if it is not small and there is no folder. With ``now`` (milliseconds since the epoch), the result has this
    time in the column :data:`NOW`. ``added`` is told how many rows have been written to the file.
    """
    found: list[pa.RecordBatch] = []
    rows = size = 0
    schema = arrow_schema(columns)
    if now is not None:
        schema = schema.append(pa.field(NOW, TIME))
    with closing(_batches(reader, now)) as batches:
        for batch in batches:
            rows += batch.num_rows
            size += batch.nbytes
            found.append(batch)
            if rows > most_rows or size > most_bytes:
                break
        else:
            return pa.Table.from_batches(found, schema)
        return None if folder is None else _written(chain(found, batches), schema, folder, added)


def rows_here(snapshot: Snapshot, columns: Sequence[str], most_rows: int, most_bytes: int) -> pa.Table | None:
    """Return the retained messages of an SQLite database, in the order of the bytes of their topics.

    None for another snapshot, for more rows than ``most_rows``, or for more bytes. Raises :class:`PipelineError`.
    """
    source = snapshot.source
    if isinstance(source, Lake) or source.held is None or snapshot.messages > most_rows:
        return None
    known = named(RETAINED, columns)
    reader: Any = RetainedSource({**Source(source.url).options, "expired_at": str(snapshot.taken_at)}).reader(
        struct_of(known)
    )
    reader.source = source
    found = read_here(reader, known, None, None, most_rows, most_bytes)
    return found if isinstance(found, pa.Table) else None


def _batches(reader: TableReader, now: int | None) -> Generator[pa.RecordBatch, None, None]:
    for partition in reader.partitions():
        with closing(reader.read(partition)) as batches:  # type: ignore[type-var]  # readers are generators
            for batch in batches:
                yield batch if now is None else _with_time(batch, now)


def _with_time(batch: pa.RecordBatch, now: int) -> pa.RecordBatch:
    times = pa.repeat(pa.scalar(now * 1000, pa.int64()), batch.num_rows).cast(TIME)
    return batch.append_column(NOW, times)


def _written(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, folder: Path, added: Callable[[int], None]
) -> Path:  # fmt: skip
    try:
        number, path = mkstemp(prefix="rows-", suffix=".parquet", dir=folder)
        with open(number, "wb") as file, ParquetWriter(file, schema) as writer:
            for group in _groups(batches, schema):
                writer.write_table(group)
                added(group.num_rows)
    except OSError as error:
        raise PipelineError(
            f"{folder}: the rows of the database cannot be written there ({error.strerror or error}); "
            "name a folder with enough space (--snapshot-dir)"
        ) from error
    return Path(path)


def _groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(group, schema)
            group, rows, size = [], 0, 0
    if group:
        yield pa.Table.from_batches(group, schema)


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
    database. With ``since``, a token of an earlier snapshot or a time, only what has changed since: then the first
    column is ``op``, "set" or "clear", and the last one ``changed_at``. Raises :class:`PipelineError`.
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
