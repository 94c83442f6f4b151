"""Look up the shape of each topic of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import IntegerType

from holdfast_pipeline.analysis.kept_table import KeptTable, given, kept_frame
from holdfast_pipeline.shapes.shapes import Shapes
from holdfast_pipeline.sources.driver_reads import MOST_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHAPE = "shape"


@contextmanager
def with_shape(table: KeptTable, shapes: Shapes, topics: pa.ChunkedArray | None = None) -> Iterator[DataFrame]:
    """Add the column ``shape`` to a table with the column ``topic``: the number of its shape, or ``NO_SHAPE``.

    The driver looks up the shapes of few topics itself, as the start of a Python worker takes seconds. If the table is
    not small, give it the ``topics`` if they are known.
    """
    if table.rows is not None:
        numbers = _numbers(shapes, table.rows.column("topic"))
        yield given(table.session, table.rows.append_column(_SHAPE, numbers))
        return
    frame = table.frame
    if topics is None:
        topics = frame.select("topic").limit(MOST_ROWS + 1).toArrow().column("topic")
    if len(topics) <= MOST_ROWS:
        names = topics.unique()
        found = table.session.createDataFrame(pa.table({"topic": names, _SHAPE: _numbers(shapes, names)}))
        yield frame.join(F.broadcast(found), "topic")
        return
    with kept_frame(frame.withColumn(_SHAPE, F.udf(shapes.number_of, IntegerType(), useArrow=False)("topic"))) as many:
        yield many


def _numbers(shapes: Shapes, topics: pa.ChunkedArray) -> pa.Array:
    return pa.array([shapes.number_of(name) for name in topics.to_pylist()], pa.int32())
