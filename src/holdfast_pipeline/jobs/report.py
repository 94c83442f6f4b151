"""The figures of a report, and of its parts: the tree of topics, the shapes, the deliveries of Topic Filters.

The retained messages are read once and kept, with their payloads, because a dozen queries follow. Spark may put them on
its local disk. Queries that need no shapes run beside the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import fields, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.core.messages import STALE_AFTER
from holdfast.retained.api import FlowSettings
from holdfast_pipeline.analysis.history import TopicChanges, history_of, topic_changes
from holdfast_pipeline.analysis.messages import NEEDED_BY_BRANCHES, KeptTable, branches, kept_messages, totals_of
from holdfast_pipeline.analysis.prefixes import MOST_BYTES, MOST_ROWS, count_prefixes
from holdfast_pipeline.analysis.shape_details import details_of
from holdfast_pipeline.analysis.shapes import shapes_of
from holdfast_pipeline.choices import PAGES, TREE_ORDERS
from holdfast_pipeline.filters import FilterDeliveries, Replayed, RequestedFilters, delivery_of, matched
from holdfast_pipeline.judging.discovery import discover
from holdfast_pipeline.progress import Background, entered, phase
from holdfast_pipeline.report.figures import (
    AGE_BANDS,
    DAYS,
    HOURS,
    BandTotals,
    Expiry,
    Figures,
    History,
    NamedTotals,
    PrefixTotals,
    ReportedMessage,
    ReportTotals,
)
from holdfast_pipeline.shapes import Patterns, ShapesFound
from holdfast_pipeline.sources.columns import NOW
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import age, read_retained, retained_table, rows_here

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, Row, SparkSession


# Compute the deliveries of Topic Filters: messages, bytes, and the cost of the replays under flow control.

#: The columns of the retained messages that this needs.
NEEDED_BY_DELIVERIES = ("topic", "size")


def filters(
    spark: SparkSession, snapshot: Snapshot, requested: RequestedFilters, flow: FlowSettings
) -> FilterDeliveries:
    """Return the delivery of each requested Topic Filter, also of filters without a match.

    Raises :class:`PipelineError`.
    """
    with phase("matching", snapshot.messages):
        retained = read_retained(spark, snapshot, columns=NEEDED_BY_DELIVERIES)
        return delivered(retained, requested, flow, snapshot.taken_at)


def delivered(retained: DataFrame, requested: RequestedFilters, flow: FlowSettings, taken_at: int) -> FilterDeliveries:
    """Return the deliveries from a table with the columns :data:`NEEDED_BY_DELIVERIES`."""
    replayed = [one.topic_filter for one in requested.filters if one.replayed is Replayed.YES]
    counted = matched(retained, replayed).groupBy("place").agg(F.count("*"), F.sum("size"))
    found = {replayed[row[0]]: (row[1], row[2]) for row in counted.collect()} if replayed else {}
    rows = [delivery_of(one, *found.get(one.topic_filter, (0, 0)), flow) for one in requested.filters]
    rows.sort(key=lambda one: (-one.bytes, -one.messages, one.topic_filter))
    return FilterDeliveries(taken_at, tuple(rows), requested.refused)


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
    given: Patterns | None = None,
    depth: int = 5,
    stale_after: int = STALE_AFTER,
    pages: int = PAGES,
) -> Figures:
    """Return the figures of a report. Prefixes have up to ``depth`` levels; ``stale_after`` is in seconds.
    ``pages`` shapes, those with the most messages, have details. Shapes that are ``given`` are not looked for.

    Raises :class:`PipelineError`.
    """
    known = Patterns() if given is None else given
    with (
        entered(topic_changes(spark, snapshot)) as changes,
        kept_messages(spark, snapshot) as messages,
    ):
        work = Background(lambda: _without_shapes(messages, depth, stale_after))
        past = Background(lambda: _history(snapshot, changes.result()))
        with shapes_of(snapshot, messages, known, changes.result, finds_numbers=True) as shaped:
            discovered = discover(snapshot, shaped)
            with phase("counting sizes, ages, prefixes and changes"):
                others, history = work.result(), past.result()
            with phase("looking at values"):
                with_pages = [one.shape for one in shaped.found.shapes[:pages]]
                details = details_of(spark, snapshot, shaped, with_pages, history)
        deliveries = None if requested is None else delivered(messages.frame, requested, flow, snapshot.taken_at)
    return Figures(
        database=snapshot.name,
        taken_at=snapshot.taken_at,
        stale_after=stale_after,
        shapes=shaped.found,
        details=details,
        flow=flow,
        deliveries=deliveries,
        history=history,
        discovered=discovered,
        **others,
    )


def _history(snapshot: Snapshot, changes: TopicChanges | None) -> History | None:
    return None if changes is None else history_of(snapshot, changes)


def _without_shapes(messages: KeptTable, depth: int, stale_after: int) -> dict[str, Any]:
    """Return the figures that need neither shapes nor the history, by their names in :class:`Figures`."""
    left = F.floor((F.unix_millis("expires_at") - F.unix_millis(NOW)) / 1000).alias("left")
    kept = messages.frame.select("*", age().alias("age"), left)
    bands = Background(lambda: _bands(kept))
    number, clients = _clients(kept)
    totals, largest, oldest = _whole(kept, stale_after, number)
    drawn, stale = _prefixes(messages, depth, totals, stale_after)
    sizes, ages, expiry = bands.result()
    return {
        "totals": totals,
        "largest": largest,
        "oldest": oldest,
        "clients": clients,
        "branches": drawn,
        "stale": stale,
        "sizes": sizes,
        "ages": ages,
        "expiry": expiry,
    }


def _whole(
    kept: DataFrame, stale_after: int, clients: int
) -> tuple[ReportTotals, tuple[ReportedMessage, ...], tuple[ReportedMessage, ...]]:
    """Return the totals, the largest messages, and the oldest ones."""
    stale = F.col("age") > stale_after
    lasting = stale & F.col("expires_at").isNull()
    one = F.struct("topic", "client_id", F.col("size").alias("bytes"), F.unix_millis("stored_at").alias("at"))
    row = (
        kept.agg(
            F.count("*").alias("messages"),
            _sum("size").alias("bytes"),
            F.coalesce(F.max("size"), F.lit(0)).alias("largest"),
            F.coalesce(F.percentile_approx("age", 0.5), F.lit(0)).alias("median_age"),
            F.count("expires_at").alias("expiring"),
            F.count_if(stale).alias("stale"),
            _sum(F.when(stale, F.col("size"))).alias("stale_bytes"),
            F.count_if(lasting).alias("lasting"),
            _sum(F.when(lasting, F.col("size"))).alias("lasting_bytes"),
            F.min_by(one, F.struct(-F.col("size"), "topic"), _LISTED).alias("largest_ones"),
            F.min_by(one, F.struct("stored_at", "topic"), _LISTED).alias("oldest_ones"),
        )
        .collect()[0]
        .asDict()
    )
    largest, oldest = (
        tuple(ReportedMessage(**each.asDict()) for each in row.pop(name) or ())
        for name in ("largest_ones", "oldest_ones")
    )
    return ReportTotals(clients=clients, **row), largest, oldest


def _prefixes(
    messages: KeptTable, depth: int, totals: ReportTotals, stale_after: int
) -> tuple[tuple[PrefixTotals, ...], tuple[PrefixTotals, ...]]:
    """Return the prefixes that are drawn, and the stale ones."""
    large = (F.col("messages") >= totals.messages * _DRAWN) | (F.col("bytes") >= totals.bytes * _DRAWN)
    one = F.struct(*(each.name for each in fields(PrefixTotals)))
    order = F.when(F.col("newest_age") > stale_after, F.struct(-F.col("messages"), "depth", "prefix"))
    tree = branches(messages.frame, depth, with_medians=messages.rows is not None)
    row = tree.agg(
        F.collect_list(F.when(large, one)).alias("drawn"), F.min_by(one, order, _CANDIDATES).alias("stale")
    ).collect()[0]
    named = {each.prefix for each in row.stale or ()}
    # If a prefix is stale, all prefixes below it are stale, too: the list has only the highest one.
    highest = [each for each in row.stale or () if each.depth == 1 or each.prefix.rpartition("/")[0] not in named]
    drawn = sorted(row.drawn, key=lambda each: (each.depth, each.prefix))
    found = totals_of(messages.frame, [*drawn, *highest[:_LISTED]])
    return found[: len(drawn)], found[len(drawn) :]


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


def _clients(kept: DataFrame) -> tuple[int, tuple[NamedTotals, ...]]:
    """Return the number of publishers, and the totals of those with the most messages."""
    counted = kept.groupBy(F.col("client_id").alias("name")).agg(
        F.count("*").alias("messages"), _sum("size").alias("bytes")
    )
    order = F.struct(-F.col("messages"), "name")
    row = counted.agg(
        F.count("name").alias("number"),
        F.min_by(F.struct("name", "messages", "bytes"), order, _LISTED).alias("listed"),
    ).collect()[0]
    return row.number, tuple(NamedTotals(**each.asDict()) for each in row.listed or ())


def _sum(column: Any) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))


# Compute the tree of topics: the retained messages below each prefix, their ages and their expiry.


@frozen
class Tree:
    """The tree at ``taken_at`` (milliseconds since the epoch): some ``branches`` of all ``prefixes``."""

    taken_at: int
    depth: int
    messages: int
    bytes: int
    prefixes: int
    branches: tuple[PrefixTotals, ...]


def tree_here(snapshot: Snapshot, depth: int = 3, top: int = 30, order: str = "messages") -> Tree | None:
    """Return what :func:`tree` does, without Spark; None if the snapshot is of no SQLite database, or a large one."""
    with phase("counting", snapshot.messages):
        rows = rows_here(snapshot, NEEDED_BY_BRANCHES, MOST_ROWS, MOST_BYTES)
        if rows is None:
            return None
        whole = count_prefixes(rows, snapshot.taken_at, depth, top, order)
    return Tree(snapshot.taken_at, depth, whole.messages, whole.bytes, whole.prefixes, whole.leading)


def tree(spark: SparkSession, snapshot: Snapshot, depth: int = 3, top: int = 30, order: str = "messages") -> Tree:
    """Count the retained messages below each prefix of 1 to ``depth`` levels; return the first ``top`` prefixes.

    ``order`` is one of ``TREE_ORDERS``. Raises :class:`PipelineError`.
    """
    read = retained_table(spark, snapshot, columns=NEEDED_BY_BRANCHES)
    found = branches(read.frame, depth, with_medians=read.is_small or order == "age")
    # A message has exactly one prefix of one level.
    first = F.col("depth") == 1
    one = F.struct(*(each.name for each in fields(PrefixTotals)))
    with phase("counting", snapshot.messages):
        (row,) = found.agg(
            F.count("*").alias("prefixes"),
            F.sum(F.when(first, F.col("messages"))).alias("messages"),
            F.sum(F.when(first, F.col("bytes"))).alias("bytes"),
            F.min_by(one, F.struct(-F.col(TREE_ORDERS[order]), "depth", "prefix"), top).alias("leading"),
        ).collect()
        leading = totals_of(read.frame, row.leading or ())
    return Tree(snapshot.taken_at, depth, row.messages or 0, row.bytes or 0, row.prefixes, leading)


# Find the shapes of the retained topics, and count the messages of each.


def shapes(spark: SparkSession, snapshot: Snapshot, given: Patterns) -> ShapesFound:
    """Find the shapes of the retained topics, besides those that are ``given``. Raises :class:`PipelineError`."""
    with (
        entered(topic_changes(spark, snapshot, reads_changes=False)) as history,
        kept_messages(spark, snapshot) as messages,
        shapes_of(snapshot, messages, given, history.result) as shaped,
    ):
        return shaped.found
