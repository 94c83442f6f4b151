"""Rows in the types of a schema: the function that executors call for each message. Pure.

It decodes a message, and converts the values, from JSON or from Python, to the types of the schema; or it returns the
reason against the payload. A converter is made once for each field. It never guesses: "21" is not a number, and 20.5 is
not an integer.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from itertools import islice
from typing import Any, NoReturn
from uuid import UUID

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
    StructField,
    StructType,
    TimestampType,
)

from holdfast_pipeline.decoding.plain_formats import BadPayload, Decoder, is_name
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.formatting import visible

Convert = Callable[[Any], Any]

#: The most rows of one message.
MOST_ROWS = 100_000
_LONGEST_REASON = 300
_EXACT = 1 << 53
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
#: The names of types in DDL, and the words of a schema.
_NAMED: Mapping[str, type[DataType]] = {
    "tinyint": ByteType, "byte": ByteType, "smallint": ShortType, "short": ShortType, "int": IntegerType,
    "integer": IntegerType, "bigint": LongType, "long": LongType, "float": FloatType, "real": FloatType,
    "double": DoubleType, "string": StringType, "binary": BinaryType, "boolean": BooleanType, "date": DateType,
    "timestamp": TimestampType,
}  # fmt: skip
_DECIMALS = ("decimal", "dec", "numeric")
_MOST_DIGITS = 38
_TOKEN = re.compile(
    r"""\s*(`(?:[^`]|``)+`|\w+|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[<>(),:])\s*""", re.ASCII | re.DOTALL
)


class _Unfit(Exception):
    """A value does not fit its type. ``path`` has the names of the fields that lead to it, the innermost first."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.path: list[str] = []


def row_of(schema: StructType, leaves_out: bool) -> Convert:
    """Return the function that converts a mapping to a tuple. It raises :class:`BadPayload` with field and value.

    Raises :class:`PipelineError` for a schema with a type that is not supported.
    """
    convert = _struct(schema, leaves_out)

    def row(value: Any) -> Any:
        try:
            return convert(value)
        except _Unfit as error:
            place = ".".join(visible(name, 60) for name in reversed(error.path))
            raise BadPayload(f"{place}: {error}" if place else str(error)) from error

    return row


def _converter(kind: DataType, leaves_out: bool) -> Convert:
    if isinstance(kind, StructType):
        return _struct(kind, leaves_out)
    if isinstance(kind, ArrayType):
        return _array(_converter(kind.elementType, leaves_out))
    if isinstance(kind, DecimalType):
        return partial(_decimal, kind.precision, kind.scale)
    try:
        return _SIMPLE[type(kind)]
    except KeyError:
        raise PipelineError(
            f"the schema has the type {kind.simpleString()}, which is not supported; the types are: "
            f"{', '.join(one.typeName() for one in _SIMPLE)}, decimal, array and struct"
        ) from None


def _struct(schema: StructType, leaves_out: bool) -> Convert:
    fields = [(field.name, _converter(field.dataType, leaves_out), field.nullable) for field in schema.fields]
    names = frozenset(schema.names)
    if len({name.lower() for name in names}) < len(schema.names):
        raise PipelineError(f"the schema has equal names, or names that differ only in case: {', '.join(schema.names)}")

    def struct(value: Any) -> Any:
        if not isinstance(value, Mapping):
            _refuse(value, "is not an object")
        if not leaves_out and not names.issuperset(value):
            unknown = next(name for name in value if name not in names)
            raise _Unfit(_why_unknown(str(unknown), names))
        found = []
        for name, convert, nullable in fields:
            given = value.get(name)
            try:
                if given is None and not nullable:
                    raise _Unfit("is missing")
                found.append(None if given is None else convert(given))
            except _Unfit as error:
                error.path.append(name)
                raise
        return tuple(found)

    return struct


def _why_unknown(name: str, names: frozenset[str]) -> str:
    """Return why a field has no column. Another sample of payloads would give a column to the last kind only."""
    shown = visible(name, 60)
    if name == "":
        return "a field has the empty name, which no column can have"
    if not is_name(name):
        return f"the field '{shown}' has a name that no column can have"
    alike = next((one for one in names if one.lower() == name.lower()), None)
    if alike is not None:
        return f"the field '{shown}' differs from the column '{visible(alike, 60)}' only in upper and lower case"
    return f"the field '{shown}' is not in the schema"


def _array(convert: Convert) -> Convert:
    def array(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            _refuse(value, "is not an array")
        return [None if one is None else convert(one) for one in value]

    return array


def _text(value: Any) -> str:
    """Return text unchanged, times and UUIDs as their usual text, and other values as JSON, with bytes in base64."""
    try:
        if isinstance(value, bytes):
            _refuse(value, "is not text")
        if isinstance(value, _WRITTEN):
            value = _written(value)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_written)
        text.encode()
    except TypeError:
        _refuse(value, "is not text")
    except UnicodeEncodeError as error:
        raise _Unfit("has half of a character (a lone surrogate)") from error
    return text


#: Values of Avro and Protobuf that JSON does not have, and that have a usual text.
_WRITTEN = (date, time, UUID, Decimal)


def _written(value: Any) -> str:
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    raise TypeError


def _boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(value, "is not true or false")


def _integer(bits: int, value: Any) -> int:
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse(value, "is not a whole number")
    if not -(1 << bits) <= value < 1 << bits:
        _refuse(value, f"does not fit {bits + 1} bits")
    return int(value)


def _double(largest: float, value: Any) -> float:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        _refuse(value, "is not a number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not abs(found) <= largest:
        _refuse(value, "does not fit the type")
    return found


def _decimal(precision: int, scale: int, value: Any) -> Decimal:
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        _refuse(value, "is not a number")
    # 0.1 means 0.1, although the nearest float is a little more: repr() gives the digits that were written.
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
            _refuse(value, "is not a time; write it like 2026-01-31T13:05:00Z")
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        _refuse(value, "is not a time; write it like 2026-01-31T13:05:00Z")


def _date(value: Any) -> date:
    try:
        found = date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, date) or isinstance(found, datetime):
        _refuse(value, "is not a date; write it like 2026-01-31")
    return found


def _bytes(value: Any) -> bytes:
    return (
        bytes(value) if isinstance(value, bytes | bytearray | memoryview) else _refuse(value, "is not a binary value")
    )


def _refuse(value: Any, why: str) -> NoReturn:
    try:
        shown = json.dumps(value, ensure_ascii=False, default=repr)
    except ValueError:
        shown = type(value).__name__  # an integer with more digits than Python writes
    raise _Unfit(f"{visible(shown, 60)} {why}")


_SIMPLE: dict[type[DataType], Convert] = {
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


class DecodeFunction:
    """Decodes one message at a time, with a decoder and the schema of its rows.

    Raises :class:`holdfast_pipeline.errors.PipelineError` for a schema with a type that is not supported.
    """

    def __init__(self, decoder: Decoder, schema: StructType) -> None:
        self._decoder = decoder
        self._schema = schema
        self._row = self._made()

    def __call__(self, topic: str, payload: bytes) -> tuple[list[Any] | None, str | None]:
        """Return the rows, or None and the reason against the payload."""
        try:
            rows = [self._row(row) for row in islice(self._decoder.decode(topic, bytes(payload)), MOST_ROWS + 1)]
        except BadPayload as error:
            return None, visible(str(error), _LONGEST_REASON)
        except Exception as error:  # noqa: BLE001 - one payload must not end the job
            return None, visible(f"the decoder failed: {type(error).__name__}: {error}", _LONGEST_REASON)
        if len(rows) > MOST_ROWS:
            return None, f"it has more than {MOST_ROWS} rows"
        return rows, None

    @property
    def result(self) -> StructType:
        """The type of the result, for Spark."""
        return StructType(
            [StructField("rows", ArrayType(relaxed(self._schema))), StructField("reason", StringType())]
        )  # fmt: skip

    def _made(self) -> Convert:
        return row_of(self._schema, self._decoder.leaves_out)

    def __getstate__(self) -> dict[str, Any]:
        # The converters are local functions, which cannot be pickled: each executor makes its own.
        return {"_decoder": self._decoder, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._row = self._made()


def relaxed(schema: StructType) -> StructType:
    """Return the schema with nullable fields. Payloads without a NOT NULL field are bad before Spark sees a row."""
    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


def parsed(text: str) -> StructType:
    """Return the schema that a text of Spark's DDL describes, as in ``t double NOT NULL, at struct<lat: int>``.

    Spark has no parser without a session, and a schema is read before one starts, or where none does. Raises
    :class:`PipelineError`.
    """
    try:
        return _Ddl(text).schema()
    except RecursionError:
        raise PipelineError("the schema has too many types inside each other") from None
    except ValueError as error:
        raise PipelineError(
            f"schema {text!r} is not understood ({error}); "
            "write it as in: temperature double, unit string, tags array<string>"
        ) from error


class _Ddl:
    """Reads a text of DDL from left to right. Raises ValueError with the place that is not understood."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        place = 0
        text = text.strip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise ValueError(f"at {text[place : place + 20].strip()!r}")
            self._tokens.append(found[1])
            place = found.end()
        self._tokens.reverse()

    def schema(self) -> StructType:
        """Read all of it: fields, or one struct."""
        if [token.lower() for token in self._tokens[:-3:-1]] == ["struct", "<"]:
            found = self._type()
            assert isinstance(found, StructType)
        else:
            found = self._fields()
        if self._tokens:
            raise ValueError(f"at {self._tokens[-1]!r}")
        return found

    def _fields(self) -> StructType:
        fields = [self._field()]
        while self._takes(","):
            fields.append(self._field())
        return StructType(fields)

    def _field(self) -> StructField:
        name = self._next("a name")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not name.isidentifier() and not name[0].isdigit():
            raise ValueError(f"{name!r} is not a name")
        self._takes(":")
        kind = self._type()
        nullable = not self._takes("not")
        if not nullable:
            self._require("null")
        if self._takes("comment"):
            self._next("a comment")
        return StructField(name, kind, nullable)

    def _type(self) -> DataType:
        name = self._next("a type").lower()
        if name == "array":
            self._require("<")
            kind: DataType = ArrayType(self._type())
            self._require(">")
        elif name == "struct":
            self._require("<")
            kind = self._fields()
            self._require(">")
        elif name in _DECIMALS:
            kind = DecimalType(*self._digits())
        elif name in _NAMED:
            kind = _NAMED[name]()
        else:
            raise ValueError(f"{name!r} is not one of {', '.join(_NAMED)}, decimal, array and struct")
        return kind

    def _digits(self) -> tuple[int, int]:
        """Read the precision and the scale of a decimal, 10 and 0 where they are left out."""
        if not self._takes("("):
            return 10, 0
        precision, scale = self._number(), 0
        if self._takes(","):
            scale = self._number()
        self._require(")")
        if not 0 <= scale <= precision <= _MOST_DIGITS or not precision:
            raise ValueError(f"decimal({precision},{scale}) has no digits, or more than {_MOST_DIGITS}")
        return precision, scale

    def _number(self) -> int:
        digits = self._next("a number")
        if not digits.isdecimal():
            raise ValueError(f"{digits!r} is not a number")
        return int(digits)

    def _next(self, wanted: str) -> str:
        if not self._tokens:
            raise ValueError(f"{wanted} is missing at the end")
        return self._tokens.pop()

    def _takes(self, token: str) -> bool:
        if not self._tokens or self._tokens[-1].lower() != token:
            return False
        self._tokens.pop()
        return True

    def _require(self, token: str) -> None:
        if not self._takes(token):
            raise ValueError(f"{token} is missing {f'before {self._tokens[-1]!r}' if self._tokens else 'at the end'}")
