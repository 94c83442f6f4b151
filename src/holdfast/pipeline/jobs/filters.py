"""What Topic Filters deliver: messages, bytes, and what their replays take by the settings of flow control."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from attrs import asdict, frozen
from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.filters.matching import matched
from holdfast.pipeline.filters.replay_cost import deliveries, expected, reads
from holdfast.pipeline.filters.requested import Asked, Questions, Refused, Replayed
from holdfast.pipeline.jobs import table
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.output.overwriting import vacate
from holdfast.pipeline.sources.tables import read_retained
from holdfast.retained.replay.flow_settings import FlowSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The columns of what is retained that this needs.
NEEDED = ("topic", "size")


@frozen
class Delivery:
    """What one Subscription to a Topic Filter is sent, and how.

    ``reads`` batches are read and ``slices`` delivered, at least; ``seconds`` is the least time the rates allow for a
    replay that runs alone, None without a rate.
    """

    topic_filter: str
    subscriptions: int
    replayed: Replayed
    messages: int
    bytes: int
    reads: int
    slices: int
    seconds: float | None


@frozen
class Deliveries:
    """What was found at ``taken_at`` (milliseconds since the epoch), the most bytes first; and what was refused."""

    taken_at: int
    deliveries: tuple[Delivery, ...]
    refused: tuple[Refused, ...]

    @property
    def subscriptions(self) -> int:
        """How many Subscriptions are meant."""
        return sum(one.subscriptions for one in self.deliveries)

    @property
    def messages(self) -> int:
        """Messages sent if all the Subscriptions were made."""
        return sum(one.messages * one.subscriptions for one in self.deliveries)

    @property
    def bytes(self) -> int:
        """Bytes of payload sent if all the Subscriptions were made."""
        return sum(one.bytes * one.subscriptions for one in self.deliveries)


def filters(
    spark: SparkSession,
    snapshot: Snapshot,
    questions: Questions,
    flow: FlowSettings,
    out: Folder | None = None,
    form: str = "parquet",
    overwrite: bool = False,
) -> Deliveries:
    """Tell what each Topic Filter that is asked about would deliver, also where that is nothing.

    With ``out``, it is written there as well. Raises :class:`PipelineError`.
    """
    if out is not None:
        vacate(out, overwrite)
    result = delivered(read_retained(spark, snapshot, columns=NEEDED), questions, flow, snapshot.taken_at)
    if out is not None:
        about = {"taken_at": result.taken_at, "filters": len(result.deliveries), "flow": asdict(flow)}
        table.write(_frame(spark, result.deliveries), out, form, about)
    return result


def delivered(retained: DataFrame, questions: Questions, flow: FlowSettings, taken_at: int) -> Deliveries:
    """Tell the same of a table with the columns :data:`NEEDED`."""
    replayed = [one.topic_filter for one in questions.asked if one.replayed is Replayed.YES]
    counted = matched(retained, replayed).groupBy("place").agg(F.count("*"), F.sum("size"))
    found = {replayed[row[0]]: (row[1], row[2]) for row in counted.collect()} if replayed else {}
    rows = [_delivery(one, *found.get(one.topic_filter, (0, 0)), flow) for one in questions.asked]
    rows.sort(key=lambda one: (-one.bytes, -one.messages, one.topic_filter))
    return Deliveries(taken_at, tuple(rows), questions.refused)


def _delivery(one: Asked, messages: int, size: int, flow: FlowSettings) -> Delivery:
    return Delivery(
        one.topic_filter, one.subscriptions, one.replayed, messages, size,
        reads(flow, messages, size), deliveries(flow, messages), expected(flow, messages),
    )  # fmt: skip


def _frame(spark: SparkSession, rows: Iterable[Delivery]) -> DataFrame:
    columns = ("topic_filter", "subscriptions", "replayed", "messages", "bytes", "reads", "slices", "seconds")
    kinds = {"topic_filter": pa.string(), "replayed": pa.string(), "seconds": pa.float64()}
    listed = list(rows)
    arrays = {name: pa.array([getattr(one, name) for one in listed], kinds.get(name, pa.int64())) for name in columns}
    return spark.createDataFrame(pa.table(arrays))
