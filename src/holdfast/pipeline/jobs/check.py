"""Judge retained messages by rules.

Each message becomes a row for each rule that matches its topic, and one aggregation counts the rows of all rules. Up to
25 rules share a pass over the messages. Three kinds of rules have passes of their own: those that compare values of
topics (``unique``), those that look for other topics (``siblings``), and those that count changes in the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import reduce
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.pipeline.archive.states import has_depth
from holdfast.pipeline.background import Background, entered
from holdfast.pipeline.checks.discovered import findings_in
from holdfast.pipeline.checks.finding import Finding
from holdfast.pipeline.checks.json_schema import patterns_of
from holdfast.pipeline.checks.rule_findings import (
    EXAMPLES,
    MOST_PARTS,
    CheckFinding,
    Example,
    PartFailures,
    RuleFigures,
    findings_of,
    sorted_findings,
)
from holdfast.pipeline.checks.rule_types import (
    EnumerationRule,
    ExpiresRule,
    PublisherRule,
    RangeRule,
    RateRule,
    SchemaRule,
    SiblingsRule,
    SilenceRule,
    UniqueRule,
)
from holdfast.pipeline.checks.rules import Rule
from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.jobs.discovery import discover
from holdfast.pipeline.jobs.kept_table import KeptTable
from holdfast.pipeline.jobs.payload_kinds import json_value
from holdfast.pipeline.jobs.schema_columns import allows, is_one_of, number_of
from holdfast.pipeline.jobs.shapes import NEEDED, kept_messages, shapes_of
from holdfast.pipeline.jobs.topic_changes import TopicChanges, topic_changes
from holdfast.pipeline.progress.phases import phase
from holdfast.pipeline.rollup import json_path
from holdfast.pipeline.shapes.patterns import Patterns
from holdfast.pipeline.sources.tables import NOW, read_history
from holdfast.pipeline.sources.topic_patterns import pattern
from holdfast.retained.history.periods import read_periods
from holdfast.retained.history.rules import GENERAL, Rules
from holdfast.scheduling.rates import Rate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NEEDED = (*NEEDED, "username")
#: Characters of a topic and of a value in an example: the driver keeps those of all findings.
_TOPIC, _VALUE = 1000, 60
#: Rules of one pass: Spark compiles all of them together.
_AT_ONCE = 25


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

    With ``discovers``, also look for what needs no rules: all messages are needed, so not with ``since``. Raises
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
            figures = _figures(_rows(spark, snapshot, kept.frame, judged)) if judged and kept.count else {}
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
        return list(findings_in(discover(shaped)))


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


def _figures(rows: DataFrame) -> dict[int, RuleFigures]:
    """Count the rows of each rule. At most :data:`MOST_PARTS` parts of each rule come to the driver."""
    failed = F.when(F.col("fails"), F.col("topic"))
    example = F.struct(F.substring("topic", 1, _TOPIC).alias("topic"), F.substring("shown", 1, _VALUE).alias("value"))
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
        return _unique(kept, rules)
    if kind is SiblingsRule:
        return _siblings(kept, rules)
    if kind is RateRule:
        return _recorded(spark, snapshot, kept, rules)
    messages = kept.withColumn("json", json_value(F.col("payload")))
    return _cases(messages, ((place, rule, _judged(rule)) for place, rule in rules))


def _pass_of(rule: Rule) -> type:
    if isinstance(rule.options, PublisherRule) and rule.options.is_single:
        return RateRule
    kind = type(rule.options)
    return kind if kind in (UniqueRule, SiblingsRule, RateRule) else Rule


def _cases(messages: DataFrame, judged: Iterable[tuple[int, Rule, dict[str, Column]]]) -> DataFrame:
    """Return a row for each message and each rule that matches its topic, with the rule's columns."""
    cases = [
        F.when(
            F.col("topic").rlike(rf"\A(?:{pattern(rule.pattern.topic_filter)})\z"),
            F.struct(
                F.lit(place).alias("rule"),
                _part(rule).alias("part"),
                *(column.alias(name) for name, column in columns.items()),
            ),
        )
        for place, rule, columns in judged
    ]
    exploded = messages.select("topic", F.explode(F.array_compact(F.array(*cases))).alias("case"))
    return exploded.select("topic", "case.*")


