"""Judge retained messages by rules, and count the failures of each rule.

Each message becomes a row for each rule that matches its topic, and one aggregation counts the rows of all rules. Up to
25 rules share a pass over the messages. Some kinds of rules have passes of their own: those that compare values of
topics (``unique``), those that look for other topics (``siblings``, ``children``, ``refers``), and those that look into
the history (``stuck``, ``rate``, ``publisher``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.payload_kinds import json_value
from holdfast_pipeline.checks.rule_findings import EXAMPLES, MOST_PARTS, Example, PartFailures, RuleFigures
from holdfast_pipeline.checks.rule_types import (
    ChildrenRule,
    PublisherRule,
    RateRule,
    RefersRule,
    SiblingsRule,
    StuckRule,
    UniqueRule,
)
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.judging.cases import SHOWN, cases
from holdfast_pipeline.judging.history_rules import recorded, stuck
from holdfast_pipeline.judging.message_rules import judged
from holdfast_pipeline.judging.topic_rules import children, refers, siblings, unique
from holdfast_pipeline.sources.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Characters of a topic in an example: the driver keeps those of all findings.
_TOPIC = 1000
#: Rules of one pass: Spark compiles all of them together.
_AT_ONCE = 25
#: Types of rules that have passes of their own.
_WITH_PASSES = (UniqueRule, SiblingsRule, ChildrenRule, RefersRule, StuckRule, RateRule)


def figures_of(
    spark: SparkSession, snapshot: Snapshot, kept: DataFrame, rules: Sequence[Rule]
) -> dict[int, RuleFigures]:
    """Count the failures of each rule in the messages ``kept``, by the rule's place in ``rules``.

    At most :data:`MOST_PARTS` parts of each rule come to the driver.
    """
    rows = _rows(spark, snapshot, kept, rules)
    failed = F.when(F.col("fails"), F.col("topic"))
    example = F.struct(F.substring("topic", 1, _TOPIC).alias("topic"), F.substring("shown", 1, SHOWN).alias("value"))
    parts = rows.groupBy("rule", "part").agg(
        F.count("fails").alias("checked"),
        F.count_if(F.col("fails").isNull()).alias("unknown"),
        F.count_if("fails").alias("failed"),
        F.min_by(example, failed, EXAMPLES).alias("examples"),
    )
    order = F.when(F.col("failed") > 0, F.struct(-F.col("failed"), F.col("part")))
    worst = F.struct(F.substring("part", 1, _TOPIC).alias("part"), "checked", "failed", "examples")
    found = parts.groupBy("rule").agg(
        F.sum("checked").alias("checked"),
        F.sum("unknown").alias("unknown"),
        F.count_if(F.col("failed") > 0).alias("failing"),
        F.min_by(worst, order, MOST_PARTS).alias("worst"),
    )
    return {
        row.rule: RuleFigures(
            row.checked,
            row.unknown,
            row.failing,
            tuple(
                PartFailures(
                    part.part,
                    part.checked,
                    part.failed,
                    tuple(Example(one.topic, one.value or "") for one in part.examples or ()),
                )
                for part in row.worst or ()
            ),
        )
        for row in found.collect()
    }


def _rows(spark: SparkSession, snapshot: Snapshot, kept: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Return a row for each message and rule: rule, part, topic, fails (NULL: unknown), and the value to show."""
    numbered = list(enumerate(rules))
    groups: dict[type, list[tuple[int, Rule]]] = {}
    for place, rule in numbered:
        groups.setdefault(_pass_of(rule), []).append((place, rule))
    tables = [
        _table(spark, snapshot, kept, kind, group[begin : begin + _AT_ONCE])
        for kind, group in groups.items()
        for begin in range(0, len(group), _AT_ONCE)
    ]
    return reduce(lambda one, other: one.unionByName(other), tables)


def _table(
    spark: SparkSession, snapshot: Snapshot, kept: DataFrame, kind: type, rules: Sequence[tuple[int, Rule]]
) -> DataFrame:
    if kind is UniqueRule:
        return unique(kept, rules)
    if kind is SiblingsRule:
        return siblings(kept, rules)
    if kind is ChildrenRule:
        return children(kept, rules)
    if kind is RefersRule:
        return refers(kept, rules)
    if kind is StuckRule:
        return stuck(spark, snapshot, kept, rules)
    if kind is RateRule:
        return recorded(spark, snapshot, kept, rules)
    messages = kept.withColumn("json", json_value(F.col("payload")))
    return cases(messages, ((place, rule, judged(rule)) for place, rule in rules))


def _pass_of(rule: Rule) -> type:
    if isinstance(rule.options, PublisherRule) and rule.options.is_single:
        return RateRule
    kind = type(rule.options)
    return kind if kind in _WITH_PASSES else Rule
