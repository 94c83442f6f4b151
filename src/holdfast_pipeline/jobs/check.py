"""Check the retained messages: judge them by rules, and look for faults without rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.history import TopicChanges, topic_changes
from holdfast_pipeline.analysis.messages import NEEDED, KeptTable, kept_messages
from holdfast_pipeline.analysis.shapes import shapes_of
from holdfast_pipeline.checks.discovered import findings_in
from holdfast_pipeline.checks.finding import Finding
from holdfast_pipeline.checks.json_schema import patterns_of
from holdfast_pipeline.checks.rule_findings import CheckFinding, RuleFigures, findings_of, sorted_findings
from holdfast_pipeline.checks.rule_types import SchemaRule
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.judging.discovery import discover
from holdfast_pipeline.judging.rules import figures_of
from holdfast_pipeline.progress import Background, entered, phase
from holdfast_pipeline.shapes import Patterns
from holdfast_pipeline.sources.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = (*NEEDED, "username")


@frozen
class CheckResult:
    """What a check found at ``taken_at`` (milliseconds since the epoch), the worst first.

    ``messages`` were read, and judged by ``rules`` rules. ``left_out`` names the rules that need all messages, where
    only changed ones were read. ``incomplete`` names those with more findings than are told.
    ``token`` is for the next check of changes; None if the broker does not store them.
    """

    taken_at: int
    token: str | None
    messages: int
    rules: int
    left_out: tuple[str, ...]
    incomplete: tuple[str, ...]
    findings: tuple[CheckFinding, ...]


def check(
    spark: SparkSession, snapshot: Snapshot, rules: Sequence[Rule], since: str | None = None, discovers: bool = False
) -> CheckResult:
    """Judge the retained messages in a snapshot; with ``since``, a token or a time, those changed since.

    With ``discovers``, also look for faults without rules: this needs all messages, so not with ``since``. Raises
    :class:`PipelineError`.
    """
    _require_patterns(spark, rules)
    judged = [rule for rule in rules if since is None or not rule.needs_everything]
    discovers = discovers and since is None
    with (
        entered(topic_changes(spark, snapshot)) if discovers else nullcontext() as history,
        kept_messages(spark, snapshot, columns=_NEEDED, since=since) as kept,
    ):
        with phase("judging"):
            figures = figures_of(spark, snapshot, kept.frame, judged) if judged and kept.count else {}
        discovered = [] if history is None else _discovered(snapshot, kept, history)
    found = [
        each
        for place, rule in enumerate(judged)
        for each in findings_of(rule, figures.get(place, RuleFigures()), everything=since is None)
    ]
    found += [CheckFinding("", each) for each in discovered]
    left_out = tuple(rule.name for rule in rules if rule not in judged)
    incomplete = tuple(rule.name for place, rule in enumerate(judged) if _is_cut(figures.get(place)))
    return CheckResult(
        snapshot.taken_at, snapshot.token, kept.count, len(judged), left_out, incomplete, sorted_findings(found)
    )


def _discovered(snapshot: Snapshot, kept: KeptTable, history: Background[TopicChanges | None]) -> list[Finding]:
    with shapes_of(snapshot, kept, Patterns(), history.result, finds_numbers=True) as shaped:
        return list(findings_in(discover(snapshot, shaped)))


def _require_patterns(spark: SparkSession, rules: Iterable[Rule]) -> None:
    """Raise :class:`PipelineError` for a regular expression that Python understands and Java does not."""
    for rule in rules:
        schema = rule.options.schema if isinstance(rule.options, SchemaRule) else None
        found = list(patterns_of(schema)) if schema is not None else []
        try:
            if found:
                spark.range(1).select(*(F.lit("").rlike(each) for each in found)).collect()
        except PySparkException as error:
            said = str(error).strip().splitlines()
            raise PipelineError(
                f"rules.{rule.name}: a pattern of its schema is no regular expression of Java: {' '.join(said[:1])}"
            ) from error


def _is_cut(figures: RuleFigures | None) -> bool:
    return figures is not None and figures.failing > len(figures.worst)
