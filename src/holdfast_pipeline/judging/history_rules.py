"""Judge rules about the changes of topics, and about their past values, which the history has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import GENERAL, Rules
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.core.units import Rate
from holdfast_pipeline.analysis.payload_kinds import json_value
from holdfast_pipeline.checks.rule_types import PublisherRule, RateRule, StuckRule
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.judging.cases import SHOWN, cases, text_at, value_at
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.states import STORED_AT, has_depth
from holdfast_pipeline.sources.tables import read_history

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def recorded(spark: SparkSession, snapshot: Snapshot, kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about the changes of topics, and about their past values, which the history has."""
    present, since = _present_history(snapshot)
    windows = sorted({_window(rule) for _, rule in rules})
    begins = {window: snapshot.taken_at - round(window * 1000) for window in windows}
    topics = kept.select("topic")
    if since is None or present is None:
        unknown = {"fails": F.lit(None).cast("boolean"), "shown": F.lit("")}
        return cases(topics, ((place, rule, unknown) for place, rule in rules))
    columns = ("topic", "op", "origin", "changed_at", "client_id")
    entries = read_history(spark, snapshot.source, to_seq=snapshot.last_seq, columns=columns)
    at = F.unix_millis("changed_at")
    changes = entries.where((F.col("origin") != ChangeOrigin.BASELINE.value) & (at > begins[windows[-1]]))
    counted: list[Any] = []
    for place, window in enumerate(windows):
        inside = at > begins[window]
        publisher = F.when(inside & (F.col("op") != ChangeKind.EXPIRE.value), F.col("client_id"))
        counted += [
            F.count_if(inside).alias(f"changes{place}"),
            F.min(publisher).alias(f"first{place}"),
            F.max(publisher).alias(f"last{place}"),
        ]
    joined = topics.join(changes.groupBy("topic").agg(*counted), "topic", "left")
    known = has_depth(present, lambda depth: depth is GENERAL)
    return cases(
        joined,
        (
            (place, rule, _judged_by_changes(rule, windows.index(_window(rule)), since <= begins[_window(rule)], known))
            for place, rule in rules
        ),
    )


