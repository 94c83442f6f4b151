"""Match many Topic Filters with many topics at once.

How it works: the filters form a tree of levels, stored as a table of edges. ``a/+`` and ``a/#`` give these edges::

    node  way    child
       0  a          1
       1  +          2
       2  +end      -1    the filter at place 0 ends here
       1  #         -2    the filter at place 1 ends here

All topics walk down the tree together: each join with the table goes one level deeper. A topic follows the edge of its
own level, the edge ``+``, and the edges that end a filter. A match is a negative node, and the edge ``+stay`` keeps it
until the last join. So the cost grows with the number of edges that topics can follow, not with the number of filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import LongType, StringType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Edges that cannot be the level of a topic: a Topic Name has no ``+`` and no ``#``.
_PLUS, _MULTI, _END, _STAY = "+", "#", "+end", "+stay"
_ROOT = 0
_KINDS = (("node", pa.int64()), ("way", pa.string()), ("child", pa.int64()))
_EDGES = StructType(
    [StructField("node", LongType()), StructField("way", StringType()), StructField("child", LongType())]
)


def matched(topics: DataFrame, topic_filters: Sequence[str]) -> DataFrame:
    """Return a row for each pair of a topic and a matching Topic Filter.

    ``topics`` has the columns ``topic`` and ``size``. The filters are valid, not shared, different, and have at most
    ``MOST_LEVELS`` levels. The returned columns are ``place``, the filter's place in the list, and ``size``.
    """
    edges = F.broadcast(_edges(topics.sparkSession, topic_filters))
    deepest = max((len(_levels(one)) for one in topic_filters), default=0)
    rows = topics.select(F.split("topic", "/").alias("levels"), "size", F.lit(_ROOT).cast("long").alias("node"))
    for depth in range(deepest + 1):
        ways = rows.select("levels", "size", "node", F.explode(_ways(depth)).alias("way"))
        rows = ways.join(edges, ["node", "way"]).select("levels", "size", F.col("child").alias("node"))
    # Only matches, whose nodes are negative, are left after the last level.
    return rows.select((-F.col("node") - 1).alias("place"), "size")


def _ways(depth: int) -> Column:
    """Return the array of the edges that a topic may follow from a node at a depth."""
    level = F.get("levels", F.lit(depth))
    every = F.array(level, F.lit(_PLUS), F.lit(_MULTI))
    if depth == 0:
        # A leading wildcard does not match topics that begin with $ [MQTT5-4.7.2-1].
        return F.when(level.startswith("$"), F.array(level)).otherwise(every)
    count = F.size("levels")
    return (
        F.when(F.col("node") < _ROOT, F.array(F.lit(_STAY)))
        .when(count > depth, every)
        # "a/#" also matches "a" [MQTT5-4.7.1-2].
        .when(count == depth, F.array(F.lit(_END), F.lit(_MULTI)))
        .otherwise(F.array().cast("array<string>"))
    )


def _edges(spark: SparkSession, topic_filters: Sequence[str]) -> DataFrame:
    nodes: dict[tuple[int, str], int] = {}
    matches: list[tuple[int, str, int]] = []
    for place, topic_filter in enumerate(topic_filters):
        node = _ROOT
        for level in _levels(topic_filter):
            node = nodes.setdefault((node, level), len(nodes) + 1)
        match = -place - 1
        matches += [(node, _MULTI if topic_filter.endswith("#") else _END, match), (match, _STAY, match)]
    rows = [(*edge, child) for edge, child in nodes.items()] + matches
    columns = zip(*rows, strict=True) if rows else ([], [], [])
    table = {name: pa.array(values, kind) for (name, kind), values in zip(_KINDS, columns, strict=True)}
    return spark.createDataFrame(pa.table(table), _EDGES)


def _levels(topic_filter: str) -> list[str]:
    levels = topic_filter.split("/")
    return levels[:-1] if levels[-1] == "#" else levels
