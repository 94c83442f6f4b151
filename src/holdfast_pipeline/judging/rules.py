"""Judge messages, topics and changes by rules, and count the failures of each rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import GENERAL, Rules
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast.core.units import Rate
from holdfast_pipeline.analysis.messages import json_value
from holdfast_pipeline.checks.discovered import NEARLY_ALL, SIBLINGS
from holdfast_pipeline.checks.rule_findings import EXAMPLES, MOST_PARTS, Example, PartFailures, RuleFigures
from holdfast_pipeline.checks.rule_types import (
    NAMED,
    AbsentRule,
    ChildrenRule,
    EnumerationRule,
    ExpiresRule,
    PublisherRule,
    RangeRule,
    RateRule,
    RefersRule,
    SchemaRule,
    SiblingsRule,
    StaleRule,
    StuckRule,
    TimeRule,
    UniqueRule,
    levels_beside,
)
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.decoding.values import JsonPath
from holdfast_pipeline.judging.schema_columns import allows, is_one_of, number_of
from holdfast_pipeline.sources.ranges import pattern
from holdfast_pipeline.sources.retained import STORED_AT, has_depth
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import age, read_history

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# Rows of messages and rules: one for each message and each rule that matches its topic.

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


# Judge rules about messages alone: their values, kinds, schemas, ages, expiry and publishers.


def judged(rule: Rule) -> dict[str, Column]:
    """Return whether a message fails a rule about messages alone, and the value to show."""
    payload, json = payload_text(), F.col("json")
    match rule.options:
        case RangeRule(path=path, at_least=low, at_most=high, optional=optional):
            value = value_at(json, path)
            number = number_of(value)
            kept = F.lit(True)
            if low is not None:
                kept &= number >= low
            if high is not None:
                kept &= number <= high
            return _result(F.coalesce(kept & number.isNotNull(), F.lit(False)), value, path, optional)
        case EnumerationRule(path=path, values=values, optional=optional):
            value = value_at(json, path)
            kept = is_one_of(values, value)
            texts = [each for each in values if isinstance(each, str)]
            if not path and texts:
                kept |= F.coalesce(payload.isin(texts), F.lit(False))
            return _result(kept, value, path, optional)
        case SchemaRule(kind=kind, schema=schema):
            kept = F.col("kind") == kind if kind else F.lit(True)
            if schema is not None:
                kept &= allows(schema, json)
            return {"fails": ~kept, "shown": beginning(payload)}
        case StaleRule(at_most=most):
            return {"fails": age() > F.lit(most), "shown": age().cast("string")}
        case AbsentRule():
            return {"fails": F.lit(True), "shown": beginning(payload)}
        case TimeRule(path=path, at_most=most, time_unit=unit, optional=optional):
            stated = text_at(path)
            apart = (_millis_of(value_at(json, path), stated, unit) - F.unix_millis("stored_at")) / 1000
            none = F.concat(F.lit("no time: "), F.substring(stated, 1, SHOWN))
            late = F.when(stated.isNull(), F.lit(not optional)).otherwise(
                F.coalesce(F.abs(apart) > F.lit(most), F.lit(True))
            )
            told = F.coalesce(F.round(apart, 3).cast("string"), none, F.lit("no value there"))
            return {"fails": late, "shown": told}
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


#: The milliseconds in a unit of times that are numbers.
_MILLIS = {"s": 1000.0, "ms": 1.0, "us": 0.001}


#: The last millisecond of the year 9999: a higher number is no time.
_LAST_MILLISECOND = 253_402_300_799_999.0
#: The beginning of a time in ISO 8601. Spark also takes a time of day for one of today.
_TIME = r"\A\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"


def _millis_of(value: Column, text: Column, unit: str) -> Column:
    """Return the time that a VARIANT, or its text, is: in milliseconds since 1970, NULL for anything else."""
    number = number_of(value) * F.lit(_MILLIS[unit])
    written = F.unix_millis(F.when(text.rlike(_TIME), F.try_to_timestamp(text))).cast("double")
    return F.coalesce(F.when(F.abs(number) <= F.lit(_LAST_MILLISECOND), number), written)


def _result(kept: Column, value: Column, path: JsonPath, optional: bool) -> dict[str, Column]:
    """Return the columns of a rule about a value. A payload without it fails unless it is optional."""
    absent = F.when(F.col("json").isNull(), F.concat(F.lit("no JSON: "), beginning(payload_text())))
    missing = beginning(payload_text()) if not path else F.coalesce(absent, F.lit("no value there"))
    shown = F.coalesce(F.substring(F.try_variant_get(value, "$", "string"), 1, SHOWN), missing)
    fails = F.when(value.isNull() & ~kept, F.lit(not optional)).otherwise(~kept)
    return {"fails": fails, "shown": shown}


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
            parts.append(_quoted(level(rule, name)))
            rest = rest.removeprefix(f"{{{name}}}")
        else:
            parts.append(_quoted(F.lit(rest[0])))
            rest = rest[1:]
    return F.concat(*parts, F.lit(r"\z"))


def _quoted(text: Column) -> Column:
    return F.concat(F.lit(r"\Q"), F.replace(text, F.lit(r"\E"), F.lit(r"\E\\E\Q")), F.lit(r"\E"))


# Judge rules that compare topics: values that topics must not share, and topics that must be beside others.


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


# Judge retained messages by rules, and count the failures of each rule.
#
# Each message becomes a row for each rule that matches its topic, and one aggregation counts the rows of all rules.
# Up to 25 rules share a pass over the messages. Some kinds of rules have passes of their own: those that compare
# values of topics (``unique``), those that look for other topics (``siblings``, ``children``, ``refers``), and those
# that look into the history (``stuck``, ``rate``, ``publisher``).

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
