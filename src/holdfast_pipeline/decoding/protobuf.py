"""Read Protocol Buffers without copying: the fields of a message, one after the other. Pure.

The reader holds only its place in the message, so a short hostile message cannot take much memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from holdfast_pipeline.decoding.decoder import BadPayload

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
