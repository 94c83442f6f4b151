"""Values as the types of a schema want them: what JSON has, and what Python has beside it. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from typing import Any, NoReturn

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from holdfast.pipeline.decoding.decoder import BadPayload
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.formatting import visible

Take = Callable[[Any], Any]

_EXACT = 1 << 53
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127


class _Unfit(Exception):
    """A value is not of its type; ``path`` are the names of the fields that lead to it, the last one first."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: list[str] = []


def row_of(schema: StructType, leaves_out: bool) -> Take:
    """Return what makes a tuple of a mapping. It raises :class:`BadPayload`, which names the field and the value.

    Raises :class:`PipelineError` for a schema with types that nothing is made for.
    """
    take = _struct(schema, leaves_out)

    def row(value: Any) -> Any:
        try:
            return take(value)
        except _Unfit as error:
            place = ".".join(visible(name, 60) for name in reversed(error.path))
            raise BadPayload(f"{place}: {error}" if place else str(error)) from error

    return row


def _taker(kind: DataType, leaves_out: bool) -> Take:
    if isinstance(kind, StructType):
        return _struct(kind, leaves_out)
    if isinstance(kind, ArrayType):
        return _array(_taker(kind.elementType, leaves_out))
    if isinstance(kind, DecimalType):
        return partial(_decimal, kind.precision, kind.scale)
    try:
        return _SIMPLE[type(kind)]
    except KeyError:
        raise PipelineError(
            f"the schema has the type {kind.simpleString()}, which payloads are not decoded to; the types are: "
            f"{', '.join(one.typeName() for one in _SIMPLE)}, decimal, array and struct"
        ) from None


def _struct(schema: StructType, leaves_out: bool) -> Take:
    fields = [(field.name, _taker(field.dataType, leaves_out), field.nullable) for field in schema.fields]
    names = frozenset(schema.names)
    if len({name.lower() for name in names}) < len(schema.names):
        raise PipelineError(f"the schema has names that differ only in case, or not at all: {', '.join(schema.names)}")

    def struct(value: Any) -> Any:
        if not isinstance(value, Mapping):
            _refuse(value, "is no object")
        if not leaves_out and not names.issuperset(value):
            unknown = next(name for name in value if name not in names)
            raise _Unfit(f"the field '{visible(str(unknown), 60)}' is not in the schema")
        found = []
        for name, take, nullable in fields:
            given = value.get(name)
            try:
                if given is None and not nullable:
                    raise _Unfit("is missing")
                found.append(None if given is None else take(given))
            except _Unfit as error:
                error.path.append(name)
                raise
        return tuple(found)

    return struct


def _array(take: Take) -> Take:
    def array(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            _refuse(value, "is no array")
        return [None if one is None else take(one) for one in value]

    return array


def _text(value: Any) -> str:
    """Return text as it is, and any other JSON as JSON."""
    try:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text.encode()
    except TypeError:
        _refuse(value, "is no text")
    except UnicodeEncodeError as error:
        raise _Unfit("has half of a character (a lone surrogate)") from error
    return text


def _boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(value, "is not true or false")


def _integer(bits: int, value: Any) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse(value, "is no whole number")
    if not -(1 << bits) <= value < 1 << bits:
        _refuse(value, f"does not fit {bits + 1} bits")
    return int(value)


def _double(largest: float, value: Any) -> float:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        _refuse(value, "is no number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not abs(found) <= largest:
        _refuse(value, "is no number that can be held")
    return found


def _decimal(precision: int, scale: int, value: Any) -> Decimal:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        _refuse(value, "is no number")
    # A float is meant as it is written, not as it is held.
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    try:
        found = exact.quantize(Decimal(1).scaleb(-scale), context=Context(prec=precision))
    except InvalidOperation:
        _refuse(value, f"does not fit decimal({precision},{scale})")
    if found != exact:
        _refuse(value, f"has more than {scale} digits after the point")
    return found


def _timestamp(value: Any) -> datetime:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(found, datetime):
            _refuse(value, "is no time; one is written as 2026-01-31T13:05:00Z")
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        _refuse(value, "is no time; one is written as 2026-01-31T13:05:00Z")


def _date(value: Any) -> date:
    try:
        found = date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, date) or isinstance(found, datetime):
        _refuse(value, "is no day; one is written as 2026-01-31")
    return found


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else _refuse(value, "is no binary value")


def _refuse(value: Any, why: str) -> NoReturn:
    try:
        shown = json.dumps(value, ensure_ascii=False, default=repr)
    except ValueError:
        shown = type(value).__name__  # An integer of more digits than Python writes.
    raise _Unfit(f"{visible(shown, 60)} {why}")


_SIMPLE: dict[type[DataType], Take] = {
    StringType: _text,
    BooleanType: _boolean,
    ByteType: partial(_integer, 7),
    ShortType: partial(_integer, 15),
    IntegerType: partial(_integer, 31),
    LongType: partial(_integer, 63),
    FloatType: partial(_double, _LARGEST_FLOAT),
    DoubleType: partial(_double, 1.7976931348623157e308),
    TimestampType: _timestamp,
    DateType: _date,
    BinaryType: _bytes,
}
