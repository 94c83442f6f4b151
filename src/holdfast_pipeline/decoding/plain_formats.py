"""The base class of decoders, and the decoders of JSON and of plain numbers and switches.

JSON: an object is one row, an array of objects is a row for each object. How a schema is inferred: the objects form a
tree of shapes, one for each place in them. A shape counts the kinds of its values, and remembers the widest number.
``{"a": 1}`` and ``{"a": 2.5, "b": null}`` give ``a double, b string``: 1 and 2.5 are both doubles, and a column of
nulls must have some type. Of a hundred values of ``a``, one text is an outlier: the column stays a number, and the
payload with the text is bad.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from holdfast_pipeline.formatting import visible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# The base class of decoders, their reasons against payloads, and the frame of schema registries before payloads.

#: The bytes of a frame: a byte 0, then the number of the schema in four bytes. Confluent's serializers write it, and
#: those of compatible registries.
_FRAME = 5
#: The numbers that a schema can have.
NUMBERS = range(2**31)
#: The parts in which two reasons of one kind may differ: quoted values and numbers. For Python and Java.
VARIED = r"""'.*'|".*"|\d+"""


class BadPayload(ValueError):
    """The decoder cannot read a payload. The text says why; it is stored beside the payload."""


class Decoder(ABC):
    """Turns messages into rows. Spark sends the decoder to the executors, so all its fields can be pickled.

    ``patterns`` are the default topics, such as ``site/{site}/dev/{device}/temp``; () if the user must name them.
    ``schema`` is the schema of the rows, as Spark's DDL ("value double, unit string") or as a StructType; None if it
    must be inferred. A field outside the schema makes a payload bad. With ``leaves_out`` it is left out instead.
    """

    patterns: tuple[str, ...] = ()
    schema: str | StructType | None = None
    leaves_out: bool = False

    @abstractmethod
    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a message: none, one or several. A row has the present fields.

        Raises :class:`BadPayload` for a payload that cannot be read. Any other exception, and a value that does not fit
        the schema, make the payload bad, too: no payload ends a job.
        """

    def infer(self, sample: Sequence[bytes]) -> StructType:
        """Return the schema of a sample of payloads, some of which may be bad.

        It is called once, if ``schema`` is None, in the process that started the job.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither a schema nor a way to infer one")

    def complete(self, rows: DataFrame, order: str) -> DataFrame:
        """Return the final rows of all messages. A decoder may add values here that depend on several messages.

        ``rows`` has the fields of the schema, ``topic`` and other columns. ``order`` is the column that orders the
        messages by time. By default the rows do not change.
        """
        return rows


def unframed(payload: bytes) -> tuple[int, memoryview]:
    """Return the number of the schema, and what follows the frame. Raises :class:`BadPayload`."""
    if len(payload) < _FRAME or payload[0] != 0:
        raise BadPayload("it does not begin with the frame of a schema registry: 0, and the number of the schema")
    return int.from_bytes(payload[1:_FRAME], "big"), memoryview(payload)[_FRAME:]


def alike(reason: str) -> str:
    """Return what a reason has in common with others of its kind, which differ only in values."""
    return re.sub(VARIED, "", reason)


class JsonDocuments(Decoder):
    """Decodes JSON to the fields of a given schema, or to all fields if the schema is inferred.

    A given schema chooses fields, so others are left out. With an inferred schema, an unknown field makes the payload
    bad: otherwise the field would be lost without notice.
    """

    def __init__(self, schema: str | StructType | None = None) -> None:
        self.schema = schema
        self.leaves_out = schema is not None

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the objects in the payload. Raises :class:`BadPayload`."""
        return objects(payload)

    def infer(self, sample: Sequence[bytes]) -> StructType:
        """Return a schema that fits the good payloads of a sample, except for outliers."""
        rows: list[Mapping[str, Any]] = []
        for payload in sample:
            try:
                rows += objects(payload)
            except BadPayload:
                continue  # It is a bad payload again when it is decoded.
        return inferred(rows)


