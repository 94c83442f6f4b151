"""``stream.writeStream.format("retained")``: retains the rows of each batch of a stream, once.

Columns and options are those of a table that is written, see :mod:`holdfast_pipeline.sink.writer`, without ``job``.
``rejects.jsonl`` has the rejects of the last batch.

How it works. Each batch is an import job, named after the identity of the query in its checkpoint and the number of the
batch. If Spark is killed after a merge and before it has noted the batch as done, it repeats the batch. Then the broker
knows the job: it merges what is missing, or nothing. Spark makes a writer for each batch, whose tasks share a staging
area, and another one to commit: so the tasks make the area, and their messages name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.retained.api import StagingArea
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sink.merging import staging_explained
from holdfast_pipeline.sink.writer import Staged, StagingWriter
from holdfast_pipeline.sources.options import Options

#: Spark adds the place of the checkpoint to the writer's options.
STREAM_OPTIONS = ("merge", "rejects", "max_rejects", "staging", "checkpointLocation")
_QUERY = "sql.streaming.queryId"


@dataclass
class StagedBatch(Staged):
    """The result of a task attempt, with the identity of the query and the staging area."""

    query: str = ""
    area: StagingArea | None = None


class RetainedStreamWriter(StagingWriter, DataSourceStreamArrowWriter):
    """Stages the rows of a batch in tasks, and merges them in the driver."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError('format retained: a stream is written with outputMode("append") only')
        super().__init__(options, schema)
        self._area = self._new_area(uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        """Stage the rows of one task attempt."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty(_QUERY)
        if not query:
            raise PipelineError(f"format retained: Spark does not say which query writes ({_QUERY})")
        staged = StagedBatch(context.taskAttemptId(), query=query, area=self._area)
        with staging_explained():
            self._area.open()
        self._stage(self._area, staged, iterator)
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Merge the rows of a batch, unless too many were rejected."""
        staged = _batches(messages)
        try:
            if staged and staged[0].area is not None and any(one.rows or one.rejected for one in staged):
                self._merge_staged(staged[0].area, f"stream {staged[0].query} batch {batchId}", staged)
        finally:
            _drop(staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove the staged rows. Areas of killed batches are removed by a write or an import a day later."""
        _drop(_batches(messages))


def _batches(messages: Sequence[WriterCommitMessage | None]) -> list[StagedBatch]:
    return [message for message in messages if isinstance(message, StagedBatch)]


def _drop(staged: Sequence[StagedBatch]) -> None:
    for area in {one.area for one in staged if one.area is not None}:
        area.drop()
