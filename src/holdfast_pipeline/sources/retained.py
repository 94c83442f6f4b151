"""Reading ``format("retained")``: the retained messages, as a table.

Options, with defaults in parentheses: ``storage`` (the database's URL) or ``config`` (the broker's file); ``filter``, a
Topic Filter (all topics); ``columns``, names separated by commas (all columns); ``partitions`` (1); ``as_of``, a past
time (none): the messages that were retained then, from the history; ``expired_at``, a time (now): messages of the
present table that have expired by then are left out. Times are as in the commands. ``pushdown`` (true): the database
evaluates conditions; ``spark.sql.python.filterPushdown.enabled`` must be true then, and ``register`` sets it; ``copy``
and ``exported``, set by
:class:`holdfast_pipeline.Snapshot`. Several partitions read at different times, so they need one of the last two:
without a snapshot they would be inconsistent. A schema selects columns too, and overrides ``columns``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from holdfast.retained.api import KeyRange
from holdfast_pipeline.database.connection import ReadTransaction, Source, check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.arrow_batches import MatchingRows, batches_of
from holdfast_pipeline.sources.changes import ChangesReader
from holdfast_pipeline.sources.columns import CHANGED, RETAINED, Column, chosen, struct_of
from holdfast_pipeline.sources.one_message import OneMessage
from holdfast_pipeline.sources.options import Options
from holdfast_pipeline.sources.past import PastReader
from holdfast_pipeline.sources.pushdown import pushed
from holdfast_pipeline.sources.ranges import Condition, TopicSelection, divided, selection
from holdfast_pipeline.sources.splitting import bounds, within

# SQL is built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

OPTIONS = ("filter", "columns", "partitions", "as_of", "since", "expired_at", "pushdown", "copy", "exported")


class TopicRanges(InputPartition):
    """The topics of one task."""

    def __init__(self, ranges: tuple[KeyRange, ...], conditions: tuple[Condition, ...], checked: bool) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.conditions = conditions
        self.checked = checked


class RetainedSource(OneMessage, DataSource):
    """The retained messages. The sink adds the writer."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "retained"

    def schema(self) -> StructType:
        """Return the columns of the option ``columns``."""
        options = Options(self.name(), self.options, OPTIONS)
        if options.text("since") is None:
            return struct_of(options.columns(RETAINED))
        chosen_ones = options.columns(CHANGED)
        kinds = () if CHANGED[0] in chosen_ones else CHANGED[:1]  # without "op", a cleared topic looks like a message
        return struct_of((*kinds, *chosen_ones))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of a schema: of present messages, of those of a past time, or of changes."""
        options = Options(self.name(), self.options, OPTIONS)
        at = options.moment("as_of", time.time_ns() // 1_000_000)
        if at is not None:
            if options.text("expired_at") is not None:
                raise PipelineError("format retained: as_of and expired_at exclude each other; as_of expires by itself")
            if options.text("since") is not None:
                raise PipelineError("format retained: as_of and since exclude each other: changes lead to the present")
            return PastReader(options, chosen(RETAINED, schema), at)
        if options.text("since") is not None:
            return ChangesReader(options, chosen(CHANGED, schema))
        reader = PushdownReader if options.flag("pushdown", default=True) else RetainedReader
        return reader(options, chosen(RETAINED, schema))


class RetainedReader(OneMessage, DataSourceReader):
    """Reads retained messages, in one transaction or from a snapshot."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self.source = Source(options.url(), options.text("copy"), options.text("exported"))
        self._filter = options.topic_filter()
        self._parts = options.partitions()
        now = time.time_ns() // 1_000_000
        expired_at = options.moment("expired_at", now)
        self._expired_at = now if expired_at is None else expired_at
        self._conditions: tuple[Condition, ...] = ()
        if self._parts > 1 and self.source.copy is None and self.source.exported is None:
            raise PipelineError(
                "format retained: several partitions need a snapshot, which keeps them consistent: "
                "use holdfast_pipeline.snapshot_of, or read with one partition"
            )

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the topics."""
        check(self.source.url)
        with self.source.transaction() as transaction:
            topics = self._selection(transaction)
            conditions = (*topics.conditions, *self._conditions)
            parts = divided(topics.ranges, bounds(transaction, topics.ranges, self._parts))
        return [TopicRanges(part, conditions, topics.checked) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition."""
        assert isinstance(partition, TopicRanges)
        where, values = self._where(partition)
        columns = ", ".join(column.sql for column in self._columns)
        with self.source.transaction() as transaction:
            if partition.checked:
                statement = f"SELECT {columns}, topic FROM retained WHERE {where}"
                with transaction.streamed(statement, values) as cursor:
                    yield from batches_of(MatchingRows(cursor, self._filter), self._columns)
            else:
                with transaction.streamed(f"SELECT {columns} FROM retained WHERE {where}", values) as cursor:
                    yield from batches_of(cursor, self._columns)

    def _selection(self, transaction: ReadTransaction) -> TopicSelection:
        levels = [row[0] for row in transaction.rows("SELECT levels FROM retained_levels")]
        return selection(self._filter, levels, transaction.dialect)

    def _where(self, partition: TopicRanges) -> tuple[str, list[Any]]:
        ranges, values = within(partition.ranges)
        terms = [f"({ranges})", "tombstone = 0", "(expires_at IS NULL OR expires_at > ?)"]
        bound: list[Any] = [*values, self._expired_at]
        for condition in partition.conditions:
            terms.append(condition.sql)
            bound += condition.values
        return " AND ".join(terms), bound


class PushdownReader(RetainedReader):
    """Has the database evaluate conditions that Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the conditions that the database can evaluate; return the others."""
        self._conditions, rest = pushed(filters)
        return rest
