"""Compare the retained messages with the messages in the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import HistoryUnavailable, Moment, present_moment
from holdfast_pipeline.archive.states import is_known
from holdfast_pipeline.database.snapshot import Snapshot
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.jobs.asof import state_at
from holdfast_pipeline.output.checksum import fingerprint
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.overwriting import require_replaceable
from holdfast_pipeline.output.table_files import write_files
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.sources.tables import read_retained

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DIFFERENCES = "differences"
#: The columns that must be equal. The revision holds the time of storing, so ``stored_at`` adds nothing.
_COMPARED = ("payload", "qos", "client_id", "username", "expires_at", "revision", "properties_json")


@frozen
class AuditResult:
    """The number of topics that are the same in both, only retained, only in the history, or different.

    Topics that the history does not record are not compared.
    """

    same: int = 0
    only_live: int = 0
    only_history: int = 0
    differs: int = 0
    not_recorded: int = 0

    @property
    def differences(self) -> int:
        """The number of topics that are not the same."""
        return self.only_live + self.only_history + self.differs


def audit(
    spark: SparkSession,
    snapshot: Snapshot,
    out: Folder | None = None,
    topic_filter: str = "",
    partitions: int | None = None,
) -> AuditResult:
    """Compare the retained messages of a snapshot with its history; write the differing topics to ``out``, as JSON.

    Expired messages count on neither side, whether swept or not. Raises :class:`PipelineError`.
    """
    present = _present(snapshot)
    compared = compare(
        _marked(read_retained(spark, snapshot, topic_filter, ("topic", *_COMPARED), partitions)),
        _marked(state_at(spark, snapshot.source, present, topic_filter, partitions)),
        is_known(present),
    )
    if out is not None:
        require_replaceable(out, DIFFERENCES)
        with phase("writing the differences"):
            write_files(compared.where("verdict NOT IN ('same', 'not_recorded')"), out, DIFFERENCES, "json")
    with phase("comparing", None if topic_filter else snapshot.messages):
        counts = compared.groupBy("verdict").agg(F.count("*").alias("topics")).collect()
    return AuditResult(**{row.verdict: row.topics for row in counts})


def compare(live: DataFrame, past: DataFrame, recorded: Column) -> DataFrame:
    """Return each ``topic`` of both tables with its ``verdict``.

    Both have the columns ``topic`` and ``mark``. ``recorded`` says whether the history records a topic.
    """
    both = live.alias("live").join(past.alias("past"), "topic", "full_outer")
    live_mark, past_mark = F.col("live.mark"), F.col("past.mark")
    verdict = (
        F.when(past_mark.isNull() & ~recorded, "not_recorded")
        .when(past_mark.isNull(), "only_live")
        .when(live_mark.isNull(), "only_history")
        .when(live_mark == past_mark, "same")
        .otherwise("differs")
    )
    return both.select("topic", verdict.alias("verdict"))


def _marked(frame: DataFrame) -> DataFrame:
    return frame.select("topic", fingerprint(_COMPARED).alias("mark"))


def _present(snapshot: Snapshot) -> Moment:
    with snapshot.source.transaction() as transaction:
        try:
            present = present_moment(transaction.connection.cursor())
        except HistoryUnavailable as error:
            raise PipelineError(str(error)) from error
    return evolve(present, at=snapshot.taken_at)
