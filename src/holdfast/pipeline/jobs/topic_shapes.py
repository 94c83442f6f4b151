"""Look up the shape of each topic of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from holdfast.pipeline.shapes.shapes import Shapes
from holdfast.pipeline.sources.small_reads import MOST_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBERS = StructType([StructField("topic", StringType()), StructField("shape", IntegerType())])
_ARROW_NUMBERS = pa.schema({"topic": pa.string(), "shape": pa.int32()})


@contextmanager
def with_shape(frame: DataFrame, shapes: Shapes, topics: pa.ChunkedArray | None = None) -> Iterator[DataFrame]:
    """Add the column ``shape`` to a table with the column ``topic``: the number of its shape, or ``NO_SHAPE``.

    The driver looks up the shapes of few topics itself, as the start of a Python worker takes seconds. Give it the
    ``topics`` of the table if they are known. Spark keeps a table of many topics.
    """
    if topics is None:
        topics = frame.select("topic").limit(MOST_ROWS + 1).toArrow().column("topic")
    if len(topics) <= MOST_ROWS:
        names = list(dict.fromkeys(topics.to_pylist()))
        numbers = pa.table({"topic": names, "shape": [shapes.number_of(name) for name in names]}, _ARROW_NUMBERS)
        yield frame.join(F.broadcast(frame.sparkSession.createDataFrame(numbers, _NUMBERS)), "topic")
        return
    many = frame.withColumn("shape", F.udf(shapes.number_of, IntegerType(), useArrow=False)("topic")).persist()
    try:
        yield many
    finally:
        many.unpersist()
