"""Infer the schema of JSON objects. Pure.

How it works: the objects form a tree of shapes, one for each place in them. A shape remembers the widest type of its
values. ``{"a": 1}`` and ``{"a": 2.5, "b": null}`` give ``a double, b string``: 1 and 2.5 are both doubles, and a column
of nulls must have some type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

#: Limits: deeper values become text, further fields and longer names are left out.
_DEEPEST = 16
_MOST_FIELDS = 1000
_LONGEST_NAME = 255
_LONG = 1 << 63
_DIGITS = 38
#: Each type holds the values of the types before it; a double may lose the last digits of an integer.
_NUMBERS: tuple[DataType, ...] = (LongType(), DecimalType(_DIGITS, 0), DoubleType())
#: The types of any array and of any object.
_ARRAY, _OBJECT = ArrayType(NullType()), StructType()


def inferred(rows: Iterable[Mapping[str, Any]]) -> StructType:
    """Return a schema that fits the rows.

    Different types of numbers become the wider one. Other different types, and null alone, become text. Fields over
    the limit, and names that differ from another name only in case, are left out.
    """
    found = _Shape(iter(range(_MOST_FIELDS)))
    for row in rows:
        found.add(row, 0)
    kind = found.settled()
    return kind if isinstance(kind, StructType) else StructType()


class _Shape:
    """The common type of the values in one place. ``spare`` gives one item for each field that may still be added."""

    def __init__(self, spare: Iterator[int]) -> None:
        self._spare = spare
        self._kind: DataType = NullType()
        self._element: _Shape | None = None
        #: By the names in lower case: for Spark, names that differ only in case are one name.
        self._fields: dict[str, tuple[str, _Shape]] = {}

    def add(self, value: Any, depth: int) -> None:
        """Widen the type for a value at a depth."""
        self._kind = _wider(self._kind, _kind(value, depth))
        if self._kind is _ARRAY and isinstance(value, list):
            self._element = self._element or _Shape(self._spare)
            for one in value:
                self._element.add(one, depth + 1)
        elif self._kind is _OBJECT and isinstance(value, dict):
            for name, one in value.items():
                known = self._field(name)
                if known is not None:
                    known.add(one, depth + 1)

    def settled(self) -> DataType:
        """Return the type for the schema: null alone becomes text, because Parquet has no columns without a type."""
        if self._kind is _ARRAY and self._element is not None:
            return ArrayType(self._element.settled())
        if self._kind is _OBJECT and self._fields:
            return StructType([StructField(name, shape.settled()) for name, shape in self._fields.values()])
        return self._kind if self._kind in _NUMBERS or isinstance(self._kind, BooleanType) else StringType()

    def _field(self, name: str) -> _Shape | None:
        known = self._fields.get(name.lower())
        if known is not None:
            return known[1] if known[0] == name else None
        if not is_name(name) or next(self._spare, None) is None:
            return None
        self._fields[name.lower()] = name, _Shape(self._spare)
        return self._fields[name.lower()][1]


def _kind(value: Any, depth: int) -> DataType:
    if value is None:
        return NullType()
    if isinstance(value, bool):
        return BooleanType()
    if isinstance(value, int):
        if -_LONG <= value < _LONG:
            return _NUMBERS[0]
        return _NUMBERS[1] if abs(value) < 10**_DIGITS else _NUMBERS[2]
    if isinstance(value, float):
        return _NUMBERS[2]
    if isinstance(value, str) or depth == _DEEPEST:
        return StringType()
    return _ARRAY if isinstance(value, list) else _OBJECT


def _wider(first: DataType, second: DataType) -> DataType:
    if isinstance(first, NullType):
        return second
    if isinstance(second, NullType) or first == second:
        return first
    if first in _NUMBERS and second in _NUMBERS:
        return max(first, second, key=_NUMBERS.index)
    return StringType()


def is_name(name: str) -> bool:
    """Tell whether a column can have the name: not empty, not too long, text without U+0000."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return 0 < len(name) <= _LONGEST_NAME and "\0" not in name
