"""The schema that some JSON objects have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
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

#: What is nested deeper, and where an object has more fields, is not taken apart.
_DEEPEST = 16
_MOST_FIELDS = 1000
_LONG = 1 << 63
_DIGITS = 38
#: Each holds what those before it do; a double not to the last digit.
_NUMBERS: tuple[DataType, ...] = (LongType(), DecimalType(_DIGITS, 0), DoubleType())


def inferred(rows: Iterable[Mapping[str, Any]]) -> StructType:
    """Return a schema that the rows fit.

    Kinds of numbers are widened; where kinds have nothing in common, and where there is only null, it is text.
    """
    kind = _settled(_common((_kind(row, 0) for row in rows), StructType()))
    return kind if isinstance(kind, StructType) else StructType()


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
    if isinstance(value, list):
        return ArrayType(_common((_kind(one, depth + 1) for one in value), NullType()))
    fields = [StructField(name, _kind(one, depth + 1)) for name, one in value.items()]
    return _merged(StructType(), StructType(fields))


def _common(kinds: Iterable[DataType], start: DataType) -> DataType:
    return reduce(_merged, kinds, start)


def _merged(first: DataType, second: DataType) -> DataType:
    if first == second or isinstance(second, NullType):
        return first
    if isinstance(first, NullType):
        return second
    if first in _NUMBERS and second in _NUMBERS:
        return max(first, second, key=_NUMBERS.index)
    if isinstance(first, ArrayType) and isinstance(second, ArrayType):
        return ArrayType(_merged(first.elementType, second.elementType))
    if isinstance(first, StructType) and isinstance(second, StructType):
        return _fields_of_both(first, second)
    return StringType()


def _fields_of_both(first: StructType, second: StructType) -> StructType:
    """Names that differ only in case are one to Spark: the one that was first has the place."""
    fields = {field.name.lower(): field for field in first.fields}
    for field in second.fields:
        known = fields.get(field.name.lower())
        if known is None:
            if len(fields) < _MOST_FIELDS:
                fields[field.name.lower()] = field
        elif known.name == field.name:
            fields[field.name.lower()] = StructField(field.name, _merged(known.dataType, field.dataType))
    return StructType(list(fields.values()))


def _settled(kind: DataType) -> DataType:
    """Return what can be written: there is no file with columns of no kind."""
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_settled(kind.elementType))
    if isinstance(kind, StructType):
        if not kind.fields:
            return StringType()
        return StructType([StructField(field.name, _settled(field.dataType)) for field in kind.fields])
    return kind
