"""Rows of messages and rules: one for each message and each rule that matches its topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.decoding.values import JsonPath
from holdfast_pipeline.sources.topic_patterns import pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Characters of a value that are shown: the driver keeps those of all findings.
SHOWN = 60


def cases(messages: DataFrame, judged: Iterable[tuple[int, Rule, dict[str, Column]]]) -> DataFrame:
    """Return a row for each message and each rule that matches its topic, with the rule's columns."""
    each = [
        F.when(
            F.col("topic").rlike(rf"\A(?:{pattern(rule.topic_filter)})\z"),
            F.struct(
                F.lit(place).alias("rule"),
                _part(rule).alias("part"),
                *(column.alias(name) for name, column in columns.items()),
            ),
        )
        for place, rule, columns in judged
    ]
    exploded = messages.select("topic", F.explode(F.array_compact(F.array(*each))).alias("case"))
    return exploded.select("topic", "case.*")


def _part(rule: Rule) -> Column:
    return level(rule, rule.options.by) if rule.options.by else F.lit("")


def level(rule: Rule, name: str) -> Column:
    """Return the name in each topic at a named level of the rule's pattern."""
    return F.coalesce(F.get(F.split("topic", "/"), F.lit(rule.pattern.levels[name])), F.lit(""))


def value_at(json: Column, path: JsonPath) -> Column:
    """Return the value at a path in a VARIANT, NULL where there is none."""
    if not path:
        return json
    steps = "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in path)
    return F.try_variant_get(json, f"${steps}", "variant")


def text_at(path: JsonPath) -> Column:
    """Return the text of the value at a path; without a path, also of a payload that is no JSON. NULL for none."""
    text = F.try_variant_get(value_at(F.col("json"), path), "$", "string")
    return text if path else F.coalesce(text, payload_text())


def payload_text() -> Column:
    """Return the payload as text, NULL if it is not UTF-8."""
    text = F.col("payload").cast("string")
    return F.when(F.is_valid_utf8(text), text)


def beginning(text: Column) -> Column:
    """Return the part of a payload's text that a finding shows."""
    return F.coalesce(F.substring(text, 1, SHOWN), F.lit("(binary)"))
