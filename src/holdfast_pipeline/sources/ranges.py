"""The topics of a query: patterns, ranges and conditions, and their division into partitions.

Pure: nothing here reads a database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from attrs import frozen
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import IntegerType, LongType, StringType, TimestampType

from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.api import GLOB, LIKE, KeyRange, plan
from holdfast_pipeline.database import ReadTransaction
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.columns import RETAINED, Column
from holdfast_pipeline.sources.options import check_filter


@frozen
class Condition:
    """A piece of SQL with ``?`` for its values."""

    sql: str
    values: tuple[Any, ...] = ()


@frozen
class TopicSelection:
    """Topics in one of the ``ranges`` that also meet all ``conditions``.

    With ``checked``, the reader must still match each topic with the Topic Filter.
    """

    ranges: tuple[KeyRange, ...]
    conditions: tuple[Condition, ...]
    checked: bool = False


def selection(topic_filter: str, levels_present: Iterable[int], dialect: str) -> TopicSelection:
    """Plan the search for a valid Topic Filter; "" means every topic, also topics that begin with ``$``."""
    if topic_filter == EVERY_TOPIC:
        return TopicSelection((KeyRange("", None),), ())
    found = plan(topic_filter)
    if found.levels is None:
        return TopicSelection(found.ranges, ())
    operator, form = ("GLOB", GLOB) if dialect == "sqlite" else ("LIKE", LIKE)
    terms = found.terms(levels_present, form)
    if terms is None:
        return TopicSelection(found.ranges, (), checked=True)
    sql = " OR ".join(f"(levels = ? AND topic {operator} ?)" for _ in terms) or "1 = 0"
    values = [value for term in terms for value in (term.levels, term.pattern)]
    return TopicSelection(found.ranges, (Condition(f"({sql})", tuple(values)),))


def narrowed(ranges: Sequence[KeyRange], low: str, high: str | None) -> tuple[KeyRange, ...]:
    """Return the parts of the ranges from ``low`` up to but not including ``high``."""
    found = []
    for one in ranges:
        begin = max(one.low, low)
        end = one.high if high is None else high if one.high is None else min(one.high, high)
        if end is None or begin < end:
            found.append(KeyRange(begin, end))
    return tuple(found)


def divided(ranges: Sequence[KeyRange], bounds: Sequence[str]) -> list[tuple[KeyRange, ...]]:
    """Divide ranges at ascending bounds; empty parts are left out."""
    edges: list[str | None] = ["", *bounds, None]
    parts = [narrowed(ranges, low or "", high) for low, high in pairwise(edges)]
    return [part for part in parts if part]


def above_prefix(prefix: str) -> str | None:
    """Return the first string after all strings that begin with a prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1  # surrogates are not characters
            return prefix[: end - 1] + chr(following)
    return None


# Conditions that Spark pushes down, as SQL. Pure.
#
# Only a condition for which both databases give exactly Spark's answer becomes SQL. Spark evaluates all others
# itself.

_COLUMNS = {column.name: column for column in RETAINED if not column.large}
_COMPARED = {GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}
#: The only text column that Spark and both databases order in the same way.
_ORDERED_TEXT = "topic"
#: More values in a condition IN are left to Spark; SQLite allows some 32,000 in a statement.
_MAX_VALUES = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def pushed(filters: Iterable[Filter]) -> tuple[tuple[Condition, ...], list[Filter]]:
    """Return the conditions for the database, and the filters that are left to Spark."""
    conditions, rest = [], []
    for one in filters:
        condition = _condition(one)
        if condition is None:
            rest.append(one)
        else:
            conditions.append(condition)
    return tuple(conditions), rest


def _condition(one: Filter) -> Condition | None:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    column = _COLUMNS.get(path[0]) if len(path) == 1 else None
    if column is None:
        return None
    if isinstance(one, IsNull | IsNotNull):
        return Condition(f"{column.name} IS {'' if isinstance(one, IsNull) else 'NOT '}NULL")
    if isinstance(one, StringStartsWith):
        return _prefixed(column, one.value)
    if isinstance(one, EqualTo):
        return _bound(column, "=", [one.value], "?")
    if isinstance(one, In):
        if not 0 < len(one.value) <= _MAX_VALUES:
            return None
        return _bound(column, "IN", list(one.value), f"({', '.join('?' * len(one.value))})")
    operator = _COMPARED.get(type(one))
    if operator is None or (isinstance(column.spark, StringType) and column.name != _ORDERED_TEXT):
        return None
    return _bound(column, operator, [one.value], "?")  # type: ignore[attr-defined]  # all comparisons have a value


def _bound(column: Column, operator: str, values: list[Any], parameters: str) -> Condition | None:
    found = [_value(column, value) for value in values]
    if any(value is None for value in found):
        return None
    return Condition(f"{column.sql} {operator} {parameters}", tuple(found))


