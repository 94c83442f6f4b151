"""Compute the figures of a report: shapes, sizes, ages, publishers and expiry of messages, and the cost of replays.

The retained messages are read once and kept, with their payloads, because some twenty queries follow. Spark may put
them on its local disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.pipeline.choices import PAGES
from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.filters.requested_filters import RequestedFilters
from holdfast.pipeline.jobs.discovery import discover
from holdfast.pipeline.jobs.filters import delivered
from holdfast.pipeline.jobs.history_figures import history_of
from holdfast.pipeline.jobs.shape_details import details_of
from holdfast.pipeline.jobs.shape_numbers import shape_numbers
from holdfast.pipeline.jobs.shapes import read_shaped, shapes_of
from holdfast.pipeline.jobs.topic_changes import topic_changes
from holdfast.pipeline.jobs.tree import branches
from holdfast.pipeline.progress.phases import phase
from holdfast.pipeline.report.figures import (
    AGE_BANDS,
    DAYS,
    HOURS,
    BandTotals,
    Expiry,
    Figures,
    NamedTotals,
    PrefixTotals,
    ReportedMessage,
    ReportTotals,
)
from holdfast.pipeline.shapes.patterns import Patterns
from holdfast.retained.replay.flow_settings import FlowSettings
from holdfast.storage.url import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, Row, SparkSession

#: A prefix is drawn when it has this share of all messages or of all bytes. So each level has at most 800 of them.
_DRAWN = 1 / 400
#: Rows of a list.
_LISTED = 12
_HOUR = 3_600
#: Stale prefixes from which the listed ones are chosen: most of them are below others.
_CANDIDATES = 500


def report(
    spark: SparkSession,
    snapshot: Snapshot,
    flow: FlowSettings,
    requested: RequestedFilters | None = None,
    depth: int = 5,
    stale_after: int = 30 * 86_400,
    pages: int = PAGES,
) -> Figures:
    """Return the figures of a report. Prefixes have up to ``depth`` levels; ``stale_after`` is in seconds.
    ``pages`` shapes, those with the most messages, have details.

    Raises :class:`PipelineError`.
    """
    taken_at = snapshot.taken_at
    age = F.greatest(F.lit(0), F.floor((F.lit(taken_at) - F.unix_millis("stored_at")) / 1000)).alias("age")
    left = F.floor((F.unix_millis("expires_at") - F.lit(taken_at)) / 1000).alias("left")
    kept = read_shaped(spark, snapshot).select("*", age, left).persist()
    try:
        with phase("reading", snapshot.messages):
            totals = _totals(kept, stale_after)
        tree = branches(kept, depth, taken_at).persist()
        try:
            with phase("counting prefixes"):
                drawn, stale = _drawn(tree, totals), _stale(tree, stale_after)
        finally:
            tree.unpersist()
        with (
            topic_changes(spark, snapshot) as changes,
            shapes_of(snapshot, kept, Patterns(), changes, totals.messages) as shaped,
            shape_numbers(shaped.messages) as numbers,
        ):
            discovered = discover(shaped, numbers)
            with phase("counting changes"):
                history = None if changes is None else history_of(snapshot, changes)
            with phase("looking at values"):
                with_pages = [one.shape for one in shaped.found.shapes[:pages]]
                details = details_of(spark, snapshot, shaped, numbers, with_pages, history)
        with phase("counting sizes and ages"):
            sizes, ages, expiry = _bands(kept)
            largest, oldest = _ends(kept)
            clients = _clients(kept)
        return Figures(
            database=shown(snapshot.source.url),
            taken_at=taken_at,
            stale_after=stale_after,
            totals=totals,
            shapes=shaped.found,
            details=details,
            branches=drawn,
            stale=stale,
            sizes=sizes,
            ages=ages,
            largest=largest,
            oldest=oldest,
            clients=clients,
            expiry=expiry,
            flow=flow,
            deliveries=None if requested is None else delivered(kept, requested, flow, taken_at),
            history=history,
            discovered=discovered,
        )
    finally:
        kept.unpersist()


def _totals(kept: DataFrame, stale_after: int) -> ReportTotals:
    stale = F.col("age") >= stale_after
    lasting = stale & F.col("expires_at").isNull()
    row = kept.agg(
        F.count("*"),
        _sum("size"),
        F.coalesce(F.max("size"), F.lit(0)),
        F.count_distinct("client_id"),
        F.coalesce(F.percentile_approx("age", 0.5), F.lit(0)),
        F.count("expires_at"),
        F.count_if(stale),
        _sum(F.when(stale, F.col("size"))),
        F.count_if(lasting),
        _sum(F.when(lasting, F.col("size"))),
    ).collect()[0]
    return ReportTotals(*row)


def _drawn(tree: DataFrame, totals: ReportTotals) -> tuple[PrefixTotals, ...]:
    large = (F.col("messages") >= totals.messages * _DRAWN) | (F.col("bytes") >= totals.bytes * _DRAWN)
    return tuple(PrefixTotals(**row.asDict()) for row in tree.where(large).orderBy("depth", "prefix").collect())


def _stale(tree: DataFrame, stale_after: int) -> tuple[PrefixTotals, ...]:
    found = tree.where(F.col("newest_age") >= stale_after)
    rows = found.orderBy(F.desc("messages"), "depth", "prefix").limit(_CANDIDATES).collect()
    named = {row.prefix for row in rows}
    # If a prefix is stale, all prefixes below it are stale, too: the list has only the highest one.
    highest = [row for row in rows if row.depth == 1 or row.prefix.rpartition("/")[0] not in named]
    return tuple(PrefixTotals(**row.asDict()) for row in highest[:_LISTED])


def _bands(kept: DataFrame) -> tuple[tuple[BandTotals, ...], tuple[BandTotals, ...], Expiry]:
    """Count the messages of each size and of each age, and those that expire in each of the next hours, on each of the
    next days, later, and never: all in one pass, since the driver can add some thousands of rows.
    """
    # A size belongs to the next power of two: 5 to 8 bytes have the key 3.
    size = F.ceil(F.log2(F.greatest(F.col("size"), F.lit(1)))).cast("int").alias("size_key")
    # The number of the last band whose age has been reached.
    age = F.size(F.filter(F.array(*(F.lit(at) for at, _ in AGE_BANDS)), lambda at: at <= F.col("age"))) - 1
    hour, day = F.floor(F.col("left") / _HOUR), F.floor(F.col("left") / (24 * _HOUR))
    found = kept.groupBy(
        size,
        age.cast("int").alias("age_key"),
        F.when(hour < HOURS, hour).cast("int").alias("hour"),
        F.when(day >= DAYS, F.lit(DAYS)).otherwise(day).cast("int").alias("day"),
    ).agg(F.count("*").alias("messages"), _sum("size").alias("bytes"))
    rows = found.collect()
    hours, days, never = [0] * HOURS, [0] * (DAYS + 1), 0
    for row in rows:
        if row.day is None:
            never += row.messages
        else:
            days[row.day] += row.messages
        if row.hour is not None:
            hours[row.hour] += row.messages
    return (
        _added(rows, "size_key"),
        _added(rows, "age_key"),
        Expiry(tuple(hours), tuple(days[:DAYS]), days[DAYS], never),
    )


def _added(rows: Iterable[Row], key: str) -> tuple[BandTotals, ...]:
    """Add the rows of each key, in its order."""
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        messages, bytes_ = found.get(row[key], (0, 0))
        found[row[key]] = messages + row.messages, bytes_ + row.bytes
    return tuple(BandTotals(place, *found[place]) for place in sorted(found))


def _ends(kept: DataFrame) -> tuple[tuple[ReportedMessage, ...], tuple[ReportedMessage, ...]]:
    """Return the largest messages, and the oldest ones."""
    one = F.struct("topic", "client_id", F.col("size").alias("bytes"), F.unix_millis("stored_at").alias("at"))
    row = kept.agg(
        F.min_by(one, F.struct(-F.col("size"), "topic"), _LISTED).alias("largest"),
        F.min_by(one, F.struct("stored_at", "topic"), _LISTED).alias("oldest"),
    ).collect()[0]
    largest, oldest = (tuple(ReportedMessage(**each.asDict()) for each in found or ()) for found in row)
    return largest, oldest


def _clients(kept: DataFrame) -> tuple[NamedTotals, ...]:
    found = kept.groupBy(F.col("client_id").alias("name")).agg(
        F.count("*").alias("messages"), _sum("size").alias("bytes")
    )
    rows = found.orderBy(F.desc("messages"), "name").limit(_LISTED).collect()
    return tuple(NamedTotals(**row.asDict()) for row in rows)


def _sum(column: Any) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))
