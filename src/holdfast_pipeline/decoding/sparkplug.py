"""Sparkplug B (``org.eclipse.tahu.protobuf.Payload``): its decoder, with a row for each metric, and its payloads.

How it works: a birth (NBIRTH, DBIRTH) names all metrics of a node or device, with alias and datatype. Later messages
may have only the alias. So :meth:`Sparkplug.decode` returns the values as they were sent, and
:meth:`Sparkplug.complete` adds names and datatypes from the last birth before each message. An example::

    type    metric  alias  datatype  integer          becomes
    DBIRTH  temp    7      Int8      20               temp, Int8, 20
    DDATA           7                255              temp, Int8, -1   (Int8 is sent as an unsigned number)
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.window import Window

from holdfast_pipeline.decoding.plain_formats import BadPayload, Decoder
from holdfast_pipeline.decoding.protobuf import Value, WireType, fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The types of messages, and whether their topics name a device.
_TYPES = {
    "NBIRTH": False, "NDATA": False, "NDEATH": False, "NCMD": False,
    "DBIRTH": True, "DDATA": True, "DDEATH": True, "DCMD": True,
}  # fmt: skip
_NAMESPACE = "spBv1.0"
_BIRTHS = ("NBIRTH", "DBIRTH")
_LAST_MILLISECOND = 253_402_300_799_999
_STATES = {"ONLINE": True, "OFFLINE": False}


class Sparkplug(Decoder):
    """Decodes NBIRTH, NDATA, NDEATH, DBIRTH, DDATA, DDEATH, commands and STATE.

    A message without metrics is one row without a metric. The datatype of a metric decides which value columns are
    filled.
    """

    patterns = (f"{_NAMESPACE}/#",)
    schema = (
        "type string, `group` string, node string, device string, host string, message_at timestamp, "
        "message_seq decimal(20,0), metric string, alias decimal(20,0), datatype string, measured_at timestamp, "
        "historical boolean, transient boolean, is_null boolean, "
        "integer decimal(20,0), number double, flag boolean, text string, bytes binary"
    )

    def decode(self, topic: str, payload: bytes) -> Iterable[Mapping[str, Any]]:
        """Return a row for each metric, or the one row of a STATE. Raises :class:`BadPayload`."""
        levels = topic.split("/")
        if levels[:-1] in ([_NAMESPACE, "STATE"], ["STATE"]):
            return [{"type": "STATE", "host": levels[-1], **_state(payload)}]
        shared = _place(levels)
        found = read(payload)
        shared |= {"message_at": _time(found.timestamp), "message_seq": found.seq}
        return [shared | _row(metric, found.timestamp) for metric in found.metrics] or [shared]

    def complete(self, rows: DataFrame, order: str) -> DataFrame:
        """Add the metric's name and datatype from the last birth, and convert integers by their datatype."""
        source = ("group", "node", "device")
        births = F.col("type").isin(*_BIRTHS)
        so_far = Window.partitionBy(*source).orderBy(order)
        born = rows.withColumn("_born", F.max(F.when(births, F.col(order))).over(so_far))
        by_alias = Window.partitionBy(*source, "_born", "alias")
        name = F.when(F.col("alias").isNotNull(), F.max(F.when(births, F.col("metric"))).over(by_alias))
        named = born.withColumn("metric", F.coalesce("metric", name))
        by_name = Window.partitionBy(*source, "_born", "metric")
        kind = F.when(F.col("metric").isNotNull(), F.max(F.when(births, F.col("datatype"))).over(by_name))
        known = named.withColumn("datatype", F.coalesce("datatype", kind)).drop("_born")
        return _typed(known)


