"""Encode Sparkplug B payloads by hand: the few fields of Protocol Buffers that births and data need."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from attrs import frozen

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_INT64, _DOUBLE, _BOOLEAN, _STRING = 4, 10, 11, 12


@frozen
class Metric:
    """A value with its name (in births), its alias (in data), or both."""

    value: bool | int | float | str
    name: str | None = None
    alias: int | None = None


def payload(at: int, seq: int, metrics: Sequence[Metric]) -> bytes:
    """Return a payload with its time (milliseconds since the epoch) and its sequence number (0 to 255)."""
    body = b"".join(_bytes(2, _metric(at, metric)) for metric in metrics)
    return _number(1, at) + body + _number(3, seq)


def _metric(at: int, metric: Metric) -> bytes:
    named = b"" if metric.name is None else _bytes(1, metric.name.encode())
    aliased = b"" if metric.alias is None else _number(2, metric.alias)
    datatype, value = _value(metric.value)
    return named + aliased + _number(3, at) + _number(4, datatype) + value


def _value(value: bool | int | float | str) -> tuple[int, bytes]:
    if isinstance(value, bool):  # before int, because a bool is an int, too
        return _BOOLEAN, _number(14, int(value))
    if isinstance(value, int):
        return _INT64, _number(11, value)
    if isinstance(value, float):
        return _DOUBLE, _key(13, _FIXED64) + struct.pack("<d", value)
    return _STRING, _bytes(15, value.encode())


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _number(field: int, value: int) -> bytes:
    return _key(field, _VARINT) + _varint(value % 2**64)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(found) + bytes([value])
