"""Writing ``format("retained")``: the rows of a table, or of each batch of a stream, are staged and merged.

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
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from attrs import frozen
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, LongType, StructType, TimestampType

from holdfast.commands.api import Access, Inaccessible, MergeFailed, access_to, merge_staged, standing_in
from holdfast.config import Config, ConfigError, default, load
from holdfast.retained.api import (
    LONGEST_NAME,
    BadRecord,
    Merge,
    Row,
    StagingArea,
    StagingUnusable,
    staging_area_for,
)
from holdfast.retained.api import row_of_fields as fields_row
from holdfast.storage.api import DirectoryUnusable, StoreUnusable
from holdfast_pipeline.choices import MOST_REJECTS, REJECTS
from holdfast_pipeline.database import check, url_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sources.columns import RETAINED
from holdfast_pipeline.sources.options import OneMessage, Options, register_once
from holdfast_pipeline.sources.retained import RetainedSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


# Merging a staging area: through the running broker, or in its place if none runs.


@frozen
class Target:
    """The database to import into: either ``storage``, its URL, or ``config``, the broker's file, is given.

    The broker of an SQLite database given by its URL is the one whose data directory holds the database. A Postgres
    database given by its URL is written directly, because its brokers may run on any host.
    """

    storage: str | None
    config: str | None

    @property
    def url(self) -> str:
        """The database's URL. Raises :class:`PipelineError`."""
        return url_of(self.storage, self.config)

    def anywhere(self) -> Target:
        """Return the same target for processes with other working directories. Raises :class:`PipelineError`."""
        if self.config is None:
            return Target(self.url, None)
        return Target(self.storage, str(Path(self.config).absolute()))

    def merge(self, job: str, merge: Merge, rejected: int, staged: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Merge a staging area, and yield the API's report after each part; ``rejected`` rows were rejected before.

        Raises :class:`PipelineError`.
        """
        try:
            with self._access() as access:
                yield from merge_staged(access, job=job, merge=merge.value, rejected=rejected, staged=staged)
        except MergeFailed as error:
            raise PipelineError(f"the import is not complete: {error}; run the same job again") from error

    @contextmanager
    def _access(self) -> Iterator[Access]:
        try:
            config = self._config()
            if self.config is not None or config.storage.url.startswith("sqlite"):
                with access_to(config) as access:
                    yield access
                return
            with standing_in(config) as access:
                yield access
        except (Inaccessible, StoreUnusable, DirectoryUnusable, ConfigError) as error:
            raise PipelineError(str(error)) from error

    def _config(self) -> Config:
        if self.config is not None:
            return load(Path(self.config), allow_anonymous=True)
        url = self.url
        folder = str(Path(url.removeprefix("sqlite:///")).parent) if url.startswith("sqlite") else None
        return default().override([], folder, url, allow_anonymous=True, cwd=Path.cwd())


@contextmanager
def staging_explained() -> Iterator[None]:
    """Raise :class:`PipelineError` if a staging area cannot be used."""
    try:
        yield
    except StagingUnusable as error:
        raise PipelineError(str(error)) from error


# Makes the row to stage from the fields of a message, or refuses the message with a reason.

#: The fields of a message; all but the first two have defaults.
FIELDS = (
    "topic", "payload", "qos", "client_id", "username", "stored_at", "expires_at", "properties_json", "revision",
)  # fmt: skip
#: The kinds of rejects that are not named like the field at fault.
_KINDS = {"stored_at": "date", "expires_at": "date"}


class UnfitMessage(ValueError):
    """The given fields are not a message that can be retained. ``kind`` is the reason in a word, for counting."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def row_of_fields(given: Mapping[str, Any], now: int) -> Row:
    """Return the row of a message, with the given revision (0 for none).

    Times are in milliseconds since the epoch; a message without ``stored_at`` gets ``now``. Raises
    :class:`UnfitMessage`.
    """
    try:
        return fields_row(given, now)
    except BadRecord as error:
        raise UnfitMessage(_KINDS.get(error.field, error.field), str(error)) from error


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


# ``stream.writeStream.format("retained")``: retains the rows of each batch of a stream, once.
#
# Columns and options are those of a table that is written, see :mod:`holdfast_pipeline.sink`, without ``job``.
# ``rejects.jsonl`` has the rejects of the last batch.
#
# How it works. Each batch is an import job, named after the identity of the query in its checkpoint and the number of
# the batch. If Spark is killed after a merge and before it has noted the batch as done, it repeats the batch. Then
# the broker knows the job: it merges what is missing, or nothing. Spark makes a writer for each batch, whose tasks
# share a staging area, and another one to commit: so the tasks make the area, and their messages name it.

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


# ``format("retained")`` with its writer: Spark knows one class for reading and writing a format.
#
# Spark makes the writer of a stream in the first batch. So an unknown option or a missing database would end a stream
# after its start; :func:`write_stream` looks for them before.


class RetainedFormat(RetainedSource):
    """The retained messages, which can also be written."""

    def writer(self, schema: StructType, overwrite: bool) -> RetainedWriter:
        """Return a writer of rows with these columns."""
        # Imported late: processes that only read would wait for the writer's imports.

        return RetainedWriter(Options(self.name(), self.options, OPTIONS), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> RetainedStreamWriter:
        """Return a writer of a stream of rows with these columns."""

        return RetainedStreamWriter(Options(self.name(), self.options, STREAM_OPTIONS), schema, overwrite)


def write_stream(stream: DataFrame, **options: str) -> DataStreamWriter:
    """Return ``stream.writeStream.format("retained")`` with these options, once all that it needs is there.

    Raises :class:`PipelineError` for unknown options and columns, and for a database that is missing, cannot be reached
    or has another schema.
    """

    RetainedStreamWriter(Options(RetainedFormat.name(), options, STREAM_OPTIONS), stream.schema, overwrite=False)
    register_once(stream.sparkSession, RetainedFormat)
    return stream.writeStream.format(RetainedFormat.name()).options(**options)
