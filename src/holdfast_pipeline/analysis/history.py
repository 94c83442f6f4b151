"""The changes in the history, counted by time, publisher, prefix and topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import GENERAL, Period, retained_sql
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast_pipeline.analysis.messages import KeptTable, kept_frame, kept_table, prefixes
from holdfast_pipeline.report.figures import ChangeStep, History, NamedTotals
from holdfast_pipeline.sources.columns import NOW
from holdfast_pipeline.sources.retained import has_general_depth
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import history_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession


# Count the changes of each topic in the history: once for shapes, findings and the figures of changes.

#: A baseline describes messages that were retained before: its entries are no changes.
_IS_CHANGE = f"origin != '{ChangeOrigin.BASELINE.value}'"
_NEEDED = ("seq", "op", "topic", "client_id", "origin", "changed_at", "expires_at", "size")


@frozen
class TopicChanges:
    """The history of a snapshot: its entries without those of baselines, its periods, and a table with a row for each
    topic.

    A topic has the number of its ``changes`` and their ``bytes``, the times of its ``first`` and ``last`` entry and of
    its ``first_change`` and ``last_change`` (milliseconds since the epoch), the ``times`` that its message was stored,
    the position of its first entry (``first_seq``), whether it is ``retained`` when the snapshot is taken, whether a
    Will was published (``has_will``), and hashes of two of its publishers, ``one`` and ``other``, which differ if it
    has several. A topic with a baseline alone has no changes.
    """

    changes: DataFrame
    topics: KeptTable
    periods: tuple[Period, ...]


@contextmanager
def topic_changes(
    spark: SparkSession, snapshot: Snapshot, topic_filter: str = "", reads_changes: bool = True
) -> Iterator[TopicChanges | None]:
    """Give the history of the topics that match a Topic Filter; None if there is none.

    Spark keeps the entries if the caller ``reads_changes``, and not only the table of topics.

    Raises :class:`PipelineError`.
    """
    if snapshot.before >= snapshot.last_seq:
        yield None
        return
    read = history_table(spark, snapshot, topic_filter, _NEEDED)
    with (
        kept_frame(read.frame, read.is_small) if reads_changes else nullcontext(read.frame) as entries,
        kept_table(_by_topic(entries), read.is_small) as topics,
    ):
        yield TopicChanges(entries.where(_IS_CHANGE), topics, snapshot.periods)


def _by_topic(entries: DataFrame) -> DataFrame:
    is_change = F.expr(_IS_CHANGE)
    published = is_change & (F.col("op") != ChangeKind.EXPIRE.value)
    # An override moves the expiry of a stored message. The message is not stored again.
    stored = (F.col("op") == ChangeKind.SET.value) & (F.col("origin") != ChangeOrigin.OVERRIDE.value)
    changed_at = F.when(is_change, F.col("changed_at"))
    # Numbers, since Spark would sort all entries for the least text of each topic.
    publisher = F.when(published & F.col("client_id").isNotNull(), F.xxhash64("client_id"))
    return entries.groupBy("topic").agg(
        F.count_if(is_change).alias("changes"),
        F.sum(F.when(is_change, F.col("size"))).alias("bytes"),
        F.unix_millis(F.min("changed_at")).alias("first"),
        F.unix_millis(F.max("changed_at")).alias("last"),
        F.unix_millis(F.min(changed_at)).alias("first_change"),
        F.unix_millis(F.max(changed_at)).alias("last_change"),
        F.count_if(stored).alias("times"),
        F.min("seq").alias("first_seq"),
        F.max_by(F.expr(retained_sql(NOW)), "seq").alias("retained"),
        F.bool_or(F.col("origin") == ChangeOrigin.WILL.value).alias("has_will"),
        F.min(publisher).alias("one"),
        F.max(publisher).alias("other"),
    )


_LISTED = 12
#: Lengths of a step of time, in seconds. The report uses the first length that needs at most ``_MOST_STEPS`` steps.
_STEPS = (60, 300, 900, 3_600, 4 * 3_600, 12 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_MOST_STEPS = 72
#: Changes are counted for prefixes of up to so many levels, and listed for those with this share of all changes.
_PREFIX_LEVELS = 5
_LEAST_SHARE = 1 / 400
#: No kind has more rows: a level has at most 400 prefixes with that share.
_MOST_ROWS = _PREFIX_LEVELS * 400
_STEP, _CLIENT, _PREFIX = "step", "client", "prefix"
_PLACES = "array<struct<kind: string, at: bigint, name: string>>"
_KINDS = ((ChangeKind.SET, "sets"), (ChangeKind.CLEAR, "clears"), (ChangeKind.EXPIRE, "expires"))


def history_of(snapshot: Snapshot, history: TopicChanges) -> History:
    """Return the figures of a snapshot's history, in two passes."""
    rules = {period.parsed for period in history.periods if period.rules}
    row = _whole(history.topics.frame, has_general_depth(rules))
    since = min([row.first, *(period.since for period in history.periods if period.since is not None)])
    until = max(row.last, snapshot.taken_at)
    step = step_of((until - since) // 1000)
    counted = _counted(history, step, row.changes)
    apart = {rule.topic_filter for each in rules for rule in each.rules if rule.depth is not GENERAL}
    return History(
        since=since,
        until=until,
        first_change=since if row.first_change is None else row.first_change,
        last_change=until if row.last_change is None else row.last_change,
        step=step,
        changes=row.changes,
        churn=tuple(ChangeStep(each.at, each.sets, each.clears, each.expires, each.bytes) for each in counted(_STEP)),
        clients=tuple(_named(each) for each in counted(_CLIENT)[:_LISTED]),
        prefixes=busiest([_named(each) for each in counted(_PREFIX)], row.changes),
        topics=tuple(_named(each) for each in row.most or ()),
        retained=row.retained,
        untouched=row.untouched,
        untouched_topics=tuple(row.untouched_topics or ()),
        apart=tuple(sorted(apart)[:_LISTED]),
    )


def step_of(seconds: int) -> int:
    """Return the length of a step for a time in seconds: whole days if the listed lengths are too short."""
    fitting = (step for step in _STEPS if seconds <= step * _MOST_STEPS)
    return next(fitting, -(-seconds // _MOST_STEPS // 86_400) * 86_400)


def _whole(by_topic: DataFrame, is_general: Column) -> Row:
    """Return the figures of all topics in one row. Topics with rules of their own do not count as retained."""
    once = F.col("kept") & (F.col("times") == 1)
    topics = by_topic.withColumn("kept", F.col("retained") & is_general).withColumn("once", once)
    topics = topics.withColumn(
        "totals", F.struct(F.col("topic").alias("name"), F.col("changes").alias("messages"), "bytes")
    )
    return topics.agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum("changes").alias("changes"),
        F.min("first_change").alias("first_change"),
        F.max("last_change").alias("last_change"),
        F.count_if("kept").alias("retained"),
        F.count_if("once").alias("untouched"),
        F.expr(f"min_by(topic, first_seq, {_LISTED}) FILTER (WHERE once)").alias("untouched_topics"),
        F.expr(f"min_by(totals, struct(-changes, topic), {_LISTED}) FILTER (WHERE changes > 0)").alias("most"),
    ).collect()[0]


def _counted(history: TopicChanges, step: int, whole: int) -> Callable[[str], list[Row]]:
    """Count the changes of each step, of each publisher, and below each prefix, in one pass.

    Return a function of these kinds. Steps are in the order of time, the others in that of their changes.
    """
    length = step * 1000
    at = (F.floor(F.unix_millis("changed_at") / length) * length).cast("long")
    no_time, no_name = F.lit(None).cast("long").alias("at"), F.lit(None).cast("string").alias("name")
    # An expiry has no publisher.
    publisher = F.array(F.struct(F.lit(_CLIENT).alias("kind"), no_time, F.col("client_id").alias("name")))
    places = F.concat(
        F.array(F.struct(F.lit(_STEP).alias("kind"), at.alias("at"), no_name)),
        F.when(F.col("op") == ChangeKind.EXPIRE.value, F.array().cast(_PLACES)).otherwise(publisher),
    )
    kinds = [F.when(F.col("op") == kind.value, 1).otherwise(0).cast("long").alias(name) for kind, name in _KINDS]
    changes = history.changes.select(
        F.inline(places), F.lit(1).cast("long").alias("messages"), F.col("size").cast("long").alias("bytes"), *kinds
    )
    topics = history.topics.frame.where(F.col("changes") > 0).select(
        F.lit(_PREFIX).alias("kind"),
        no_time,
        F.explode(prefixes(F.col("topic"), _PREFIX_LEVELS)).alias("name"),
        F.col("changes").alias("messages"),
        "bytes",
        *(F.lit(0).cast("long").alias(name) for _, name in _KINDS),
    )
    summed = ("messages", "bytes", *(name for _, name in _KINDS))
    found = changes.unionByName(topics).groupBy("kind", "at", "name").agg(*(F.sum(each).alias(each) for each in summed))
    found = found.where((F.col("kind") != _PREFIX) | (F.col("messages") >= whole * _LEAST_SHARE))
    one = F.struct("at", "name", *summed)
    order = F.struct("at", -F.col("messages"), "name")
    rows = found.groupBy("kind").agg(F.min_by(one, order, _MOST_ROWS).alias("rows")).collect()
    by_kind = {row.kind: row.rows for row in rows}
    return lambda kind: by_kind.get(kind, [])


def _named(row: Row) -> NamedTotals:
    return NamedTotals(row.name, row.messages, row.bytes)


def busiest(found: Sequence[NamedTotals], whole: int) -> tuple[NamedTotals, ...]:
    """Return the prefixes that tell most about ``whole`` changes, the busiest first; none is below another one.

    A prefix with more than half of all changes says little: those below it stand for it. A prefix that has more than
    half of its changes below one prefix is replaced by that one.
    """
    below: dict[str | None, list[NamedTotals]] = {}
    for one in found:
        above, separator, _ = (one.name or "").rpartition("/")
        below.setdefault(above if separator else None, []).append(one)
    chosen, waiting = [], list(below.get(None, ()))
    while waiting:
        one = waiting.pop()
        inside = below.get(one.name, [])
        if 2 * one.messages > whole and inside:
            waiting += inside
        elif largest := [each for each in inside if 2 * each.messages > one.messages]:
            waiting += largest
        else:
            chosen.append(one)
    return tuple(sorted(chosen, key=lambda one: (-one.messages, one.name or ""))[:_LISTED])
