"""Count the changes of each shape's topics in the history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import GENERAL, Depth
from holdfast_pipeline.analysis.topic_changes import TopicChanges
from holdfast_pipeline.analysis.topic_shapes import with_shape
from holdfast_pipeline.shapes.shapes import Shapes
from holdfast_pipeline.sources.states import has_general_depth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_DAY = 86_400_000
#: A shorter history tells nothing about a day.
_LEAST = _DAY // 4


@frozen
class ShapeChanges:
    """The changes of each shape: ``topics`` are those of a history, with the number of their ``shape``.

    ``totals`` has a row for each of these numbers, and one for all topics, with the key None; it is empty without
    topics. A row has the ``topics`` that changed, the ``usual`` number of changes of nine in ten of them, that of 99 in
    100 (``high``), the ``most`` changes of a topic, the time of the first change (``since``), the topics with Wills
    (``wills``) and with ``several`` publishers; and of the topics without a rule of their own, the ``changes`` and the
    time of the ``first`` entry.
    """

    history: TopicChanges
    topics: DataFrame
    totals: Mapping[int | None, Row]

    def a_day(self, taken_at: int, shapes: Shapes) -> dict[int, float]:
        """Return the changes of each shape in a day of the history, which ends at ``taken_at``.

        A history of less than six hours tells none. Shapes whose topics may have rules of their own in the history are
        left out: they were recorded for another time.
        """
        begun = [period.complete_since for period in self.history.periods]
        firsts = [row.first for row in self.totals.values()]
        since = min((at for at in (*firsts, *begun) if at is not None), default=taken_at)
        if taken_at - since < _LEAST:
            return {}
        days = (taken_at - since) / _DAY
        rules = {period.parsed for period in self.history.periods}
        return {
            number: (self.totals[number].changes or 0) / days if number in self.totals else 0.0
            for number, shape in enumerate(shapes.shapes)
            if not any(each.left_out(shape.topic_filter, _has_own_rule).filters for each in rules)
        }


@contextmanager
def shape_changes(history: TopicChanges, shapes: Shapes) -> Iterator[ShapeChanges]:
    """Give the changes of each shape in a history."""
    is_general = has_general_depth({period.parsed for period in history.periods})
    changes = F.when(F.col("changes") > 0, F.col("changes"))
    with with_shape(history.topics, shapes) as topics:
        counted = topics.withColumn("general", is_general).rollup("shape").agg(
            F.count(changes).alias("topics"),
            F.percentile_approx(changes, 0.9).alias("usual"),
            F.percentile_approx(changes, 0.99).alias("high"),
            F.max("changes").alias("most"),
            F.min("first_change").alias("since"),
            F.count_if("has_will").alias("wills"),
            F.count_if(F.col("one") != F.col("other")).alias("several"),
            F.sum(F.when(F.col("general"), F.col("changes"))).alias("changes"),
            F.min(F.when(F.col("general"), F.col("first"))).alias("first"),
        )  # fmt: skip
        yield ShapeChanges(history, topics, {row.shape: row for row in counted.collect()})


def _has_own_rule(depth: Depth) -> bool:
    return depth is not GENERAL
