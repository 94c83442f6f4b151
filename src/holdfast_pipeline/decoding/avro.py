"""The decoder of Avro: a payload is one record, in the binary encoding, without a file's header.

Two kinds of schemas are refused, because a short payload of theirs could cost without end: arrays of items without any
bytes, and schemas that contain themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast_pipeline.decoding.plain_formats import BadPayload, Decoder, unframed
from holdfast_pipeline.errors import PipelineError

#: The fewest bytes of a value.
_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
#: The field of a payload that is no record.
_WHOLE = "value"
#: The types of columns for simple types, and for logical ones; all other values become text.
_TYPES: dict[str, DataType] = {
    "null": StringType(), "boolean": BooleanType(), "int": IntegerType(), "long": LongType(), "float": FloatType(),
    "double": DoubleType(), "bytes": BinaryType(), "string": StringType(), "fixed": BinaryType(), "enum": StringType(),
}  # fmt: skip
_LOGICAL_TYPES: dict[str, DataType] = {
    "timestamp-millis": TimestampType(), "timestamp-micros": TimestampType(), "local-timestamp-millis": TimestampType(),
    "local-timestamp-micros": TimestampType(), "date": DateType(), "time-millis": StringType(),
    "time-micros": StringType(), "uuid": StringType(),
}  # fmt: skip
_MOST_DIGITS = 38

AvroSchema = Any


class AvroMessages(Decoder):
    """Decodes Avro of a schema of :func:`avro_schema`; other values than records become the field ``value``.

    With ``written``, payloads have a frame with the number of the schema they were written with; ``written`` has these
    schemas, and the values are read as those of the decoder's own schema.
    """

    def __init__(self, schema: AvroSchema, written: Mapping[int, AvroSchema] | None = None) -> None:
        self._schema = schema
        self._written = written
        kind = _type(schema, {})
        self.schema = kind if isinstance(kind, StructType) else StructType([StructField(_WHOLE, kind)])

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the record. Raises :class:`BadPayload`."""
        from fastavro import schemaless_reader

        writer, body = self._schema, memoryview(payload)
        if self._written is not None:
            number, body = unframed(payload)
            if number not in self._written:
                raise BadPayload(f"it was written with the Avro schema {number}, which the registry does not have")
            writer = self._written[number]
        stream = BytesIO(body)
        try:
            found = schemaless_reader(stream, writer, None if writer is self._schema else self._schema)
        except EOFError as error:
            raise BadPayload("this Avro is cut short") from error
        except Exception as error:  # - fastavro has no error of its own for all kinds of bad bytes
            raise BadPayload(f"this is not Avro of this schema: {type(error).__name__}: {error}") from error
        rest = len(body) - stream.tell()
        if rest:
            raise BadPayload(f"this is not Avro of this schema: {rest} bytes are left over")
        return [found if isinstance(found, Mapping) else {_WHOLE: found}]


def avro_schema(text: bytes) -> AvroSchema:
    """Read a schema, a file ``.avsc``. Raises :class:`PipelineError`."""
    try:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType
    except ModuleNotFoundError as error:
        raise PipelineError("Avro needs fastavro: pip install 'holdfast[schemas]'") from error
    try:
        schema = parse_schema(json.loads(text))
    except UnknownType as error:
        raise PipelineError(f"is not an Avro schema: {error.name} is no type of it") from error
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"is not JSON ({error})") from error
    except (SchemaParseException, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(f"is not an Avro schema ({error})") from error
    _least_size(schema, dict(_LEAST), set())
    return schema


def _least_size(schema: AvroSchema, known: dict[str, int], inside: set[str]) -> int:
    """Return the fewest bytes of a value. ``known`` has those of named types, and ``inside`` the types around it."""
    if isinstance(schema, str):
        if schema in inside:
            raise PipelineError(f"is an Avro schema that contains itself, by {schema}: name a flat one")
        return known[schema]
    if isinstance(schema, list):
        for each in schema:
            _least_size(each, known, inside)
        return 1
    kind = schema["type"]
    match kind:
        case "record" | "error":
            name = schema["name"]
            size = sum(_least_size(each["type"], known, inside | {name}) for each in schema["fields"])
        case "enum":
            name, size = schema["name"], 1
        case "fixed":
            name, size = schema["name"], schema["size"]
        case "array" | "map":
            if kind == "array" and not _least_size(schema["items"], known, inside):
                raise PipelineError("is an Avro schema with an array of items without any bytes: there is no limit")
            if kind == "map":
                _least_size(schema["values"], known, inside)
            return 1
        case _:
            return _least_size(kind, known, inside)
    known[name] = size
    return int(size)


def _type(schema: AvroSchema, known: dict[str, DataType]) -> DataType:
    """Return the type of a column; ``known`` has those of named types. A union of several types becomes text."""
    if isinstance(schema, str):
        return known.get(schema) or _TYPES[schema]
    if isinstance(schema, list):
        kinds = [_type(each, known) for each in schema if each != "null"]
        return kinds[0] if len(kinds) == 1 else StringType()
    kind, found = schema["type"], _LOGICAL_TYPES.get(schema.get("logicalType", ""))
    if schema.get("logicalType") == "decimal" and schema.get("precision", 0) <= _MOST_DIGITS:
        found = DecimalType(schema["precision"], schema.get("scale", 0))
    if found is None:
        match kind:
            case "record" | "error":
                fields = [StructField(each["name"], _type(each["type"], known)) for each in schema["fields"]]
                found = StructType(fields) if fields else StringType()
            case "array":
                found = ArrayType(_type(schema["items"], known))
            case "map":  # Spark computes no checksum of maps
                found = StringType()
                _type(schema["values"], known)
            case _:
                found = _type(kind, known)
    if "name" in schema:
        known[schema["name"]] = found
    return found
