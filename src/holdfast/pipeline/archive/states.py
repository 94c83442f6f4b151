"""The retained messages of a moment, from the history's entries up to that moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.pipeline.sources.columns import RETAINED
from holdfast.retained.history.entry_rules import retained_sql, stored_at_sql
from holdfast.storage.revisions import TIME_SHIFT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STORED_AT = stored_at_sql(f"timestamp_millis(shiftright(revision, {TIME_SHIFT}))")


def newest_of(entries: DataFrame) -> DataFrame:
    """Return the last entry of each topic."""
    # The positions alone are shuffled first, so that no payload of an older entry is.
    places = entries.groupBy("topic").agg(F.max("seq").alias("seq")).select("seq")
    return entries.join(places, "seq", "left_semi")


def state_of(newest: DataFrame, at: int) -> DataFrame:
    """Return the columns of the messages that were retained at ``at`` (milliseconds since the epoch).

    ``newest`` are the last entries of each topic up to then.
    """
    retained = newest.where(retained_sql(f"timestamp_millis({at})"))
    return retained.withColumn("stored_at", F.expr(_STORED_AT)).select(*(column.name for column in RETAINED))
