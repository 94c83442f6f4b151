"""What the history tells of changes: how many, when, by whom, of which topics, and of which none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from holdfast.pipeline.database.history_range import history_range
from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.jobs.tree import prefixes
from holdfast.pipeline.report.findings import Churn, History, Talker
from holdfast.pipeline.sources.tables import read_history
from holdfast.retained.history.periods import read_periods

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NEEDED = ("seq", "op", "topic", "client_id", "origin", "changed_at", "size")
_LISTED = 12
#: Steps of time, in seconds: the first that makes no more than so many of all there is.
_STEPS = (60, 300, 900, 3_600, 4 * 3_600, 12 * 3_600, 86_400, 7 * 86_400, 30 * 86_400)
_MOST_STEPS = 72
#: Levels of the prefixes that changes are counted for.
_PREFIX = 2


def history_of(spark: SparkSession, snapshot: Snapshot) -> History | None:
    """Return what the history of a snapshot tells; None where it has no entries."""
    with snapshot.source.transaction() as transaction:
        there = history_range(transaction)
        begun = [period.complete_since for period in read_periods(transaction.connection.cursor())]
    if there.before >= there.last:
        return None
    entries = read_history(spark, snapshot.source, to_seq=snapshot.last_seq, columns=_NEEDED).persist()
    try:
        # The baseline is what was there before: nothing that changed.
        changes = entries.where(F.col("origin") != "baseline")
        first, last, count = entries.agg(
            F.unix_millis(F.min("changed_at")),
            F.unix_millis(F.max("changed_at")),
            F.count_if(F.col("origin") != "baseline"),
        ).collect()[0]
        since = min([first, *(at for at in begun if at is not None)])
        until = max(last, snapshot.taken_at)
        step = step_of((until - since) // 1000)
        retained, untouched, names = _untouched(entries)
        return History(
            since, until, step, count, _churn(changes, step),
            _most(changes.where(F.col("op") != "expire"), F.col("client_id")),
            _most(changes, F.element_at(prefixes(F.col("topic"), _PREFIX), -1)),
            _most(changes, F.col("topic")),
            retained, untouched, names,
        )  # fmt: skip
    finally:
        entries.unpersist()


def step_of(seconds: int) -> int:
    """Return the step in which to tell of so many seconds."""
    fitting = (step for step in _STEPS if seconds <= step * _MOST_STEPS)
    return next(fitting, -(-seconds // _MOST_STEPS // 86_400) * 86_400)


def _churn(changes: DataFrame, step: int) -> tuple[Churn, ...]:
    length = step * 1000
    at = (F.floor(F.unix_millis("changed_at") / length) * length).cast("long")
    found = changes.groupBy(at.alias("at")).agg(
        *(F.count_if(F.col("op") == op).alias(name) for op, name in (("set", "sets"), ("clear", "clears"))),
        F.count_if(F.col("op") == "expire").alias("expires"),
        F.sum("size").alias("bytes"),
    )
    return tuple(Churn(**row.asDict()) for row in found.orderBy("at").collect())


def _most(changes: DataFrame, name: Column) -> tuple[Talker, ...]:
    found = changes.groupBy(name.alias("name")).agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    return tuple(Talker(**row.asDict()) for row in found.orderBy(F.desc("messages"), "name").limit(_LISTED).collect())


def _untouched(entries: DataFrame) -> tuple[int, int, tuple[str, ...]]:
    topics = entries.groupBy("topic").agg(
        F.count_if(F.col("op") == "set").alias("sets"), F.max_by("op", "seq").alias("last"), F.min("seq").alias("seq")
    )
    kept = topics.where(F.col("last") == "set").persist()
    try:
        once = kept.where(F.col("sets") == 1)
        retained, untouched = kept.agg(F.count("*"), F.count_if(F.col("sets") == 1)).collect()[0]
        names = once.orderBy("seq").limit(_LISTED).select("topic").collect()
        return retained, untouched, tuple(row.topic for row in names)
    finally:
        kept.unpersist()
