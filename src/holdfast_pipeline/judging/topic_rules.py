"""Judge rules that compare topics: values that topics must not share, and topics that must be beside others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.payload_kinds import json_value
from holdfast_pipeline.checks.discovered import NEARLY_ALL, SIBLINGS
from holdfast_pipeline.checks.rule_kinds import NAMED, levels_beside
from holdfast_pipeline.checks.rule_types import ChildrenRule, RefersRule, SiblingsRule, UniqueRule
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.judging.cases import SHOWN, beginning, cases, level, payload_text, text_at, value_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def unique(kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about values that topics must not share."""
    messages = kept.withColumn("json", json_value(F.col("payload")))
    columns = []
    for place, rule in rules:
        assert isinstance(rule.options, UniqueRule)
        path = rule.options.path
        value = value_at(F.col("json"), path)
        text = F.to_json(value)
        whole = F.base64("payload") if not path else F.lit(None).cast("string")
        shown = F.coalesce(F.substring(F.try_variant_get(value, "$", "string"), 1, SHOWN), beginning(payload_text()))
        columns.append((place, rule, {"same": F.sha2(F.coalesce(text, whole).cast("binary"), 256), "shown": shown}))
    rows = cases(messages, columns)
    known = rows.where(F.col("same").isNotNull())  # a payload without the value shares none
    times = known.groupBy("rule", "part", "same").agg(F.count("*").alias("times")).where(F.col("times") > 1)
    shared = rows.join(times, ["rule", "part", "same"], "left")
    return shared.select("topic", "rule", "part", F.col("times").isNotNull().alias("fails"), "shown")


def siblings(kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about topics that must be retained beside a topic."""
    columns = []
    for place, rule in rules:
        assert isinstance(rule.options, SiblingsRule)
        needed = [
            F.struct(_beside(rule, each).alias("topic"), F.lit(each).alias("name")) for each in rule.options.siblings
        ]
        columns.append((place, rule, {"needed": F.array(*needed)}))
    rows = cases(kept.select("topic"), columns).select("topic", "rule", "part", F.explode("needed").alias("needed"))
    there = kept.select(F.col("topic").alias("other"), F.lit(True).alias("there"))
    joined = rows.join(there, F.col("needed.topic") == F.col("other"), "left")
    missing = F.collect_set(F.when(F.col("there").isNull(), F.col("needed.name")))
    judged = joined.groupBy("topic", "rule", "part").agg(F.sort_array(missing).alias("missing"))
    return judged.select(
        "topic", "rule", "part", (F.size("missing") > 0).alias("fails"), F.array_join("missing", ", ").alias("shown")
    )


def children(kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about the topics below devices: those that are listed, or those that nearly all devices have.

    The ``topic`` of a row is its device. Where few devices tell what nearly all have, nothing is judged.
    """
    columns = []
    for place, rule in rules:
        assert isinstance(rule.options, ChildrenRule)
        levels, above = F.split("topic", "/"), rule.topic_filter.count("/")
        listed = F.array(*(F.lit(each) for each in rule.options.children)).cast("array<string>")
        device = F.array_join(F.slice(levels, F.lit(1), F.lit(above)), "/")
        child = F.array_join(F.slice(levels, F.lit(above + 1), F.size(levels)), "/")
        columns.append((place, rule, {"device": device, "child": child, "listed": listed}))
    rows = cases(kept.select("topic"), columns)
    devices = rows.groupBy("rule", "part", "device").agg(
        F.collect_set("child").alias("children"), F.first("listed").alias("listed")
    )
    counts = devices.groupBy("rule").agg(F.count("*").alias("devices")).where(F.col("devices") >= SIBLINGS)
    lacking = F.col("devices") - F.col("having")
    having = rows.where("child != ''").groupBy("rule", "child").agg(F.count("*").alias("having"))
    common = having.join(counts, "rule").where(lacking <= F.greatest(F.lit(1), (1 - NEARLY_ALL) * F.col("devices")))
    usual = common.groupBy("rule").agg(F.sort_array(F.collect_set("child")).alias("usual"))
    needed = F.when(F.size("listed") > 0, F.col("listed")).otherwise(F.col("usual"))
    missing = F.array_except(needed, "children")
    judged = devices.join(F.broadcast(usual), "rule", "left").withColumn("missing", missing)
    return judged.select(
        F.col("device").alias("topic"), "rule", "part", (F.size("missing") > 0).alias("fails"),
        F.array_join("missing", ", ").alias("shown"),
    )  # fmt: skip


def refers(kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about topics that payloads name: they must be retained."""
    messages = kept.withColumn("json", json_value(F.col("payload")))
    columns = []
    for place, rule in rules:
        assert isinstance(rule.options, RefersRule)
        columns.append((place, rule, {"named": text_at(rule.options.path), "optional": F.lit(rule.options.optional)}))
    there = kept.select(F.col("topic").alias("other"))
    joined = cases(messages, columns).join(there, F.col("named") == F.col("other"), "left")
    fails = F.when(F.col("named").isNull(), ~F.col("optional")).otherwise(F.col("other").isNull())
    shown = F.coalesce(F.substring("named", 1, SHOWN), F.lit("no value there"))
    return joined.select("topic", "rule", "part", fails.alias("fails"), shown.alias("shown"))


def _beside(rule: Rule, relative: str) -> Column:
    """Return the topic at a relative place: ``../status`` of ``a/b/c`` is ``a/status``."""
    above, name = levels_beside(relative)
    parts = [level(rule, each) if place % 2 else F.lit(each) for place, each in enumerate(NAMED.split(name))]
    levels = F.split("topic", "/")
    begin = F.slice(levels, F.lit(1), F.greatest(F.size(levels) - 1 - above, F.lit(0)))
    return F.array_join(F.concat(begin, F.array(F.concat(*parts))), "/")
