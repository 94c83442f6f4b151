"""Conditions that Spark pushes down, as SQL. Pure.

Only a condition for which both databases give exactly Spark's answer becomes SQL. Spark evaluates all others itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

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

from holdfast_pipeline.sources.columns import RETAINED, Column
from holdfast_pipeline.sources.ranges import Condition, above_prefix

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