def _value(column: Column, value: Any) -> Any:
    """Return a value in the database's form; None if the column cannot be compared with it."""
    kind = column.spark
    if isinstance(kind, StringType):
        return value if isinstance(value, str) and "\0" not in value else None
    if isinstance(kind, IntegerType | LongType):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(kind, TimestampType) and isinstance(value, datetime):
        since = (value if value.tzinfo else value.astimezone(UTC)) - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return None


def _prefixed(column: Column, prefix: Any) -> Condition | None:
    if column.name != _ORDERED_TEXT or not isinstance(prefix, str) or "\0" in prefix:
        return None
    end = above_prefix(prefix)
    if end is None:
        return Condition("topic >= ?", (prefix,))
    return Condition("topic >= ? AND topic < ?", (prefix, end))


# Topic Filters as users write them: with named levels, such as ``site/{site}/temp``; and as regular expressions.

_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}\Z")


@frozen
class TopicPattern:
    """A pattern, its Topic Filter, and the place of each named level (from 0)."""

    text: str
    topic_filter: str
    levels: Mapping[str, int]


def topic_pattern(text: str) -> TopicPattern:
    """Read a pattern such as ``site/{site}/dev/{device}/temp``; ``+`` and ``#`` are allowed, too.

    Raises :class:`PipelineError`.
    """
    levels: dict[str, int] = {}
    parts = []
    for place, level in enumerate(text.split("/")):
        found = _NAME.match(level)
        if found is None and ("{" in level or "}" in level):
            raise PipelineError(
                f"pattern {text!r}: {level!r} is not a named level; a named level is {{name}}, of letters, digits and "
                "_, and nothing beside it"
            )
        if found is not None:
            name = found[1]
            if name.lower() in (known.lower() for known in levels):
                raise PipelineError(f"pattern {text!r}: two levels have the name {name}; choose different names")
            levels[name] = place
        parts.append("+" if found else level)
    topic_filter = "/".join(parts)
    if not topic_filter:
        raise PipelineError("a pattern has at least one character; for all topics, write #")
    check_filter(topic_filter)
    return TopicPattern(text, topic_filter, levels)


def pattern(topic_filter: str) -> str:
    """Return a regular expression, for Python and Java, that matches the topics that the Topic Filter matches."""
    levels = topic_filter.split("/")
    not_system = r"(?!\$)" if levels[0] in ("+", "#") else ""  # A wildcard does not match a topic that begins with $.
    if levels == ["#"]:
        return rf"{not_system}(?s:.*)"
    rest = r"(?s:/.*)?" if levels[-1] == "#" else ""
    named = levels[:-1] if rest else levels
    return not_system + "/".join("[^/]*" if level == "+" else re.escape(level) for level in named) + rest


# Bounds between partitions, chosen so that the partitions have similar numbers of rows.

# SQL is built from constants and counts only: values are always bound.
# ruff: noqa: S608

#: Rows that Postgres samples to find the bounds.
_SAMPLE = 10_000


def bounds(transaction: ReadTransaction, ranges: Sequence[KeyRange], parts: int) -> list[str]:
    """Return the topics at which to divide ranges into ``parts`` parts; fewer if there are few rows."""
    if parts < 2 or not ranges:
        return []
    if transaction.dialect == "postgresql":
        sample = _sampled(transaction, ranges)
        positions = [len(sample) * part // parts for part in range(1, parts)]
        return sorted({sample[position] for position in positions if 0 < position < len(sample)})
    where, values = within(ranges)
    (total,) = transaction.rows(f"SELECT count(*) FROM retained WHERE {where}", values)[0]
    found: set[str] = set()
    for part in range(1, parts):
        at = total * part // parts
        if at:
            found.update(
                topic
                for (topic,) in transaction.rows(
                    f"SELECT topic FROM retained WHERE {where} ORDER BY topic LIMIT 1 OFFSET ?", (*values, at)
                )
            )
    return sorted(found)


def within(ranges: Sequence[KeyRange]) -> tuple[str, tuple[str, ...]]:
    """Return the SQL condition that a topic is in one of the ranges, and its values."""
    terms, values = [], []
    for one in ranges:
        terms.append("topic >= ?" if one.high is None else "topic >= ? AND topic < ?")
        values += [one.low] if one.high is None else [one.low, one.high]
    return " OR ".join(f"({term})" for term in terms) or "1 = 0", tuple(values)


def _sampled(transaction: ReadTransaction, ranges: Sequence[KeyRange]) -> list[str]:
    """Return topics in order: all of a small table, the topics on some pages of a large one."""
    # The planner's estimate costs nothing; an exact count would read the whole table.
    (estimate,) = transaction.rows("SELECT reltuples FROM pg_class WHERE oid = CAST('retained' AS regclass)")[0]
    where, values = within(ranges)
    percent = 100.0 * _SAMPLE / estimate if estimate > _SAMPLE else 100.0
    sample = "" if percent >= 100 else f" TABLESAMPLE SYSTEM ({percent:.6f}) REPEATABLE (1)"
    return [
        topic
        for (topic,) in transaction.rows(f"SELECT topic FROM retained{sample} WHERE {where} ORDER BY topic", values)
    ]
