"""The decoder of Sparkplug B: a row for each metric.

How it works: a birth (NBIRTH, DBIRTH) names all metrics of a node or device, with alias and datatype. Later messages
may have only the alias. So :meth:`Sparkplug.decode` returns the values as they were sent, and
:meth:`Sparkplug.complete` adds names and datatypes from the last birth before each message. An example::

    type    metric  alias  datatype  integer          becomes
    DBIRTH  temp    7      Int8      20               temp, Int8, 20
    DDATA           7                255              temp, Int8, -1   (Int8 is sent as an unsigned number)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.window import Window

from holdfast_pipeline.decoding import sparkplug_payload
from holdfast_pipeline.decoding.decoder import BadPayload, Decoder

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
        found = sparkplug_payload.read(payload)
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
    for datatype, bits in sparkplug_payload.SIGNED_BITS.items():  # as sparkplug_payload.signed, in Spark
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
