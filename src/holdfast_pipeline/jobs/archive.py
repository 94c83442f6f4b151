"""Archive the history: each entry once, in Parquet files by the day of its change.

How it works: Spark streams the entries in batches and notes each finished batch in its checkpoint. After a batch, three
things follow in this order, so that a job killed in between never promises too much:

1. The files are synced to the disk.
2. ``archive.json`` says up to which entry the archive is complete, for example ``last_seq`` 288965.
3. ``confirm(288965)`` tells the database, which may then prune these entries.

A run that is killed after 1 or 2 repeats these steps when it is started again: the checkpoint knows the last batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import read_state
from holdfast.storage.api import shown
from holdfast_pipeline.archive.checkpoint import committed_seq
from holdfast_pipeline.archive.coverage import Coverage, read_coverage, write_coverage
from holdfast_pipeline.database.connection import Source, check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import CHECKPOINT, DATA
from holdfast_pipeline.output.overwriting import require_archive_target
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.sources.history import HistorySource
from holdfast_pipeline.sources.registration import register_once
from holdfast_pipeline.sources.tables import parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Seconds between two looks at the progress of the stream.
_LOOK = 1


@frozen
class Archived:
    """The archive is complete up to the entry ``last_seq``. Before this run it was complete up to ``before``."""

    before: int
    last_seq: int


def archive(
    spark: SparkSession,
    source: Source,
    out: Folder,
    confirm: Callable[[int], None],
    rows: int = 200_000,
    partitions: int | None = None,
    follow: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Archived:
    """Stream the history to ``out``, from the end of the archive there, in batches of at most ``rows`` entries.

    Without ``follow`` it ends when the present history is archived. With ``follow``, the seconds between batches, it
    goes on until ``stopped`` returns True. ``confirm`` gets the last entry that is safe on the disk. The first call
    gets 0 for a new archive, or the entries that a killed run did not confirm. Raises :class:`PipelineError`.
    """
    check(source.url)
    progress = _Progress(source, out, confirm)
    before = progress.told
    register_once(spark, HistorySource)
    frame = spark.readStream.format(HistorySource.name()).options(**source.options)
    frame = frame.option("max_rows_per_trigger", rows).option("partitions", partitions or parallelism(spark))
    writer = frame.load().withColumn("date", F.to_date("changed_at")).writeStream.format("parquet").partitionBy("date")
    writer = writer.option("checkpointLocation", out.below(CHECKPOINT))
    if follow is None:
        triggered = writer.trigger(availableNow=True)
    else:
        triggered = writer.trigger(processingTime=f"{round(1000 * follow)} milliseconds")
    query = triggered.start(out.below(DATA))
    try:
        with phase("archiving", None if follow is not None else progress.missing, "changes") as archiving:
            while not query.awaitTermination(_LOOK):
                progress.tell()
                archiving.at(progress.told - before)
                if stopped():
                    break
    finally:
        query.stop()
    progress.tell()
    return Archived(before, progress.told)


class _Progress:
    """Keeps ``archive.json`` and the database informed about the last archived entry."""

    def __init__(self, source: Source, out: Folder, confirm: Callable[[int], None]) -> None:
        self._source = source
        self._out = out
        self._confirm = confirm
        store = shown(source.url)
        self._coverage = read_coverage(out) or Coverage(store)
        if self._coverage.store != store:
            raise PipelineError(
                f"{out.uri}: holds the archive of {self._coverage.store}, not of {store}; name another folder"
            )
        with source.transaction() as transaction:
            last_seq = read_state(transaction.connection.cursor()).last_seq
            replaced = not self._coverage.is_of(transaction)
        reached = committed_seq(out)
        if (reached or 0) > last_seq:
            raise PipelineError(
                f"{out.uri}: has entries up to {reached}, but the history ends at {last_seq}: the database has been "
                "replaced, perhaps by a backup; name another folder"
            )
        if replaced:
            raise PipelineError(
                f"{out.uri}: ends at entry {self._coverage.last_seq}, but this entry in the database is younger: the "
                "database has been replaced, perhaps by a backup; name another folder"
            )
        self.told = 0
        self._last_seq = last_seq
        if reached is None:
            require_archive_target(out)
            confirm(0)  # from now on the database prunes only archived entries
        else:
            self.tell()

    @property
    def missing(self) -> int:
        """The changes that the archive did not have when it was opened."""
        return self._last_seq - self.told

    def tell(self) -> None:
        """Note and confirm the last finished batch, unless it was confirmed before."""
        reached = committed_seq(self._out)
        if reached is None or reached <= self.told:
            return
        self._out.sync()
        with self._source.transaction() as transaction:
            self._coverage = self._coverage.extended(transaction, reached)
        # Not synced: if it is lost with the power, the next run writes it again from the checkpoint.
        write_coverage(self._out, self._coverage)
        self._confirm(reached)
        self.told = reached
