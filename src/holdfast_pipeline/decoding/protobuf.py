"""Protocol Buffers: their fields in turn, without a schema, and the decoder of messages of a type. Pure.

The reader of fields holds only its place in the message, so a short hostile message cannot take much memory. The
decoder needs a descriptor set: ``protoc --include_imports --descriptor_set_out=plant.desc plant.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from attrs import field as attribute
from attrs import frozen
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
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

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

#: A number, or the bytes of a field with a length or of 4 or 8 bytes.
Value = int | memoryview


class WireType(IntEnum):
    """The wire type of a field."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


_SIZES = {WireType.FIXED64: 8, WireType.FIXED32: 4}
_LONGEST_VARINT = 10
_UINT64 = (1 << 64) - 1


def fields(message: memoryview) -> Iterator[tuple[int, WireType, Value]]:
    """Give the number, the wire type and the value of each field in turn.

    Raises :class:`BadPayload` for another kind of message and for one cut short, also after some fields were read.
    """
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise BadPayload(f"this is not protobuf: there is no field {number} (byte {place})")
        if wire == WireType.VARINT:
            value, place = varint(message, place)
            yield number, WireType.VARINT, value
            continue
        if wire == WireType.BYTES:
            size, place = varint(message, place)
        elif wire in _SIZES:
            size = _SIZES[WireType(wire)]
        else:
            raise BadPayload(f"this is not protobuf: there is no wire type {wire} (byte {place})")
        if size > len(message) - place:
            raise BadPayload(
                f"this protobuf is cut short: a field has {size} bytes, only {len(message) - place} are left"
            )
        yield number, WireType(wire), message[place : place + size]
        place += size


def varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the number that begins at a place, and the place behind it. Raises :class:`BadPayload`."""
    value = 0
    for count, byte in enumerate(message[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value > _UINT64:
                raise BadPayload(f"this is not protobuf: a number has more than 64 bits (byte {place})")
            return value, place + count + 1
    if len(message) - place < _LONGEST_VARINT:
        raise BadPayload(f"this protobuf is cut short: it ends within a number (byte {place})")
    raise BadPayload(f"this is not protobuf: a number has more than {_LONGEST_VARINT} bytes (byte {place})")


_TIMESTAMP = "google.protobuf.Timestamp"
#: The types of columns for the types of fields, by their numbers: those of an enumeration is that of its numbers.
_COLUMN_TYPES: dict[int, DataType] = (
    dict.fromkeys((5, 15, 17, 14), IntegerType())  # int32, sfixed32, sint32, enum
    | dict.fromkeys((3, 16, 18, 13, 7), LongType())  # int64, sfixed64, sint64, uint32, fixed32
    | dict.fromkeys((4, 6), DecimalType(20, 0))  # uint64, fixed64
    | {1: DoubleType(), 2: FloatType(), 8: BooleanType(), 9: StringType(), 12: BinaryType()}
)


@frozen
class ProtobufType:
    """A type of messages, and the places in its file that lead to it: (2, 0) is the first type inside the third.

    It is pickled as the arguments of :func:`protobuf_type`, ``source``: its class exists in one process only.
    """

    make: type[Message]
    place: tuple[int, ...]
    source: tuple[bytes, str] = attribute(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes it again in another process."""
        return protobuf_type, self.source