def _part(rule: Rule) -> Column:
    return _level(rule, rule.options.by) if rule.options.by else F.lit("")


def _level(rule: Rule, name: str) -> Column:
    return F.coalesce(F.get(F.split("topic", "/"), F.lit(rule.pattern.levels[name])), F.lit(""))


def _judged(rule: Rule) -> dict[str, Column]:
    """Return whether a message fails a rule about messages alone, and the value to show."""
    payload, json = _payload_text(), F.col("json")
    match rule.options:
        case RangeRule(path=path, at_least=low, at_most=high, optional=optional):
            value = _value(json, path)
            number = number_of(value)
            kept = F.lit(True)
            if low is not None:
                kept &= number >= low
            if high is not None:
                kept &= number <= high
            return _result(F.coalesce(kept & number.isNotNull(), F.lit(False)), value, path, optional)
        case EnumerationRule(path=path, values=values, optional=optional):
            value = _value(json, path)
            kept = is_one_of(values, value)
            texts = [each for each in values if isinstance(each, str)]
            if not path and texts:
                kept |= F.coalesce(payload.isin(texts), F.lit(False))
            return _result(kept, value, path, optional)
        case SchemaRule(kind=kind, schema=schema):
            kept = F.col("kind") == kind if kind else F.lit(True)
            if schema is not None:
                kept &= allows(schema, json)
            return {"fails": ~kept, "shown": _beginning(payload)}
        case SilenceRule(at_most=most):
            silent = (F.unix_millis(NOW) - F.unix_millis("stored_at")) / 1000
            return {"fails": silent > F.lit(most), "shown": F.greatest(silent, F.lit(0)).cast("long").cast("string")}
        case ExpiresRule(at_most=most):
            left = ((F.unix_millis("expires_at") - F.unix_millis("stored_at")) / 1000).cast("long")
            fails = left.isNull() if most is None else F.coalesce(left > F.lit(most), F.lit(True))
            return {"fails": fails, "shown": F.coalesce(left.cast("string"), F.lit(""))}
        case PublisherRule(client_id=client_id, username=username):
            kept, shown = F.lit(True), []
            for column, wanted in (("client_id", client_id), ("username", username)):
                if wanted:
                    kept &= F.coalesce(F.regexp_like(column, _publisher_pattern(rule, wanted)), F.lit(False))
                    shown.append(F.coalesce(F.col(column), F.lit("(none)")))
            return {"fails": ~kept, "shown": F.concat_ws(", ", *shown)}
    raise AssertionError(rule.type)


def _value(json: Column, path: json_path.Path) -> Column:
    if not path:
        return json
    steps = "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in path)
    return F.try_variant_get(json, f"${steps}", "variant")


def _result(kept: Column, value: Column, path: json_path.Path, optional: bool) -> dict[str, Column]:
    """Return the columns of a rule about a value. A payload without it fails unless it is optional."""
    absent = F.when(F.col("json").isNull(), F.concat(F.lit("no JSON: "), _beginning(_payload_text())))
    missing = _beginning(_payload_text()) if not path else F.coalesce(absent, F.lit("no value there"))
    shown = F.coalesce(F.substring(F.try_variant_get(value, "$", "string"), 1, _VALUE), missing)
    fails = F.when(value.isNull() & ~kept, F.lit(not optional)).otherwise(~kept)
    return {"fails": fails, "shown": shown}


def _payload_text() -> Column:
    """Return the payload as text, NULL if it is not UTF-8."""
    text = F.col("payload").cast("string")
    return F.when(F.is_valid_utf8(text), text)


def _beginning(text: Column) -> Column:
    return F.coalesce(F.substring(text, 1, _VALUE), F.lit("(binary)"))


