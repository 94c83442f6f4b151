"""Compute the deliveries of Topic Filters: messages, bytes, and the cost of the replays under flow control."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.retained.api import FlowSettings
from holdfast_pipeline.filters.deliveries import FilterDeliveries, delivery_of
from holdfast_pipeline.filters.matching import matched
from holdfast_pipeline.filters.requested_filters import Replayed, RequestedFilters
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import read_retained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns of the retained messages that this needs.
NEEDED = ("topic", "size")


def filters(
    spark: SparkSession, snapshot: Snapshot, requested: RequestedFilters, flow: FlowSettings
) -> FilterDeliveries:
    """Return the delivery of each requested Topic Filter, also of filters without a match.

    Raises :class:`PipelineError`.
    """
    with phase("matching", snapshot.messages):
        return delivered(read_retained(spark, snapshot, columns=NEEDED), requested, flow, snapshot.taken_at)


def delivered(retained: DataFrame, requested: RequestedFilters, flow: FlowSettings, taken_at: int) -> FilterDeliveries:
    """Return the deliveries from a table with the columns :data:`NEEDED`."""
    replayed = [one.topic_filter for one in requested.filters if one.replayed is Replayed.YES]
    counted = matched(retained, replayed).groupBy("place").agg(F.count("*"), F.sum("size"))
    found = {replayed[row[0]]: (row[1], row[2]) for row in counted.collect()} if replayed else {}
    rows = [delivery_of(one, *found.get(one.topic_filter, (0, 0)), flow) for one in requested.filters]
    rows.sort(key=lambda one: (-one.bytes, -one.messages, one.topic_filter))
    return FilterDeliveries(taken_at, tuple(rows), requested.refused)