def stuck(spark: SparkSession, snapshot: Snapshot, kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about values that are the same for long.

    A value is the same from the first entry on behind which all entries of the topic have it: an equal payload that is
    published again is no change, a clear is one. A topic is compared with its *siblings*, the other topics of the rule,
    with ``by`` those of the same part.
    """
    present, since = _present_history(snapshot)
    if since is None or present is None:
        unknown = {"fails": F.lit(None).cast("boolean"), "shown": F.lit("")}
        return cases(kept.select("topic"), ((place, rule, unknown) for place, rule in rules))
    names = ("topic", "seq", "op", "origin", "changed_at", "revision", "payload")
    filters = {rule.topic_filter for _, rule in rules}
    read = read_history(
        spark, snapshot.source, snapshot.periods[-1].first_seq + 1, snapshot.last_seq,
        filters.pop() if len(filters) == 1 else "", names,
    )  # fmt: skip
    is_set = F.col("op") == ChangeKind.SET.value
    entries = read.withColumn("json", F.when(is_set, json_value(F.col("payload"))))
    entries = entries.withColumn("payload", F.when(is_set, F.col("payload")))
    rows = cases(entries, ((place, rule, _entry(rule)) for place, rule in rules))
    order = Window.partitionBy("rule", "topic").orderBy("seq")
    before, is_first = F.lag("value").over(order), F.row_number().over(order) == 1
    begins = rows.withColumn("first", is_first).withColumn("begins", is_first | ~F.col("value").eqNullSafe(before))
    begin = F.struct("seq", "at", "first", "baseline")
    values = begins.groupBy("rule", "topic").agg(
        F.max(F.when(F.col("begins"), begin)).alias("begin"),
        F.max_by(F.struct("value", "shown"), "seq").alias("last"),
    )
    known = has_depth(present, lambda depth: depth is GENERAL)
    limits = ((place, rule, {"limit": F.lit(_longest(rule)), "known": known}) for place, rule in rules)
    joined = cases(kept.select("topic"), limits).join(values, ["rule", "topic"], "left")
    same_for = F.greatest(F.lit(0), (snapshot.taken_at - F.col("begin.at")) / 1000).cast("long")
    told = joined.withColumn("same_for", F.when(F.col("known"), same_for)).withColumn(
        "changes", F.coalesce(~F.col("begin.first") & (F.col("same_for") <= F.col("limit")), F.lit(False))
    )
    among = Window.partitionBy("rule", "part")
    others = F.count("same_for").over(among) - 1
    judged = told.withColumn("compared", 2 * F.count_if("changes").over(among) >= others)
    # Before a baseline, the value may have been another one, but not since its message was stored.
    is_unknown = F.col("begin.first") & F.col("begin.baseline") & (F.col("same_for") <= F.col("limit"))
    fails = F.when(F.col("same_for").isNull() | is_unknown, F.lit(None)).otherwise(
        F.col("last.value").isNotNull() & (F.col("same_for") > F.col("limit")) & F.col("compared")
    )
    shown = F.concat_ws(" ", F.col("same_for").cast("string"), "last.shown")
    return judged.select("topic", "rule", "part", fails.cast("boolean").alias("fails"), shown.alias("shown"))


def _entry(rule: Rule) -> dict[str, Column]:
    """Return the columns of an entry whose value may be stuck. ``value`` is NULL for none."""
    assert isinstance(rule.options, StuckRule)
    path = rule.options.path
    value = F.xxhash64(F.to_json(value_at(F.col("json"), path)) if path else F.col("payload"))
    there = value_at(F.col("json"), path).isNotNull() if path else F.col("payload").isNotNull()
    return {
        "seq": F.col("seq"),
        "at": F.unix_millis(F.expr(STORED_AT)),
        "baseline": F.col("origin") == ChangeOrigin.BASELINE.value,
        "value": F.when(there, value),
        "shown": F.coalesce(F.substring(text_at(path), 1, SHOWN), F.lit("(binary)")),
    }


def _longest(rule: Rule) -> float:
    assert isinstance(rule.options, StuckRule)
    return rule.options.at_most or 0.0


def _judged_by_changes(rule: Rule, window: int, is_whole: bool, known: Column) -> dict[str, Column]:
    """Return whether a topic's changes fail a rule. A history that ``is_whole`` has the whole window.

    Too many changes fail in a part of the window, too. Too few only fail in the whole window.
    """
    if isinstance(rule.options, PublisherRule):
        first, last = F.col(f"first{window}"), F.col(f"last{window}")
        several = F.coalesce(first != last, F.lit(False))
        whole = F.when(several, F.lit(True)).when(F.lit(is_whole), F.lit(False))
        return {"fails": F.when(known, whole), "shown": F.concat_ws(", ", first, last)}
    assert isinstance(rule.options, RateRule)
    changes = F.coalesce(F.col(f"changes{window}"), F.lit(0))
    low, high, seconds = rule.options.at_least, rule.options.at_most, rule.options.window
    fails = F.lit(False) if high is None else changes > _allowed(high, seconds)
    if low is not None:
        fails |= changes < _allowed(low, seconds)
    judged = F.when(F.lit(is_whole), fails)
    if high is not None:
        judged = F.when(changes > _allowed(high, seconds), F.lit(True)).otherwise(judged)
    return {"fails": F.when(known, judged), "shown": changes.cast("string")}


def _allowed(rate: Rate, seconds: float) -> float:
    return rate.amount * seconds / rate.seconds


def _window(rule: Rule) -> float:
    assert isinstance(rule.options, (RateRule, PublisherRule))
    return rule.options.window


def _present_history(snapshot: Snapshot) -> tuple[Rules | None, int | None]:
    """Return the rules of the present history, and from when on it has all changes of topics without a rule."""
    periods = snapshot.periods
    if not periods or periods[-1].ended_at is not None:
        return None, None
    state = periods[-1].states().get(GENERAL)
    return periods[-1].parsed, None if state is None else state.since
