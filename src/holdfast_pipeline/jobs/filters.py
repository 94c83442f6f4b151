"""Compute the deliveries of Topic Filters: messages, bytes, and the cost of the replays under flow control."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import asdict
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.retained.api import FlowSettings
from holdfast_pipeline.database.snapshot import Snapshot
from holdfast_pipeline.filters.deliveries import FilterDeliveries, FilterDelivery, delivery_of
from holdfast_pipeline.filters.matching import matched
from holdfast_pipeline.filters.requested_filters import Replayed, RequestedFilters
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.overwriting import begin_overwriting
from holdfast_pipeline.output.table_files import write_table
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.sources.tables import read_retained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns of the retained messages that this needs.
NEEDED = ("topic", "size")


def filters(
    spark: SparkSession,
    snapshot: Snapshot,
    requested: RequestedFilters,
    flow: FlowSettings,
    out: Folder | None = None,
    form: str = "parquet",
    overwrite: bool = False,
) -> FilterDeliveries:
    """Return the delivery of each requested Topic Filter, also of filters without a match.

    With ``out``, write them there, too. Raises :class:`PipelineError`.
    """
    if out is not None:
        begin_overwriting(out, overwrite)
    with phase("matching", snapshot.messages):
        result = delivered(read_retained(spark, snapshot, columns=NEEDED), requested, flow, snapshot.taken_at)
    if out is not None:
        about = {"taken_at": result.taken_at, "filters": len(result.deliveries), "flow": asdict(flow)}
        write_table(_frame(spark, result.deliveries), out, form, about)
    return result


def delivered(retained: DataFrame, requested: RequestedFilters, flow: FlowSettings, taken_at: int) -> FilterDeliveries:
    """Return the deliveries from a table with the columns :data:`NEEDED`."""
    replayed = [one.topic_filter for one in requested.filters if one.replayed is Replayed.YES]
    counted = matched(retained, replayed).groupBy("place").agg(F.count("*"), F.sum("size"))
    found = {replayed[row[0]]: (row[1], row[2]) for row in counted.collect()} if replayed else {}
    rows = [delivery_of(one, *found.get(one.topic_filter, (0, 0)), flow) for one in requested.filters]
    rows.sort(key=lambda one: (-one.bytes, -one.messages, one.topic_filter))
    return FilterDeliveries(taken_at, tuple(rows), requested.refused)


def _frame(spark: SparkSession, rows: Iterable[FilterDelivery]) -> DataFrame:
    columns = ("topic_filter", "subscriptions", "replayed", "messages", "bytes", "reads", "slices", "seconds")
    kinds = {"topic_filter": pa.string(), "replayed": pa.string(), "seconds": pa.float64()}
    listed = list(rows)
    arrays = {name: pa.array([getattr(one, name) for one in listed], kinds.get(name, pa.int64())) for name in columns}
    return spark.createDataFrame(pa.table(arrays))
