"""Read Sparkplug B payloads (``org.eclipse.tahu.protobuf.Payload``) as plain values. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import field, frozen

from holdfast_pipeline.decoding.decoder import BadPayload
from holdfast_pipeline.decoding.protobuf import Value, WireType, fields

#: The most metrics of one payload.
MOST_METRICS = 10_000
_COMPRESSED = "SPBV1.0_COMPRESSED"
#: The datatypes of metrics by their numbers [tck-id-payloads-metric-datatype-value].
DATATYPES = (
    "Unknown", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float", "Double", "Boolean",
    "String", "DateTime", "Text", "UUID", "DataSet", "Bytes", "File", "Template", "PropertySet", "PropertySetList",
    "Int8Array", "Int16Array", "Int32Array", "Int64Array", "UInt8Array", "UInt16Array", "UInt32Array", "UInt64Array",
    "FloatArray", "DoubleArray", "BooleanArray", "StringArray", "DateTimeArray",
)  # fmt: skip


#: The bits of the datatypes with a sign. Their values are sent as unsigned numbers.
SIGNED_BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}


def signed(integer: int, datatype: str | None) -> int:
    """Return an integer with the sign that its datatype gives it. Without a datatype it stays as it was sent."""
    bits = SIGNED_BITS.get(datatype or "")
    if bits is None:
        return integer
    low = integer % (1 << bits)
    return low - (1 << bits) if low >= 1 << bits - 1 else low


@frozen
class Payload:
    """A payload: its time (milliseconds since the epoch), its number in the sequence, and its metrics."""

    timestamp: int | None
    seq: int | None
    metrics: list[Mapping[str, Any]]


@frozen
class _Field:
    name: str
    wire: WireType
    value: Callable[[Any], Any] = field(default=lambda value: value)


def _text(value: memoryview) -> str:
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise BadPayload("a text in it is not UTF-8") from error


def _datatype(value: int) -> str:
    if value >= len(DATATYPES):
        raise BadPayload(f"it has the unknown datatype {value}")
    return DATATYPES[value]


def _fixed(form: str) -> Callable[[memoryview], float]:
    return lambda value: float(struct.unpack(form, value)[0])


_PAYLOAD = {
    1: _Field("timestamp", WireType.VARINT),
    2: _Field("metric", WireType.BYTES),
    3: _Field("seq", WireType.VARINT),
    4: _Field("uuid", WireType.BYTES, _text),
}
#: The fields of a metric. Data sets, templates and extensions stay bytes.
_METRIC = {
    1: _Field("name", WireType.BYTES, _text),
    2: _Field("alias", WireType.VARINT),
    3: _Field("timestamp", WireType.VARINT),
    4: _Field("datatype", WireType.VARINT, _datatype),
    5: _Field("historical", WireType.VARINT, bool),
    6: _Field("transient", WireType.VARINT, bool),
    7: _Field("is_null", WireType.VARINT, bool),
    10: _Field("integer", WireType.VARINT),
    11: _Field("integer", WireType.VARINT),
    12: _Field("number", WireType.FIXED32, _fixed("<f")),
    13: _Field("number", WireType.FIXED64, _fixed("<d")),
    14: _Field("flag", WireType.VARINT, bool),
    15: _Field("text", WireType.BYTES, _text),
    16: _Field("bytes", WireType.BYTES, bytes),
    17: _Field("bytes", WireType.BYTES, bytes),
    18: _Field("bytes", WireType.BYTES, bytes),
    19: _Field("bytes", WireType.BYTES, bytes),
}


def read(payload: bytes) -> Payload:
    """Read a payload. Raises :class:`BadPayload`."""
    found: dict[str, Any] = {}
    metrics: list[Mapping[str, Any]] = []
    for name, value in _known(memoryview(payload), _PAYLOAD):
        if name != "metric":
            found[name] = value
            continue
        if len(metrics) == MOST_METRICS:
            raise BadPayload(f"it has more than {MOST_METRICS} metrics")
        metrics.append(_metric(value))
    if found.get("uuid") == _COMPRESSED:
        raise BadPayload("it is compressed; compressed payloads cannot be read")
    return Payload(found.get("timestamp"), found.get("seq"), metrics)


def _metric(message: memoryview) -> Mapping[str, Any]:
    metric = dict(_known(message, _METRIC))
    if "name" not in metric and "alias" not in metric:
        raise BadPayload("it has a metric without a name and without an alias")
    return metric


def _known(message: memoryview, known: Mapping[int, _Field]) -> Iterator[tuple[str, Any]]:
    """Give the known fields. Newer versions of the standard may have others, which are skipped."""
    wire: WireType
    value: Value
    for number, wire, value in fields(message):
        meant = known.get(number)
        if meant is None:
            continue
        if meant.wire is not wire:
            raise BadPayload(f"the field {meant.name} (number {number}) has the wrong wire type")
        yield meant.name, meant.value(value)
