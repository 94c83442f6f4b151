"""Count the messages below each prefix.

Each message counts once for each of its prefixes: ``a/b/c`` counts for ``a``, ``a/b`` and ``a/b/c``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.sources.tables import age

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The columns of the retained messages that are needed.
NEEDED = ("topic", "size", "stored_at", "expires_at")
#: The accuracy of the median: it is off by a thousandth of the messages at most.
_ACCURACY = 1000


def branches(retained: DataFrame, depth: int) -> DataFrame:
    """Return the fields of :class:`PrefixTotals` for each prefix of 1 to ``depth`` levels.

    ``retained`` has the columns :data:`NEEDED`, and the column ``NOW``.
    """
    prefixed = retained.select(
        F.posexplode(prefixes(F.col("topic"), depth)).alias("at", "prefix"), "size", "expires_at", age().alias("age")
    )
    return prefixed.groupBy((F.col("at") + 1).alias("depth"), "prefix").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.max("age").alias("oldest_age"),
        F.percentile_approx("age", 0.5, _ACCURACY).alias("median_age"),
        F.min("age").alias("newest_age"),
        F.count("expires_at").alias("expiring"),
        F.unix_millis(F.min("expires_at")).alias("expires_first"),
    )


def prefixes(topic: Column, depth: int) -> Column:
    """Return the array of a topic's prefixes of 1, 2, ... levels, at most ``depth``."""
    levels = F.size(F.split(topic, "/"))
    made = (F.when(levels >= count, F.substring_index(topic, "/", count)) for count in range(1, depth + 1))
    return F.array_compact(F.array(*made))
