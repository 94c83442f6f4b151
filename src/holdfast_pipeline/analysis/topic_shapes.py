"""Look up the shape of each topic of a table.

How it works. The driver looks up the shapes of few topics itself, as the start of a Python worker takes seconds. Of
many topics, it looks up the *forms*: Spark replaces the numbers in a topic, so that ``site/17/dev/4711/temp`` becomes
``site/#/dev/#/temp``. A shape asks for the names that it has, and else for the families of names, which are the same
in a topic and its form. Only names with numbers that a shape has stay as they are. A million topics may have one form.
If there are too many forms, too, Python workers look up each topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import IntegerType

from holdfast_pipeline.analysis.kept_table import KeptTable, given, kept_frame
from holdfast_pipeline.shapes.name_families import ASCII_NUMBERS, NUMBER
from holdfast_pipeline.shapes.shapes import Shapes
from holdfast_pipeline.sources.driver_reads import MOST_ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SHAPE, _FORM = "shape", "form"
#: The most names with numbers that are compared with each level.
_MOST_NAMES = 1000
_IS_ASCII = r"\A[\x00-\x7F]*\z"


@contextmanager
def with_shape(table: KeptTable, shapes: Shapes, topics: pa.ChunkedArray | None = None) -> Iterator[DataFrame]:
    """Add the column ``shape`` to a table with the column ``topic``: the number of its shape, or ``NO_SHAPE``.

    If the table is not small, give it the ``topics`` if they are known.
    """
    if table.rows is not None:
        numbers = _numbers(shapes, table.rows.column("topic"))
        yield given(table.session, table.rows.append_column(_SHAPE, numbers))
        return
    frame = table.frame
    if topics is None:
        topics = frame.select("topic").limit(MOST_ROWS + 1).toArrow().column("topic")
    if len(topics) <= MOST_ROWS:
        yield _joined(frame, shapes, "topic", topics.unique())
        return
    found = by_form(frame, shapes)
    if found is None:
        found = frame.withColumn(_SHAPE, F.udf(shapes.number_of, IntegerType(), useArrow=False)("topic"))
    with kept_frame(found) as many:
        yield many


def by_form(frame: DataFrame, shapes: Shapes) -> DataFrame | None:
    """Add the column ``shape`` by looking up the forms of the topics; None if there are too many forms."""
    names = shapes.names_with_numbers
    if len(names) > _MOST_NAMES or any("/" in name for name in names):  # the last of 32 levels has the rest of a topic
        return None
    with_form = frame.withColumn(_FORM, _form(F.col("topic"), sorted(names)))
    forms = with_form.select(_FORM).distinct().limit(MOST_ROWS + 1).toArrow().column(_FORM)
    return None if len(forms) > MOST_ROWS else _joined(with_form, shapes, _FORM, forms).drop(_FORM)


def _form(topic: Column, names: list[str]) -> Column:
    """Return the topics with ``#`` for numbers, except in ``names``. Python and Java differ in letters beyond ASCII."""
    if not names:
        form = _without_numbers(topic)
    else:
        levels = F.transform(
            F.split(topic, "/"), lambda level: F.when(level.isin(names), level).otherwise(_without_numbers(level))
        )
        form = F.array_join(levels, "/")
    return F.when(topic.rlike(_IS_ASCII), form).otherwise(topic)


def _without_numbers(text: Column) -> Column:
    for pattern in ASCII_NUMBERS:
        text = F.regexp_replace(text, pattern, NUMBER)
    return text


def _joined(frame: DataFrame, shapes: Shapes, column: str, texts: pa.ChunkedArray) -> DataFrame:
    """Add the shapes of these texts to the rows that have them in a column."""
    found = frame.sparkSession.createDataFrame(pa.table({column: texts, _SHAPE: _numbers(shapes, texts)}))
    return frame.join(F.broadcast(found), column)


def _numbers(shapes: Shapes, topics: pa.ChunkedArray) -> pa.Array:
    return pa.array([shapes.number_of(name) for name in topics.to_pylist()], pa.int32())
