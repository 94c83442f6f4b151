"""Compute what the pages of shapes show of the numbers in payloads: their distributions, and their course."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast_pipeline.analysis.shapes import Shaped, ShapeNumbers, numbers_in
from holdfast_pipeline.report.figures import (
    History,
    NumberTotals,
    ShapeDetails,
    ValueStep,
)
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import read_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Fields with numbers of one shape.
_FIELDS = 3
_BANDS = 24
#: The most changes whose values make the course. With more, whole topics are left out.
_MOST_CHANGES = 1_000_000
_MOST_STEPS = 48
_CHOSEN = "shape int, field string, low double, high double"


def details_of(
    spark: SparkSession,
    snapshot: Snapshot,
    shaped: Shaped,
    wanted: Sequence[str],
    history: History | None,
) -> dict[str, ShapeDetails]:
    """Return the details of the shapes with the texts ``wanted``."""
    texts = {one.number: one.text for one in shaped.shapes.shapes if one.text in set(wanted)}
    if not texts:
        return {}
    numbers = {} if shaped.numbers is None else _numbers(spark, shaped.numbers, texts)
    if history is not None and numbers:
        messages = shaped.messages.where(F.col("shape").isin(list(texts)))
        numbers = _with_courses(spark, snapshot, messages.select("topic", "shape"), numbers, history)
    return {
        text: ShapeDetails(shaped.kinds.get(number, ()), tuple(numbers.get(number, ())))
        for number, text in texts.items()
    }


def _numbers(spark: SparkSession, numbers: ShapeNumbers, wanted: Container[int]) -> dict[int, list[NumberTotals]]:
    """Return the fields with the most numbers of each shape that is wanted, with their distributions."""
    found: dict[int, list[NumberTotals]] = {}
    for row in numbers.fields:
        fields = found.setdefault(row.shape, []) if row.shape in wanted else []
        if row.shape in wanted and len(fields) < _FIELDS:
            fields.append(NumberTotals(row.field, row["count"], row.least, row.low, row.median, row.high, row.most))
    bands = _bands(numbers.values, _chosen(spark, found)) if found else {}
    return {shape: [evolve(one, bands=bands[shape, one.field]) for one in fields] for shape, fields in found.items()}


def _chosen(spark: SparkSession, found: dict[int, list[NumberTotals]]) -> DataFrame:
    rows = [(shape, one.field, one.low, one.high) for shape, fields in found.items() for one in fields]
    return F.broadcast(spark.createDataFrame(rows, _CHOSEN))


def _bands(values: DataFrame, chosen: DataFrame) -> dict[tuple[int, str], tuple[int, ...]]:
    """Count the values in bands of equal width."""
    place = (F.col("value") - F.col("low")) / F.nullif(F.col("high") - F.col("low"), F.lit(0.0)) * _BANDS
    # A field with a single value has no width: all are in the first band.
    band = F.floor(F.least(F.greatest(F.coalesce(place, F.lit(0.0)), F.lit(0.0)), F.lit(_BANDS - 1.0)))
    rows = values.join(chosen, ["shape", "field"]).groupBy("shape", "field", band.cast("int").alias("band")).count()
    found: dict[tuple[int, str], list[int]] = {}
    for row in rows.collect():
        found.setdefault((row.shape, row.field), [0] * _BANDS)[row.band] += row["count"]
    return {key: tuple(counts) for key, counts in found.items()}


def _with_courses(
    spark: SparkSession,
    snapshot: Snapshot,
    topics: DataFrame,
    numbers: dict[int, list[NumberTotals]],
    history: History,
) -> dict[int, list[NumberTotals]]:
    """Add the values over time, from the history of the retained ``topics``, each with its ``shape``."""
    begin = history.first_change
    length = max(1, -(-(history.last_change - begin + 1) // _MOST_STEPS))
    entries = read_history(
        spark, snapshot.source, to_seq=snapshot.last_seq, columns=("op", "topic", "origin", "changed_at", "payload")
    ).where((F.col("op") == ChangeKind.SET.value) & (F.col("origin") != ChangeOrigin.BASELINE.value))
    share = -(-history.changes // _MOST_CHANGES)
    if share > 1:
        entries = entries.where(F.pmod(F.xxhash64("topic"), F.lit(share)) == 0)
    step = F.floor((F.unix_millis("changed_at") - F.lit(begin)) / length)
    shaped = entries.join(topics, "topic").select("shape", "topic", step.alias("at"), "payload")
    values = numbers_in(shaped)
    rows: list[Any] = (
        values.join(_chosen(spark, numbers), ["shape", "field"])
        .groupBy("shape", "field", "at")
        .agg(F.min("value").alias("least"), F.mean("value").alias("mean"), F.max("value").alias("most"))
        .orderBy("at")
        .collect()
    )
    courses: dict[tuple[int, str], tuple[ValueStep, ...]] = {}
    for row in rows:
        step_there = ValueStep(begin + row.at * length, row.least, row.mean, row.most)
        courses[row.shape, row.field] = (*courses.get((row.shape, row.field), ()), step_there)
    return {
        shape: [evolve(one, course=courses.get((shape, one.field), ())) for one in fields]
        for shape, fields in numbers.items()
    }
