"""Find devices whose clocks are wrong, by the times in their payloads.

A field of a shape holds the time of publishing if in most messages it differs from the time of storing by about as
much: by nothing, or by an hour where clocks tell local times. A device whose difference is another one has a wrong
clock, or sends old messages.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.shaped import Shaped
from holdfast_pipeline.checks.discovered import EXAMPLES, LISTED, SECOND_KIND, SIBLINGS, Clock
from holdfast_pipeline.judging.families import device_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The usual names of fields with the time of a message, in small letters.
_NAMES = frozenset(
    ("time", "timestamp", "ts", "at", "date", "datetime", "date_time", "last_seen", "lastseen", "measured_at")
)
#: Fields in Spark's text of a type.
_FIELD = re.compile(r"[<\s]`?(\w+)`?: (?:STRING|BIGINT|DOUBLE|DECIMAL)")
#: Most differences are within so many milliseconds, and that of a wrong clock is further away from them.
_USUAL, _WRONG = 60_000, 300_000
#: The units of times since the epoch, in milliseconds, and the least number that is in them: some day in 2001.
_UNITS = ((1e15, 1e-3), (1e12, 1.0), (1e9, 1e3))
_MEDIANS = "shape int, field string, median long"


def is_time(field: str) -> bool:
    """Tell whether a field of the first level has the usual name of a time."""
    return field.lstrip(".").lower() in _NAMES


def find_clocks(shaped: Shaped) -> list[Clock]:
    """Return the devices with wrong clocks, the most wrong ones first."""
    shapes_with = _with_times(shaped)
    if not shapes_with:
        return []
    apart = _differences(shaped, shapes_with)
    low, middle, high = 0.2, 0.5, 0.8
    rows = (
        apart.groupBy("shape", "field")
        .agg(F.count("*").alias("values"), F.percentile_approx("apart", [low, middle, high]).alias("apart"))
        .collect()
    )
    usual = {
        (row.shape, row.field): row
        for row in rows
        if row["values"] >= SIBLINGS and row.apart[2] - row.apart[0] < _USUAL
    }
    if not usual:
        return []
    medians = [(shape, field, row.apart[1]) for (shape, field), row in usual.items()]
    known = F.broadcast(apart.sparkSession.createDataFrame(medians, _MEDIANS))
    wrong = apart.join(known, ["shape", "field"]).withColumn("off", F.col("apart") - F.col("median"))
    wrong = wrong.where(F.abs("off") > _WRONG)
    counts = wrong.groupBy("shape", "field").count().collect()
    few = {
        (row.shape, row.field) for row in counts if row["count"] < SECOND_KIND * usual[row.shape, row.field]["values"]
    }
    if not few:
        return []
    is_one = F.concat_ws(" ", "shape", "field").isin([f"{shape} {field}" for shape, field in few])
    shapes = [shaped.shapes.shapes[number] for number in {shape for shape, _ in few}]
    devices = (
        wrong.where(is_one)
        .withColumn("device", device_of(shapes))
        .groupBy("device")
        .agg(
            F.count("*").alias("times"),
            F.max_by("off", F.abs("off")).alias("off"),
            F.min("field").alias("field"),
            F.min_by("topic", "topic", EXAMPLES).alias("topics"),
        )
        .orderBy(F.desc(F.abs("off")), "device")
        .limit(LISTED + 1)
    )
    return [Clock(row.device, row.field, row.off // 1000, row.topics) for row in devices.collect()]


def _with_times(shaped: Shaped) -> list[int]:
    """Return the shapes that have fields with the names of times."""
    schemas = {one.shape: one.schema or "" for one in shaped.found.shapes if one.messages >= SIBLINGS}
    return [one.number for one in shaped.shapes.shapes if any(map(is_time, _FIELD.findall(schemas.get(one.text, ""))))]


def _differences(shaped: Shaped, shapes: list[int]) -> DataFrame:
    """Return the milliseconds by which messages were stored after the times in them."""
    messages = shaped.messages.where(F.col("shape").isin(shapes) & (F.col("kind") == "object"))
    # A map, since Spark takes names that differ in their case only for the same field of a structure.
    told = F.from_json(F.col("payload").cast("string"), "map<string, string>")
    values = messages.select("shape", "topic", "stored_at", F.explode(told).alias("field", "text"))
    at = _milliseconds(F.col("text"))
    return (
        values.where(F.lower("field").isin(list(_NAMES)))
        .select("shape", "topic", "field", (F.unix_millis("stored_at") - at).alias("apart"))
        .where("apart IS NOT NULL")
    )


def _milliseconds(text: Column) -> Column:
    """Return the time that a text tells, in milliseconds since the epoch; NULL for none."""
    number = text.try_cast("double")
    scaled = F.lit(None).cast("double")
    for least, unit in reversed(_UNITS):
        scaled = F.when(number >= least, number * unit).otherwise(scaled)
    return F.coalesce(scaled.cast("long"), F.unix_millis(F.try_to_timestamp(text)))
