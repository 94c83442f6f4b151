"""The decoder of Protocol Buffers: a payload is one message of a type in a descriptor set.

``protoc`` writes the set: ``protoc --include_imports --descriptor_set_out=plant.desc plant.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any

from attrs import frozen

from holdfast_pipeline.decoding.decoder import BadPayload, Decoder
from holdfast_pipeline.decoding.framing import unframed
from holdfast_pipeline.decoding.protobuf import varint
from holdfast_pipeline.errors import PipelineError

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

_TIMESTAMP = "google.protobuf.Timestamp"


@frozen
class ProtobufType:
    """A type of messages, and the places in its file that lead to it: (2, 0) is the first type inside the third."""

    make: type[Message]
    place: tuple[int, ...]


class ProtobufMessages(Decoder):
    """Decodes messages of a type of :func:`protobuf_type`: each field by its name, an enumeration as its number.

    Fields that may be absent, and are, are left out. Unknown fields are ignored. With ``written``, payloads have the
    frame of a schema registry with the number of the schema they were written with; ``written`` has these types.
    """

    def __init__(self, kind: ProtobufType, written: Mapping[int, ProtobufType] | None = None) -> None:
        self._kind = kind
        self._written = written

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
    return ProtobufType(message_factory.GetMessageClass(kind), _place_of(kind))


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