def objects(payload: bytes) -> list[Mapping[str, Any]]:
    """Return the objects in a payload. Raises :class:`BadPayload`."""
    try:
        found = json.loads(
            payload.decode(), parse_constant=_reject_constant, parse_float=_finite, object_pairs_hook=_object
        )
    except UnicodeDecodeError as error:
        raise BadPayload("this is not text in UTF-8") from error
    except BadPayload:
        raise
    except RecursionError as error:
        raise BadPayload("this is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise BadPayload(f"this is not JSON: {error}") from error
    except ValueError as error:  # Python's bound for integers
        raise BadPayload("a number has too many digits") from error
    rows = found if isinstance(found, list) else [found]
    if not all(isinstance(row, dict) for row in rows):
        raise BadPayload("this is JSON, but neither an object nor an array of objects")
    return rows


def _reject_constant(name: str) -> NoReturn:
    raise BadPayload(f"this is not JSON: JSON has no {name}")


def _finite(text: str) -> float:
    """Return a number; JSON allows numbers that no type of a table can hold."""
    found = float(text)
    if math.isinf(found):
        raise BadPayload(f"the number {visible(text, 60)} is too large for 64 bits")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Of equal names, other readers of JSON choose different ones."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BadPayload(f"the field '{visible(twice, 60)}' occurs twice in one object")
    return found


#: Limits: deeper values become text, further fields and longer names are left out.
_DEEPEST = 16
_MOST_FIELDS = 1000
_LONGEST_NAME = 255
_LONG = 1 << 63
_DIGITS = 38
#: Each type holds the values of the types before it; a double may lose the last digits of an integer.
_NUMBERS: tuple[DataType, ...] = (LongType(), DecimalType(_DIGITS, 0), DoubleType())
#: With at least so large a share of the values in a place, one kind decides the type, and the others are outliers.
_DECIDES = 0.95


class _Kind(Enum):
    """The kinds of values that have a type in common."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"
    ARRAY = "array"
    OBJECT = "object"


def inferred(rows: Iterable[Mapping[str, Any]]) -> StructType:
    """Return a schema that fits the rows, except for outliers.

    Different types of numbers become the wider one. Other different types become text, unless nearly all values are of
    one kind; so does null alone. Fields over the limit, and names that differ from another name only in case, are left
    out.
    """
    found = _Shape(iter(range(_MOST_FIELDS)))
    for row in rows:
        found.add(row, 0)
    kind = found.settled()
    return kind if isinstance(kind, StructType) else StructType()


class _Shape:
    """The values in one place. ``spare`` gives one item for each field that may still be added."""

    def __init__(self, spare: Iterator[int]) -> None:
        self._spare = spare
        self._counts: Counter[_Kind] = Counter()
        self._widest = 0
        self._element: _Shape | None = None
        #: By the names in lower case: for Spark, names that differ only in case are one name.
        self._fields: dict[str, tuple[str, _Shape]] = {}

    def add(self, value: Any, depth: int) -> None:
        """Count a value at a depth. Null has no kind."""
        if value is None:
            return
        kind = _kind(value, depth)
        self._counts[kind] += 1
        if kind is _Kind.NUMBER:
            self._widest = max(self._widest, _width(value))
        elif kind is _Kind.ARRAY:
            self._element = self._element or _Shape(self._spare)
            for one in value:
                self._element.add(one, depth + 1)
        elif kind is _Kind.OBJECT:
            for name, one in value.items():
                known = self._field(name)
                if known is not None:
                    known.add(one, depth + 1)

    def settled(self) -> DataType:
        """Return the type for the schema: null alone becomes text, because Parquet has no columns without a type."""
        kind, count = next(iter(self._counts.most_common(1)), (_Kind.TEXT, 0))
        if count < _DECIDES * self._counts.total():
            return StringType()
        if kind is _Kind.ARRAY and self._element is not None:
            return ArrayType(self._element.settled())
        if kind is _Kind.OBJECT and self._fields:
            return StructType([StructField(name, shape.settled()) for name, shape in self._fields.values()])
        if kind is _Kind.NUMBER:
            return _NUMBERS[self._widest]
        return BooleanType() if kind is _Kind.BOOLEAN else StringType()

    def _field(self, name: str) -> _Shape | None:
        known = self._fields.get(name.lower())
        if known is not None:
            return known[1] if known[0] == name else None
        if not is_name(name) or next(self._spare, None) is None:
            return None
        self._fields[name.lower()] = name, _Shape(self._spare)
        return self._fields[name.lower()][1]


def _kind(value: Any, depth: int) -> _Kind:
    if isinstance(value, bool):
        return _Kind.BOOLEAN
    if isinstance(value, int | float):
        return _Kind.NUMBER
    if isinstance(value, str) or depth == _DEEPEST:
        return _Kind.TEXT
    return _Kind.ARRAY if isinstance(value, list) else _Kind.OBJECT


def _width(value: Any) -> int:
    """Return the place in :data:`_NUMBERS` of the narrowest type that holds a number."""
    if isinstance(value, float) or abs(value) >= 10**_DIGITS:
        return 2
    return 0 if -_LONG <= value < _LONG else 1


def is_name(name: str) -> bool:
    """Tell whether a column can have the name: not empty, not too long, text without U+0000."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return 0 < len(name) <= _LONGEST_NAME and "\0" not in name


# float() also accepts 1_000, nan, infinity, and the digits of every script.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_COMMAS = re.compile(r"[+-]?[0-9.' ]*[0-9](?:,[0-9]+)+(?:\.[0-9]+)?\Z")
_NO_NUMBERS = ("nan", "inf", "infinity")
_WORDS = {"on": True, "true": True, "off": False, "false": False}
#: The most bytes of a number.
_LONGEST = 64


class NumberDecoder(Decoder):
    """Decodes one number, or ON, OFF, TRUE or FALSE in any case: these are 1 or 0, and a ``state``."""

    schema = "value double NOT NULL, state boolean"

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the one row. Raises :class:`BadPayload`."""
        text = _text(payload)
        state = _WORDS.get(text.lower())
        return [{"value": number(text) if state is None else float(state), "state": state}]


def number(text: str) -> float:
    """Return the number in a text. Raises :class:`BadPayload` for another text, and for an ambiguous number."""
    if not _NUMBER.match(text):
        raise BadPayload(_why_no_number(text))
    value = float(text)
    if math.isinf(value):
        raise BadPayload(f"'{visible(text)}' is too large for a double")
    return value


def _why_no_number(text: str) -> str:
    """Return why a text is no number. Each cause has its own words, so that each is counted with its own example."""
    shown = f"'{visible(text)}'"
    if _COMMAS.match(text):
        return f"{shown} has a comma, which may or may not be a decimal point; write numbers like 21.5"
    if text[0] in "{[":
        return f"{shown} is not a number but looks like JSON; the format json reads it"
    if text.lower().lstrip("+-") in _NO_NUMBERS:
        return f"{shown} is not a number that a table compares or adds up"
    if text[0] in "+-.0123456789":
        return f"{shown} is not a number alone; write it like 21.5, without a unit and other signs"
    return f"{shown} is not a number such as 21.5, and not ON, OFF, TRUE or FALSE"


def _text(payload: bytes) -> str:
    if len(payload) > _LONGEST:
        raise BadPayload(f"{len(payload)} bytes are too many for a number; at most {_LONGEST} are allowed")
    try:
        text = payload.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise BadPayload("this is not text in UTF-8") from error
    if not text:
        raise BadPayload("this is blank")
    return text