def _typed(rows: DataFrame) -> DataFrame:
    """Convert integers by their datatype: to times, or to signed numbers. Without a datatype they stay unsigned."""
    kind, raw = F.col("datatype"), F.col("integer")
    milliseconds = F.when((kind == "DateTime") & (raw <= _LAST_MILLISECOND), raw.cast("long"))
    integer = F.when(kind != "DateTime", raw).otherwise(F.when(kind.isNull(), raw))
    for datatype, bits in SIGNED_BITS.items():  # as signed() below, in Spark
        low = raw % F.lit(Decimal(1 << bits))
        negative = low - F.lit(Decimal(1 << bits))
        signed = F.when(low >= F.lit(Decimal(1 << bits - 1)), negative).otherwise(low)
        integer = F.when(kind == datatype, signed).otherwise(integer)
    typed = integer.cast("decimal(20,0)")
    return rows.withColumns(
        {
            "integer": typed,
            "number": F.coalesce("number", typed.cast("double")),
            "time": F.timestamp_millis(milliseconds),
        }
    )


def _place(levels: list[str]) -> dict[str, Any]:
    if levels[0] != _NAMESPACE or len(levels) not in (4, 5):
        raise BadPayload(f"the topic is neither {_NAMESPACE}/GROUP/TYPE/NODE nor {_NAMESPACE}/GROUP/TYPE/NODE/DEVICE")
    _, group, kind, node = levels[:4]
    with_device = _TYPES.get(kind)
    if with_device is None:
        raise BadPayload(f"the topic has an unknown type; the types are {', '.join(_TYPES)} and STATE")
    if with_device != (len(levels) == 5):
        raise BadPayload(f"a topic of {kind} {'has a' if with_device else 'has no'} device")
    return {"type": kind, "group": group, "node": node, "device": levels[4] if with_device else None}


def _row(metric: Mapping[str, Any], message_at: int | None) -> dict[str, Any]:
    row = {name: value for name, value in metric.items() if name not in ("name", "timestamp")}
    at = metric.get("timestamp", message_at)
    return row | {"metric": metric.get("name"), "measured_at": _time(at)}


def _state(payload: bytes) -> dict[str, Any]:
    """Read the state of a host: JSON since version 3.0, one word before."""
    try:
        text = payload.decode()
        if text in _STATES:
            return {"flag": _STATES[text]}
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadPayload("a STATE is JSON, ONLINE or OFFLINE") from error
    if not isinstance(said, dict) or not isinstance(said.get("online"), bool):
        raise BadPayload("a STATE has a field online, which is true or false")
    at = said.get("timestamp")
    if at is not None and (not isinstance(at, int) or isinstance(at, bool) or at < 0):
        raise BadPayload("the timestamp of a STATE is a whole number of milliseconds")
    return {"flag": said["online"], "message_at": _time(at)}


def _time(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    if milliseconds > _LAST_MILLISECOND:
        raise BadPayload(f"the timestamp {milliseconds} is after the year 9999; timestamps are in milliseconds")
    seconds, rest = divmod(milliseconds, 1000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest * 1000)


# Payloads as plain values.


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


# The values of one metric: without the messages before it, a message needs the names of its metrics.


#: The key for the value in each row, whatever its type is.
VALUE = "value"
_DATETIME = "DateTime"


def metrics_named(rows: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    """Return the rows of :class:`.Sparkplug` for the metric ``name``, each with its number or flag as :data:`VALUE`.

    Integers have their sign, as far as the message tells their datatype. Raises :class:`BadPayload` where the metric
    may be one that has nothing but an alias: only the last birth knows its name.
    """
    found: list[Mapping[str, Any]] = [{**row, VALUE: _value(row)} for row in rows if row.get("metric") == name]
    unnamed = [row["alias"] for row in rows if row.get("metric") is None and row.get("alias") is not None]
    if unnamed and not found:
        raise BadPayload(f"a metric has the alias {unnamed[0]} and no name; a value by its metric needs names")
    return found


def _value(row: Mapping[str, Any]) -> Any:
    """Return the value, None if there is none. The caller refuses a text."""
    if row.get("integer") is not None:
        if row.get("datatype") == _DATETIME:
            raise BadPayload("the metric is a time, which is no number")
        return signed(row["integer"], row.get("datatype"))
    return next((row[name] for name in ("number", "flag", "text", "bytes") if row.get(name) is not None), None)
