"""Count the changes in the history: by time, publisher, prefix and topic, and the topics that never change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.pipeline.archive.states import newest_of, of_general_depth
from holdfast.pipeline.database.history_range import history_range
from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.jobs.tree import prefixes
from holdfast.pipeline.report.figures import ChangeStep, History, NamedTotals
from holdfast.pipeline.sources.tables import read_history
from holdfast.retained.history.entry_rules import retained_sql
from holdfast.retained.history.periods import read_periods
from holdfast.retained.history.rules import GENERAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NEEDED = ("seq", "op", "topic", "client_id", "origin", "changed_at", "expires_at", "size")
_LISTED = 12
#: Lengths of a step of time, in seconds. The report uses the first length that needs at most ``_MOST_STEPS`` steps.
_STEPS = (60, 300, 900, 3_600, 4 * 3_600, 12 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_MOST_STEPS = 72
#: Changes are counted for prefixes of up to so many levels, and listed for those with this share of all changes.
_PREFIX_LEVELS = 5
_LEAST_SHARE = 1 / 400


def history_of(spark: SparkSession, snapshot: Snapshot) -> History | None:
    """Return the figures of a snapshot's history; None for a history without entries."""
    with snapshot.source.transaction() as transaction:
        there = history_range(transaction)
        periods = read_periods(transaction.connection.cursor())
    if there.before >= there.last:
        return None
    entries = read_history(spark, snapshot.source, to_seq=snapshot.last_seq, columns=_NEEDED).persist()
    try:
        # A baseline describes messages that were retained before: its entries are no changes.
        is_change = F.col("origin") != ChangeOrigin.BASELINE.value
        changes = entries.where(is_change)
        changed_at = F.when(is_change, F.col("changed_at"))
        first, last, count, first_change, last_change = entries.agg(
            F.unix_millis(F.min("changed_at")),
            F.unix_millis(F.max("changed_at")),
            F.count_if(is_change),
            F.unix_millis(F.min(changed_at)),
            F.unix_millis(F.max(changed_at)),
        ).collect()[0]
        since = min([first, *(period.since for period in periods if period.since is not None)])
        until = max(last, snapshot.taken_at)
        step = step_of((until - since) // 1000)
        rules = {period.parsed for period in periods if period.rules}
        retained, untouched, names = _untouched(of_general_depth(entries, rules), snapshot.taken_at)
        apart = {rule.topic_filter for each in rules for rule in each.rules if rule.depth is not GENERAL}
        return History(
            since=since,
            until=until,
            first_change=since if first_change is None else first_change,
            last_change=until if last_change is None else last_change,
            step=step,
            changes=count,
            churn=_churn(changes, step),
            # An expiry has no publisher.
            clients=_most(changes.where(F.col("op") != ChangeKind.EXPIRE.value), F.col("client_id")),
            prefixes=_prefixes(changes, count),
            topics=_most(changes, F.col("topic")),
            retained=retained,
            untouched=untouched,
            untouched_topics=names,
            apart=tuple(sorted(apart)[:_LISTED]),
        )
    finally:
        entries.unpersist()


def step_of(seconds: int) -> int:
    """Return the length of a step for a time in seconds: whole days if the listed lengths are too short."""
    fitting = (step for step in _STEPS if seconds <= step * _MOST_STEPS)
    return next(fitting, -(-seconds // _MOST_STEPS // 86_400) * 86_400)


def _churn(changes: DataFrame, step: int) -> tuple[ChangeStep, ...]:
    length = step * 1000
    at = (F.floor(F.unix_millis("changed_at") / length) * length).cast("long")
    kinds = ((ChangeKind.SET, "sets"), (ChangeKind.CLEAR, "clears"), (ChangeKind.EXPIRE, "expires"))
    found = changes.groupBy(at.alias("at")).agg(
        *(F.count_if(F.col("op") == kind.value).alias(name) for kind, name in kinds), F.sum("size").alias("bytes")
    )
    return tuple(ChangeStep(**row.asDict()) for row in found.orderBy("at").collect())


def _most(changes: DataFrame, name: Column) -> tuple[NamedTotals, ...]:
    found = changes.groupBy(name.alias("name")).agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    return tuple(
        NamedTotals(**row.asDict()) for row in found.orderBy(F.desc("messages"), "name").limit(_LISTED).collect()
    )


def _prefixes(changes: DataFrame, whole: int) -> tuple[NamedTotals, ...]:
    exploded = changes.select(F.explode(prefixes(F.col("topic"), _PREFIX_LEVELS)).alias("name"), "size")
    found = exploded.groupBy("name").agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    rows = found.where(F.col("messages") >= whole * _LEAST_SHARE).collect()
    return busiest([NamedTotals(**row.asDict()) for row in rows], whole)


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


def _untouched(entries: DataFrame, taken_at: int) -> tuple[int, int, tuple[str, ...]]:
    """Return the number of retained topics, the number of those stored only once, and the first of these topics."""
    # An override moves the expiry of a stored message. The message is not stored again.
    stored = (F.col("op") == ChangeKind.SET.value) & (F.col("origin") != ChangeOrigin.OVERRIDE.value)
    times = entries.groupBy("topic").agg(F.count_if(stored).alias("times"), F.min("seq").alias("first"))
    retained = newest_of(entries).where(retained_sql(f"timestamp_millis({taken_at})")).select("topic")
    kept = times.join(retained, "topic", "left_semi").persist()
    try:
        once = F.col("times") == 1
        count, untouched = kept.agg(F.count("*"), F.count_if(once)).collect()[0]
        names = kept.where(once).orderBy("first").limit(_LISTED).select("topic").collect()
        return count, untouched, tuple(row.topic for row in names)
    finally:
        kept.unpersist()
