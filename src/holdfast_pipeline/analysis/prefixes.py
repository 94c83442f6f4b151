"""Count the messages below each prefix.

Each message counts once for each of its prefixes: ``a/b/c`` counts for ``a``, ``a/b`` and ``a/b/c``.

There may be more prefixes than messages, and a median needs all ages of its group. So the medians of many prefixes are
found last, in a second pass, for those prefixes only that somebody will see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.report.figures import PrefixTotals
from holdfast_pipeline.sources.tables import age

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

#: The columns of the retained messages that are needed.
NEEDED = ("topic", "size", "stored_at", "expires_at")
#: The accuracy of the median: it is off by a thousandth of the messages at most.
_ACCURACY = 1000


def branches(retained: DataFrame, depth: int, with_medians: bool = True) -> DataFrame:
    """Return the fields of :class:`PrefixTotals` for each prefix of 1 to ``depth`` levels.

    ``retained`` has the columns :data:`NEEDED`, and the column ``NOW``. Without medians, they are NULL.
    """
    return (
        _prefixed(retained, depth)
        .groupBy("depth", "prefix")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.max("age").alias("oldest_age"),
            (_median() if with_medians else F.lit(None).cast("long")).alias("median_age"),
            F.min("age").alias("newest_age"),
            F.count("expires_at").alias("expiring"),
            F.unix_millis(F.min("expires_at")).alias("expires_first"),
        )
    )


def totals_of(retained: DataFrame, rows: Sequence[Row]) -> tuple[PrefixTotals, ...]:
    """Return some rows of :func:`branches` as plain values, with the medians that they lack."""
    lacking = [row for row in rows if row.median_age is None]
    medians: dict[str, int] = {}
    if lacking:
        names = pa.table({"prefix": pa.array([row.prefix for row in lacking], pa.string())})
        wanted = F.broadcast(retained.sparkSession.createDataFrame(names))
        ages = _prefixed(retained, max(row.depth for row in lacking)).join(wanted, "prefix")
        medians = {row.prefix: row["median"] for row in ages.groupBy("prefix").agg(_median().alias("median")).collect()}
    return tuple(
        PrefixTotals(**{**row.asDict(), "median_age": medians.get(row.prefix, row.median_age)}) for row in rows
    )


def _median() -> Column:
    return F.percentile_approx("age", 0.5, _ACCURACY)


def _prefixed(retained: DataFrame, depth: int) -> DataFrame:
    return retained.select(
        F.posexplode(prefixes(F.col("topic"), depth)).alias("at", "prefix"), "size", "expires_at", age().alias("age")
    ).withColumn("depth", F.col("at") + 1)


def prefixes(topic: Column, depth: int) -> Column:
    """Return the array of a topic's prefixes of 1, 2, ... levels, at most ``depth``."""
    levels = F.size(F.split(topic, "/"))
    made = (F.when(levels >= count, F.substring_index(topic, "/", count)) for count in range(1, depth + 1))
    return F.array_compact(F.array(*made))