def _publisher_pattern(rule: Rule, wanted: str) -> Column:
    r"""Return the regular expression of a text with ``*`` and ``{name}``. Other text stands between \Q and \E."""
    parts: list[Column] = [F.lit(r"\A")]
    rest = wanted
    while rest:
        if rest[0] == "*":
            parts.append(F.lit("(?s:.*)"))
            rest = rest[1:]
            continue
        name = next((name for name in rule.pattern.levels if rest.startswith(f"{{{name}}}")), None)
        if name is not None:
            parts.append(_quoted(_level(rule, name)))
            rest = rest.removeprefix(f"{{{name}}}")
        else:
            parts.append(_quoted(F.lit(rest[0])))
            rest = rest[1:]
    return F.concat(*parts, F.lit(r"\z"))


def _quoted(text: Column) -> Column:
    return F.concat(F.lit(r"\Q"), F.replace(text, F.lit(r"\E"), F.lit(r"\E\\E\Q")), F.lit(r"\E"))


def _unique(kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about values that topics must not share."""
    messages = kept.withColumn("json", json_value(F.col("payload")))
    columns = []
    for place, rule in rules:
        assert isinstance(rule.options, UniqueRule)
        path = rule.options.path
        value = _value(F.col("json"), path)
        text = F.to_json(value)
        whole = F.base64("payload") if not path else F.lit(None).cast("string")
        shown = F.coalesce(F.substring(F.try_variant_get(value, "$", "string"), 1, _VALUE), _beginning(_payload_text()))
        columns.append((place, rule, {"same": F.sha2(F.coalesce(text, whole).cast("binary"), 256), "shown": shown}))
    rows = _cases(messages, columns)
    known = rows.where(F.col("same").isNotNull())  # a payload without the value shares none
    times = known.groupBy("rule", "part", "same").agg(F.count("*").alias("times")).where(F.col("times") > 1)
    shared = rows.join(times, ["rule", "part", "same"], "left")
    return shared.select("topic", "rule", "part", F.col("times").isNotNull().alias("fails"), "shown")


def _siblings(kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about topics that must be retained beside a topic."""
    columns = []
    for place, rule in rules:
        assert isinstance(rule.options, SiblingsRule)
        needed = [F.struct(_beside(each).alias("topic"), F.lit(each).alias("name")) for each in rule.options.siblings]
        columns.append((place, rule, {"needed": F.array(*needed)}))
    rows = _cases(kept.select("topic"), columns).select("topic", "rule", "part", F.explode("needed").alias("needed"))
    there = kept.select(F.col("topic").alias("other"), F.lit(True).alias("there"))
    joined = rows.join(there, F.col("needed.topic") == F.col("other"), "left")
    missing = F.collect_set(F.when(F.col("there").isNull(), F.col("needed.name")))
    judged = joined.groupBy("topic", "rule", "part").agg(F.sort_array(missing).alias("missing"))
    return judged.select(
        "topic", "rule", "part", (F.size("missing") > 0).alias("fails"), F.array_join("missing", ", ").alias("shown")
    )


def _beside(relative: str) -> Column:
    """Return the topic at a relative place: ``../status`` of ``a/b/c`` is ``a/status``."""
    name = relative
    while name.startswith("../"):
        name = name.removeprefix("../")
    above = (len(relative) - len(name)) // len("../")
    levels = F.split("topic", "/")
    begin = F.slice(levels, F.lit(1), F.greatest(F.size(levels) - 1 - above, F.lit(0)))
    return F.array_join(F.concat(begin, F.array(F.lit(name))), "/")


def _recorded(spark: SparkSession, snapshot: Snapshot, kept: DataFrame, rules: Sequence[tuple[int, Rule]]) -> DataFrame:
    """Judge rules about the changes of topics, which the history has."""
    present, since = _present_history(snapshot)
    windows = sorted({_window(rule) for _, rule in rules})
    begins = {window: snapshot.taken_at - round(window * 1000) for window in windows}
    topics = kept.select("topic")
    if since is None or present is None:
        unknown = {"fails": F.lit(None).cast("boolean"), "shown": F.lit("")}
        return _cases(topics, ((place, rule, unknown) for place, rule in rules))
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
    return _cases(
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
    with snapshot.source.transaction() as transaction:
        periods = read_periods(transaction.connection.cursor())
    if not periods or periods[-1].ended_at is not None:
        return None, None
    state = periods[-1].states().get(GENERAL)
    return periods[-1].parsed, None if state is None else state.since
