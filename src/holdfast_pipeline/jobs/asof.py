"""Write the retained messages of a past time as Parquet, from the history in the database or from an archive.

The newest entry of each topic up to that time tells its retained message: see ``archive/states.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import HistoryUnavailable, Moment, check_moment, check_recorded, find_moment
from holdfast.core.topics import EVERY_TOPIC
from holdfast_pipeline.archive.coverage import require_coverage
from holdfast_pipeline.archive.entries import read_archive
from holdfast_pipeline.archive.states import newest_of, state_of
from holdfast_pipeline.database.connection import Source, check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.export import Manifest, write
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sources.columns import HISTORY, struct_of
from holdfast_pipeline.sources.tables import read_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def asof(
    spark: SparkSession,
    source: Source,
    at: int,
    out: Folder,
    topic_filter: str = "",
    partitions: int | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write the messages that were retained at ``at`` (milliseconds since the epoch) to ``out``, like an export.

    Raises :class:`PipelineError`, also for a time outside the history; the text names the earliest possible time.
    """
    moment = moment_at(source, at, topic_filter)
    frame = state_at(spark, source, moment, topic_filter, partitions)
    left_out = moment.left_out(topic_filter)
    return write(
        spark, frame, out, at, moment.last_seq, topic_filter, overwrite, lambda: verify(source, moment), left_out
    )


def asof_archived(
    spark: SparkSession, archive: Folder, at: int, out: Folder, topic_filter: str = "", overwrite: bool = False
) -> Manifest:
    """Do the same from an archive of the history, compacted or not, for a time that the archive covers."""
    moment = require_coverage(archive).moment(at, topic_filter)
    moments = F.timestamp_millis(F.lit(at))
    counting = (F.col("seq") > moment.first_seq) & (F.col("seq") <= moment.last_seq) & (F.col("changed_at") <= moments)
    # By the day, Spark skips whole folders without opening a file.
    counting &= F.col("date") <= F.to_date(moments)
    if moment.last_seq > moment.first_seq:
        entries = read_archive(spark, archive, topic_filter).where(counting)
        (last,) = read_archive(spark, archive).where(counting).agg(F.max("seq")).collect()
        last_seq = last[0] or moment.first_seq
    else:  # An archive without changes has no files, and Spark cannot read an empty folder.
        entries, last_seq = spark.createDataFrame([], struct_of(HISTORY)), moment.first_seq
    frame = state_of(newest_of(entries), moment)
    left_out = moment.left_out(topic_filter)
    return write(spark, frame, out, at, last_seq, topic_filter, overwrite, left_out=left_out)


def moment_at(source: Source, at: int, topic_filter: str = EVERY_TOPIC) -> Moment:
    """Find the moment of a time (milliseconds since the epoch).

    Raises :class:`PipelineError`, also if the history knows no topic of the Topic Filter then.
    """
    check(source.url)
    with source.transaction() as transaction:
        cursor = transaction.connection.cursor()
        try:
            moment = find_moment(cursor, at, time.time_ns() // 1_000_000)
            check_recorded(check_moment(cursor, moment), at, topic_filter)
            return moment
        except HistoryUnavailable as error:
            raise PipelineError(str(error)) from error


def state_at(
    spark: SparkSession, source: Source, moment: Moment, topic_filter: str = "", partitions: int | None = None
) -> DataFrame:
    """Return the columns of the messages that were retained at a moment."""
    bounds = (moment.first_seq + 1, moment.last_seq)
    return state_of(read_history(spark, source, *bounds, topic_filter, None, partitions, newest=True), moment)


def verify(source: Source, moment: Moment) -> None:
    """Raise :class:`PipelineError` if the history was pruned while it was read."""
    with source.transaction() as transaction:
        try:
            check_moment(transaction.connection.cursor(), moment)
        except HistoryUnavailable as error:
            raise PipelineError(f"the history was pruned while it was read: {error}") from error
