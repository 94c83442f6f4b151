"""What was retained at a moment, from the entries of the history up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - what everybody calls it

from holdfast.messages import ChangeKind, ChangeOrigin
from holdfast.pipeline.sources.columns import RETAINED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_REVISION_BITS = 20


def newest_of(entries: DataFrame) -> DataFrame:
    """Return the last entry of each topic.

    Their places are looked at first, so that only the entries that matter are carried further.
    """
    places = entries.groupBy("topic").agg(F.max("seq").alias("seq")).select("seq")
    return entries.join(places, "seq", "left_semi")


def state_of(newest: DataFrame, at: int) -> DataFrame:
    """Return the columns of what was retained at ``at`` (milliseconds since the epoch).

    ``newest`` are the last entries of each topic up to then.
    """
    moment = F.timestamp_millis(F.lit(at))
    alive = (F.col("op") == ChangeKind.SET.value) & (F.col("expires_at").isNull() | (F.col("expires_at") > moment))
    return newest.where(alive).withColumn("stored_at", _stored_at()).select(*(column.name for column in RETAINED))


def _stored_at() -> Column:
    """When it was retained: what was there when the history began is recorded later, and its revision tells."""
    baseline = F.timestamp_millis(F.shiftright("revision", _REVISION_BITS))
    return F.when(F.col("origin") == ChangeOrigin.BASELINE.value, baseline).otherwise(F.col("changed_at"))