class ProtobufMessages(Decoder):
    """Decodes messages of a type of :func:`protobuf_type`: each field by its name, an enumeration as its number.

    Fields that may be absent, and are, are left out. Unknown fields are ignored. With ``written``, payloads have the
    frame of a schema registry with the number of the schema they were written with; ``written`` has these types.
    """

    leaves_out = True  # another version of the schema may have more fields

    def __init__(self, kind: ProtobufType, written: Mapping[int, ProtobufType] | None = None) -> None:
        self._kind = kind
        self._written = written
        self.schema = _struct(kind.make.DESCRIPTOR, frozenset())

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return the message. Raises :class:`BadPayload`."""
        from google.protobuf.message import DecodeError

        kind, body = self._kind, memoryview(payload)
        if self._written is not None:
            number, body = unframed(payload)
            if number not in self._written:
                raise BadPayload(f"it was written with the protobuf schema {number}, which the registry does not have")
            kind = self._written[number]
            place, body = _place_in_file(body)
            if place != kind.place:
                raise BadPayload(f"it is another message of the schema {number} than {kind.make.DESCRIPTOR.full_name}")
        message = kind.make()
        try:
            message.ParseFromString(bytes(body))
        except DecodeError as error:
            raise BadPayload(f"this is not protobuf of the type {kind.make.DESCRIPTOR.full_name}") from error
        return [_fields(message)]


def protobuf_type(descriptors: bytes, name: str) -> ProtobufType:
    """Return the type with a full name, such as ``plant.v1.Status``, in a descriptor set.

    Raises :class:`PipelineError`.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
    except ModuleNotFoundError as error:
        raise PipelineError("Protobuf needs protobuf: pip install 'holdfast[schemas]'") from error
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        for file in files.file:
            pool.Add(file)
        found = [pool.FindFileByName(file.name) for file in files.file]
    except (DecodeError, TypeError, KeyError) as error:
        raise PipelineError(
            "is no complete descriptor set; write it with protoc --include_imports --descriptor_set_out=FILE"
        ) from error
    if not found:
        raise PipelineError("is an empty descriptor set")
    try:
        kind = pool.FindMessageTypeByName(name)
    except KeyError as error:
        names = sorted(each.full_name for file in found for each in file.message_types_by_name.values())
        raise PipelineError(f"has no message {name!r}; it has: {', '.join(names)}") from error
    return ProtobufType(message_factory.GetMessageClass(kind), _place_of(kind), (descriptors, name))


def _place_of(kind: Descriptor) -> tuple[int, ...]:
    around = kind.containing_type
    if around is None:
        return (list(kind.file.message_types_by_name).index(kind.name),)
    return (*_place_of(around), [each.name for each in around.nested_types].index(kind.name))


def _place_in_file(body: memoryview) -> tuple[tuple[int, ...], memoryview]:
    """Read the places of the message in its file: how many, then each; a single 0 is the first type."""
    count, at = _signed(body, 0)
    if count == 0:
        return (0,), body[at:]
    places = []
    for _ in range(count):
        place, at = _signed(body, at)
        places.append(place)
    return tuple(places), body[at:]


def _signed(body: memoryview, at: int) -> tuple[int, int]:
    number, after = varint(body, at)
    return (number >> 1) ^ -(number & 1), after


def _fields(message: Message) -> dict[str, Any]:
    return {
        field.name: _value(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is None:
        return list(value) if field.is_repeated else value
    if field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        return {str(key): _value(kind, each) for key, each in value.items()}
    return [_message(each) for each in value] if field.is_repeated else _message(value)


def _message(value: Any) -> Any:
    """Return a message as its fields, and a time as a time."""
    if value.DESCRIPTOR.full_name == _TIMESTAMP:
        try:
            return value.ToDatetime(UTC)
        except (ValueError, OverflowError) as error:
            raise BadPayload("a time is not between the years 1 and 9999") from error
    return _fields(value)


def _struct(kind: Descriptor, around: frozenset[str]) -> StructType:
    """Return the columns of a message; ``around`` are the types that it is inside of."""
    inside = around | {kind.full_name}
    return StructType([StructField(field.name, _column_type(field, inside)) for field in kind.fields])


def _column_type(field: FieldDescriptor, around: frozenset[str]) -> DataType:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return StringType()  # Spark computes no checksum of maps
    if kind is None:
        found = _COLUMN_TYPES[field.type]
    elif kind.full_name == _TIMESTAMP:
        found = TimestampType()
    else:  # a message that contains itself has no end of columns, and one without fields has none: both become text
        found = StringType() if kind.full_name in around or not kind.fields else _struct(kind, around)
    return ArrayType(found) if field.is_repeated else found
