"""``df.write.format("retained").mode("append")``: retains the messages of a table.

The columns ``topic`` and ``payload`` are required. The columns ``qos``, ``client_id``, ``username``, ``stored_at``,
``expires_at`` (timestamps, or milliseconds since the epoch), ``properties_json`` and ``revision`` are optional. Two
more columns are for rejects: ``source`` says where a row comes from, and ``problem`` why it is not a message.

Options: ``storage`` or ``config``; ``merge`` (newer, replace or keep); ``job``, a name under which an interrupted write
continues and a complete write is not repeated; ``rejects``, a folder for rejected rows; ``max_rejects`` (0): with more
rejects nothing is merged; ``staging``, a folder for the staging files of an SQLite database.

How it works. Each task attempt checks its rows and puts them into the staging area under its attempt number. The driver
names the attempts that Spark has accepted, and the broker merges the rows of those attempts.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, LongType, StructType, TimestampType

from holdfast.retained.api import LONGEST_NAME, Merge, Row, StagingArea, staging_area_for
from holdfast_pipeline.choices import MOST_REJECTS, REJECTS
from holdfast_pipeline.database.connection import check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sink.merging import Target, staging_explained
from holdfast_pipeline.sink.rows import FIELDS, UnfitMessage, row_of_fields
from holdfast_pipeline.sources.columns import RETAINED
from holdfast_pipeline.sources.one_message import OneMessage
from holdfast_pipeline.sources.options import Options

OPTIONS = ("merge", "job", "rejects", "max_rejects", "staging")
Reject = dict[str, Any]
#: Columns about a row: where it comes from, and why it is not a message.
_ABOUT = ("source", "problem")
#: Columns of the source that are computed from others.
_DERIVED = ("size",)
_TIMES = ("stored_at", "expires_at")


@dataclass
class Staged(WriterCommitMessage):
    """The result of a task attempt: the number of staged rows, and of rejected rows by the kind of reason."""

    attempt: int
    rows: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)


class StagingWriter(OneMessage):
    """The common part of the writers of a table and of a stream: checks rows, stages them, and merges them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        _check_columns(schema)
        self._target = Target(options.text("storage"), options.text("config"))
        options.url()  # raises an error with both, or with neither
        self._merge = Merge(options.choice("merge", Merge.NEWER.value, tuple(one.value for one in Merge)))
        self._rejects = options.text("rejects")
        self._most = options.number("max_rejects", 0, 0, MOST_REJECTS)
        self._staging = options.text("staging")
        self._now = time.time_ns() // 1_000_000
        check(self._target.url)

    def _new_area(self, job: str) -> StagingArea:
        return staging_area_for(self._target.url, job, self._staging)

    def _stage(self, area: StagingArea, staged: Staged, iterator: Iterator[pa.RecordBatch]) -> None:
        """Stage the rows of one task attempt, and count them in ``staged``."""

        def rows() -> Iterator[Row]:
            for batch in iterator:
                for given in _records(batch):
                    try:
                        if given.get("problem"):
                            raise UnfitMessage("unreadable", given["problem"])
                        row = row_of_fields(given, self._now)
                    except UnfitMessage as unfit:
                        staged.rejected[unfit.kind] += 1
                        if len(staged.rejects) <= self._most:  # with more, nothing is merged
                            staged.rejects.append(_reject(str(unfit), unfit.kind, given))
                    else:
                        staged.rows += 1
                        yield row

        with staging_explained():
            area.put(staged.attempt, rows())

    def _merge_staged(self, area: StagingArea, job: str, staged: Sequence[Staged]) -> None:
        """Merge the rows of the accepted attempts, unless too many rows were rejected."""
        rejects = [reject for each in staged for reject in each.rejects]
        rejected = self._check_rejects(staged, rejects)
        with staging_explained():
            named = area.prepare_merge([each.attempt for each in staged if each.rows])
        for said in self._target.merge(job, self._merge, rejected, named):
            rejects += [_reject(one["reason"], "limit", one) for one in said["rejects"]]
        self._tell(rejects)

    def _check_rejects(self, staged: Sequence[Staged], rejects: Sequence[Reject]) -> int:
        reasons: Counter[str] = sum((each.rejected for each in staged), Counter())
        if reasons.total() > self._most:
            self._tell(rejects)
            told = ", ".join(f"{kind} {count}" for kind, count in sorted(reasons.items()))
            raise PipelineError(
                f"{reasons.total()} rows are rejected ({told}), {self._most} are allowed: nothing was merged; "
                f"the first: {rejects[0]['source'] or ''} {rejects[0]['reason']}"
            )
        return reasons.total()

    def _tell(self, rejects: Sequence[Reject]) -> None:
        if self._rejects is not None:
            lines = [json.dumps(reject).encode() + b"\n" for reject in rejects]
            Folder(self._rejects).write(REJECTS, b"".join(lines))


class RetainedWriter(StagingWriter, DataSourceArrowWriter):
    """Stages rows in tasks, and merges them in the driver."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError(
                'format retained: only mode("append") is possible; the option merge decides about known topics'
            )
        super().__init__(options, schema)
        self._job = options.text("job") or uuid4().hex
        if len(self._job) > LONGEST_NAME or "\0" in self._job:
            raise PipelineError(f"format retained: job is a name of at most {LONGEST_NAME} characters")
        self._area = self._new_area(self._job)
        with staging_explained():
            self._area.open()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task attempt."""
        context = TaskContext.get()
        assert context is not None
        staged = Staged(context.taskAttemptId())
        self._stage(self._area, staged, iterator)
        return staged

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Merge the rows of the accepted attempts, unless too many rows were rejected."""
        try:
            self._merge_staged(self._area, self._job, [one for one in messages if isinstance(one, Staged)])
        finally:
            self._area.drop()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove the staged rows."""
        self._area.drop()


def _check_columns(schema: StructType) -> None:
    """Raise :class:`PipelineError` for a table without the required columns, or with unknown columns or types."""
    known = (*FIELDS, *_ABOUT, *_DERIVED)
    types = {column.name: column.spark for column in RETAINED}
    for name in ("topic", "payload"):
        if name not in schema.names:
            raise PipelineError(f"format retained: the table has no column {name}; topic and payload are required")
    for given in schema.fields:
        if given.name not in known:
            raise PipelineError(
                f"format retained: there is no column {given.name!r}; the columns are: {', '.join(known)}"
            )
        allowed: tuple[DataType, ...] = (types.get(given.name, given.dataType),)
        if given.name in _TIMES:
            allowed = (TimestampType(), LongType())
        elif given.name == "qos":
            allowed = (*allowed, LongType())
        if given.dataType not in allowed:
            names = " or ".join(one.simpleString() for one in allowed)
            raise PipelineError(
                f"format retained: the column {given.name} has the type {given.dataType.simpleString()}, not {names}; "
                "cast it"
            )


def _records(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows, with times in milliseconds since the epoch."""
    names = batch.schema.names
    columns = []
    for array in batch.columns:
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).cast(pa.int64())
        columns.append(array.to_pylist())
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _reject(reason: str, kind: str, given: Mapping[str, Any]) -> Reject:
    return {"reason": reason, "kind": kind, "topic": given.get("topic"), "source": given.get("source")}
