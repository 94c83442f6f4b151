"""Judge rules about the changes of topics, which the history has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import GENERAL, Rules
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.core.units import Rate
from holdfast_pipeline.checks.rule_types import PublisherRule, RateRule
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.judging.cases import cases
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.states import has_depth
from holdfast_pipeline.sources.tables import read_history

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def recorded(spark: SparkSession, snapshot: Snapshot, kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about the changes of topics, which the history has."""
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
