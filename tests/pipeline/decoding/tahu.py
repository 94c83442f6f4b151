"""Sparkplug B payloads, written byte by byte after the standard's sparkplug_b.proto."""

from __future__ import annotations

import struct


def varint(value: int) -> bytes:
    """Write a number."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written, value])


def numeric(number: int, value: int) -> bytes:
    """Write a field that is a number."""
    return varint(number << 3) + varint(value)


def sized(number: int, value: bytes) -> bytes:
    """Write a field with a length."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def metric(
    name: str | None = None,
    alias: int | None = None,
    datatype: int | None = None,
    integer: int | None = None,
    number: float | None = None,
    flag: bool | None = None,
    text: str | None = None,
) -> bytes:
    """Write a metric."""
    parts = []
    if name is not None:
        parts.append(sized(1, name.encode()))
    if alias is not None:
        parts.append(numeric(2, alias))
    if datatype is not None:
        parts.append(numeric(4, datatype))
    if integer is not None:
        parts.append(numeric(10 if integer < 2**32 else 11, integer))
    if number is not None:
        parts.append(varint(12 << 3 | 5) + struct.pack("<f", number))
    if flag is not None:
        parts.append(numeric(14, flag))
    if text is not None:
        parts.append(sized(15, text.encode()))
    return b"".join(parts)


def payload(*metrics: bytes, timestamp: int | None = None, seq: int | None = None) -> bytes:
    """Write a payload."""
    parts = [numeric(1, timestamp)] if timestamp is not None else []
    parts += [sized(2, each) for each in metrics]
    return b"".join(parts) + (numeric(3, seq) if seq is not None else b"")
