"""What was retained at a moment, from the entries of the history up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.pipeline.columns import RETAINED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_REVISION_BITS = 20


def state_of(entries: DataFrame, places: DataFrame, at: int) -> DataFrame:
    """Return the columns of what was retained at ``at`` (milliseconds since the epoch).

    ``entries`` are all that count for it; ``places`` the columns ``seq`` and ``topic`` of the same, read apart so that
    only the entries that matter are carried further.
    """
    newest = places.groupBy("topic").agg(F.max("seq").alias("seq")).select("seq")
    moment = F.timestamp_millis(F.lit(at))
    alive = (F.col("op") == ChangeKind.SET.value) & (F.col("expires_at").isNull() | (F.col("expires_at") > moment))
    found = entries.join(newest, "seq", "left_semi").where(alive).withColumn("stored_at", _stored_at())
    return found.select(*(column.name for column in RETAINED))


def _stored_at() -> Column:
    """When it was retained: what was there when the history began is recorded later, and its revision tells."""
    baseline = F.timestamp_millis(F.shiftright("revision", _REVISION_BITS))
    return F.when(F.col("origin") == ChangeOrigin.BASELINE.value, baseline).otherwise(F.col("changed_at"))
