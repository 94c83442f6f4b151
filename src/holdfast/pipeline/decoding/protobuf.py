"""Reading Protocol Buffers without copying: the fields of a message, one after the other. Pure.

Nothing is held but the place in the message, so that a few bytes cannot ask for much memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from holdfast.pipeline.decoding.decoder import BadPayload

#: A number, or the bytes of what has a length or is of 4 or 8 bytes.
Value = int | memoryview


class Wire(IntEnum):
    """How a field is written."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


_SIZES = {Wire.FIXED64: 8, Wire.FIXED32: 4}
_LONGEST_VARINT = 10
_UINT64 = (1 << 64) - 1


def fields(message: memoryview) -> Iterator[tuple[int, Wire, Value]]:
    """Give the number, the wire type and the value of each field in turn.

    Raises :class:`BadPayload` where the message is cut short or is none, also after fields that could be read.
    """
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise BadPayload(f"this is no protobuf: there is no field {number} (byte {place})")
        if wire == Wire.VARINT:
            value, place = _varint(message, place)
            yield number, Wire.VARINT, value
            continue
        if wire == Wire.BYTES:
            size, place = _varint(message, place)
        elif wire in _SIZES:
            size = _SIZES[Wire(wire)]
        else:
            raise BadPayload(f"this is no protobuf: there is no wire type {wire} (byte {place})")
        if size > len(message) - place:
            raise BadPayload(f"this is no whole protobuf: {size} bytes are promised, {len(message) - place} are there")
        yield number, Wire(wire), message[place : place + size]
        place += size


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(message[place : place + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            if value > _UINT64:
                raise BadPayload(f"this is no protobuf: a number has more than 64 bits (byte {place})")
            return value, place + count + 1
    if len(message) - place < _LONGEST_VARINT:
        raise BadPayload(f"this is no whole protobuf: it ends within a number (byte {place})")
    raise BadPayload(f"this is no protobuf: a number has more than {_LONGEST_VARINT} bytes (byte {place})")
