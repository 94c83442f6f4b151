"""Find the numbers in the payloads of each shape's messages.

The numbers are payloads that are JSON numbers, and the numbers in the first level of JSON objects. Spark finds them
without a schema: ``variant_explode_outer`` makes a row of each field.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.kept_table import kept_frame
from holdfast_pipeline.analysis.payload_kinds import json_value
from holdfast_pipeline.report.shape_details import WHOLE
from holdfast_pipeline.shapes.shapes import NO_SHAPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

#: Fields of all shapes together (of more, those with the fewest numbers are left out), and characters of a name.
_MOST_FIELDS = 10_000
_LONGEST = 200
#: Higher values have no place in a distribution: 1e400 is infinite as a double, and means become infinite.
_HIGHEST = 1e300
_TYPES = ("BIGINT", "DOUBLE", "FLOAT")
_SHARES = [0.01, 0.25, 0.5, 0.75, 0.99]


@frozen
class ShapeNumbers:
    """The numbers in payloads: ``shape``, ``topic``, ``at``, ``field`` and ``value``.

    ``fields`` has a row for each field of a shape, those with the most numbers first: ``shape``, ``field``, the
    ``count`` of its numbers, the ``least``, the ``most``, and those that 1, 25, 50, 75 and 99 of 100 do not exceed
    (``low``, ``lower``, ``median``, ``upper``, ``high``).
    """

    values: DataFrame
    fields: Sequence[Row]


@contextmanager
def shape_numbers(shaped: DataFrame) -> Iterator[ShapeNumbers]:
    """Give the numbers in messages with the number of their ``shape``."""
    messages = shaped.where(F.col("shape") != NO_SHAPE)
    found = numbers_in(messages.select("shape", "topic", F.col("stored_at").alias("at"), "payload"))
    names = ("low", "lower", "median", "upper", "high")
    with kept_frame(found) as values:
        counted = values.groupBy("shape", "field").agg(
            F.count("*").alias("count"),
            F.min("value").alias("least"),
            F.max("value").alias("most"),
            F.percentile_approx("value", _SHARES).alias("shares"),
        )
        listed = counted.orderBy(F.desc("count"), "shape", "field").limit(_MOST_FIELDS)
        shares = (F.col("shares")[at].alias(name) for at, name in enumerate(names))
        yield ShapeNumbers(values, listed.select("shape", "field", "count", "least", "most", *shares).collect())


def numbers_in(messages: DataFrame) -> DataFrame:
    """Return the numbers in the payloads: ``shape``, ``topic``, ``at``, ``field`` and ``value``.

    Numbers beyond :data:`_HIGHEST` are left out, and fields with long names, as the driver keeps the names.
    """
    parsed = messages.withColumn("json", json_value(F.col("payload"))).drop("payload")
    # An array is not exploded: its elements have no names either.
    named = F.when(~F.schema_of_variant("json").startswith("ARRAY"), F.col("json"))
    fields = messages.sparkSession.tvf.variant_explode_outer(named.outer())
    parts = parsed.lateralJoin(fields).where(F.col("key").isNull() | (F.length("key") <= _LONGEST))
    # A payload that is a number has one row, without a key: its own.
    field = F.coalesce(F.concat(F.lit("."), "key"), F.lit(WHOLE))
    part = F.coalesce(F.col("value"), F.col("json"))
    value = F.when(_is_number(part), F.try_variant_get(part, "$", "double"))
    numbers = parts.select("shape", "topic", "at", field.alias("field"), value.alias("value"))
    return numbers.where(F.abs("value") < _HIGHEST)


def _is_number(part: Column) -> Column:
    kind = F.schema_of_variant(part)
    return kind.isin(*_TYPES) | kind.startswith("DECIMAL")
