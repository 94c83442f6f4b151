"""Learn shapes on the driver: from all topics, or from whole branches of the tree if there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import StringType

from holdfast_pipeline.analysis.kept_table import KeptTable, kept_table
from holdfast_pipeline.analysis.payload_kinds import kind_of
from holdfast_pipeline.shapes.learning import Learner
from holdfast_pipeline.shapes.patterns import Patterns
from holdfast_pipeline.shapes.shapes import Shapes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The most topics that shapes are learned from.
MOST_LEARNED = 300_000
#: The most shapes that are found.
MOST_SHAPES = 1000
#: Branches of the tree that are chosen among, for each branch that is taken.
_BRANCHES = 500
_DEEPEST_BRANCH = 8


def learn_shapes(messages: DataFrame, patterns: Sequence[str] = ()) -> Shapes:
    """Learn the shapes of messages from their columns ``topic`` and ``payload``.

    ``patterns`` are shapes that are given: each topic has the first one that matches it, if any. Raises
    :class:`PipelineError` for a text that is no pattern.
    """
    given = Patterns(patterns)
    with kept_table(messages.select("topic", kind_of(F.col("payload")).alias("kind")), is_small=False) as kept:
        return learn(kept, given)[1]


def shape_of(shapes: Shapes, topic: Column) -> Column:
    """Return the text of each topic's shape, such as ``hq/{floor}/light/{lamp}``; NULL for a topic without one."""
    return F.udf(shapes.text_of, StringType(), useArrow=False)(topic)


def learn(kept: KeptTable, patterns: Patterns, most: int = MOST_LEARNED) -> tuple[pa.Table, Shapes]:
    """Learn shapes from a table with the columns ``topic`` and ``kind``.

    Return the rows learned from, too.
    """
    rows = kept.rows if kept.rows is not None and kept.count <= most else _part(kept, most).toArrow()
    learner, learned = Learner(), rows.select(["topic", "kind"])
    for batch in learned.to_batches():
        for topic, kind in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if not patterns.learn(topic):
                learner.add(topic, kind)
    return learned, Shapes(learner.learn(MOST_SHAPES), patterns)


def _part(table: KeptTable, most: int) -> DataFrame:
    """Return whole branches of the tree with about as many topics: a level has to have its siblings beside it."""
    depths = range(1, _DEEPEST_BRANCH + 1)
    branches = {depth: F.substring_index("topic", "/", depth) for depth in depths}
    kept, share = table.frame, -(-table.count // most)
    if share <= 1:
        return kept.select("topic", "kind")
    (counts,) = kept.agg(*(F.approx_count_distinct(branches[depth]) for depth in depths)).collect()
    depth = next((at for at, count in zip(depths, counts, strict=True) if count >= _BRANCHES * share), depths[-1])
    return kept.where(F.pmod(F.xxhash64(branches[depth]), F.lit(share)) == 0).select("topic", "kind").limit(2 * most)
