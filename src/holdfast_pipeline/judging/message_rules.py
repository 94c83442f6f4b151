"""Judge rules about messages alone: their values, kinds, schemas, ages, expiry and publishers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.checks.rule_types import (
    AbsentRule,
    EnumerationRule,
    ExpiresRule,
    PublisherRule,
    RangeRule,
    SchemaRule,
    StaleRule,
    TimeRule,
)
from holdfast_pipeline.checks.rules import Rule
from holdfast_pipeline.decoding.values import JsonPath
from holdfast_pipeline.judging.cases import SHOWN, beginning, level, payload_text, text_at, value_at
from holdfast_pipeline.judging.schema_columns import allows, is_one_of, number_of
from holdfast_pipeline.sources.tables import age

if TYPE_CHECKING:
    from pyspark.sql import Column


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
