"""``format("retained_history")``: the history of retained messages, as a table and as a stream; and the telemetry.

Options of both, with defaults in parentheses: ``storage`` or ``config``; ``filter``, a Topic Filter (all topics);
``columns``, names separated by commas (all columns); ``partitions`` (1). Options of a table: ``from_seq`` and
``to_seq``, the first and the last entry (all entries); ``newest`` (false): only the last one of these entries for each
topic; and :attr:`holdfast_pipeline.Snapshot.options`. Options of a stream: ``starting_seq``: "earliest" (the default),
"latest", or the first entry; ``max_rows_per_trigger`` (200000); ``fail_on_data_loss`` (true): the stream stops if
entries were pruned before it read them.

``format("telemetry")``: the recorded messages without RETAIN, as a table. Options: those of a table of the history,
without ``newest``.

How it works. Each entry has a number, ``seq``, in the order of commits. A reader that sees entry 8 sees all entries
before it. So a range of numbers always holds the same entries, except that pruning deletes some, and a batch of the
stream is a range: offset 5 to offset 8 is the entries 6, 7 and 8, also when Spark repeats the batch after a crash. Each
task counts its range in the transaction that reads it, so pruning between counting and reading cannot hide a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from holdfast.core.topics import EVERY_TOPIC
from holdfast_pipeline.database import (
    HistoryRange,
    ReadTransaction,
    Source,
    check,
    history_range,
    missing_entries,
    telemetry_range,
)
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.columns import (
    HISTORY,
    TELEMETRY,
    Column,
    MatchingRows,
    batches_of,
    chosen,
    packed_batches,
    struct_of,
)
from holdfast_pipeline.sources.options import OneMessage, Options
from holdfast_pipeline.sources.ranges import Condition

# SQL is built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

_OPTIONS = ("filter", "columns", "partitions")
TABLE_OPTIONS = (*_OPTIONS, "from_seq", "to_seq", "newest", "copy", "exported")
TELEMETRY_OPTIONS = (*_OPTIONS, "from_seq", "to_seq", "copy", "exported")
STREAM_OPTIONS = (*_OPTIONS, "starting_seq", "max_rows_per_trigger", "fail_on_data_loss")
_EVER = 2**63 - 1
_ROWS_PER_TRIGGER = 200_000
#: Costs one lookup in the index of topics per entry, and each partition does its own lookups: no shuffle in Spark.
_NEWEST = "NOT EXISTS (SELECT 1 FROM retained_history WHERE topic = entries.topic AND seq > entries.seq AND seq <= ?)"

Offset = dict[str, int]


@frozen
class _Entries:
    """The entries from ``low`` up to but not including ``high``."""

    low: int
    high: int


class EntryRange(InputPartition):
    """The entries later than ``after``, up to ``upto``.

    With ``complete_after``, no entry after that position may be missing. With ``newest_upto``, only the newest entry of
    each topic up to that position counts.
    """

    def __init__(
        self, after: int, upto: int, complete_after: int | None = None, newest_upto: int | None = None
    ) -> None:
        super().__init__((after, upto))
        self.after = after
        self.upto = upto
        self.complete_after = complete_after
        self.newest_upto = newest_upto


class HistorySource(OneMessage, DataSource):
    """The history of retained messages."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "retained_history"

    def schema(self) -> StructType:
        """Return the columns of the option ``columns``."""
        allowed = tuple(dict.fromkeys((*TABLE_OPTIONS, *STREAM_OPTIONS)))
        return struct_of(Options(self.name(), self.options, allowed).columns(HISTORY))

    def reader(self, schema: StructType) -> HistoryReader:
        """Return a reader of the columns of a schema, for a table."""
        return HistoryReader(Options(self.name(), self.options, TABLE_OPTIONS), chosen(HISTORY, schema))

    def streamReader(self, schema: StructType) -> HistoryStreamReader:
        """Return a reader of the columns of a schema, for a stream."""
        return HistoryStreamReader(Options(self.name(), self.options, STREAM_OPTIONS), chosen(HISTORY, schema))


class EntryReader(OneMessage):
    """The common part of the readers of a table, of a stream and of a past time: the tasks.

    Only entries that meet the condition ``only`` become rows.
    """

    table = "retained_history"

    def __init__(self, options: Options, columns: tuple[Column, ...], only: Condition | None = None) -> None:
        self._columns = columns
        self._only = only
        self.source = Source(options.url(), options.text("copy"), options.text("exported"))
        self._filter = options.topic_filter()
        self._parts = options.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the entries of a partition, in order."""
        assert isinstance(partition, EntryRange)
        columns = ", ".join(column.sql for column in self._columns)
        knows = self._knows(partition)
        checked = self._filter != EVERY_TOPIC or knows is not None
        where, values = "1 = 1", list[Any]()
        if partition.newest_upto is not None:
            where, values = _NEWEST, [partition.newest_upto]
        if self._only is not None:
            where, values = f"{where} AND {self._only.sql}", [*values, *self._only.values]
        with self.source.transaction() as transaction:
            if transaction.dialect == "sqlite" and not checked:
                span = _Entries(partition.after + 1, partition.upto + 1)
                yield from packed_batches(transaction, self.table, self._columns, "seq", span, where, values)
            else:
                statement = (
                    f"SELECT {columns}{', topic' if checked else ''} FROM {self.table} AS entries "
                    f"WHERE seq > ? AND seq <= ? AND {where} ORDER BY seq"
                )
                values = [partition.after, partition.upto, *values]
                with transaction.streamed(statement, values) as cursor:
                    rows = MatchingRows(cursor, self._filter, knows or _any) if checked else cursor
                    yield from batches_of(rows, self._columns)
            self._verify(transaction, partition)

    def _knows(self, _partition: EntryRange) -> Callable[[str], bool] | None:
        """Return what tells whether entries of a topic count; None: those of all topics do."""
        return None

    def _verify(self, transaction: ReadTransaction, partition: EntryRange) -> None:
        """Raise :class:`PipelineError` if entries are missing, in the transaction that has read them."""
        if partition.complete_after is not None:
            _require_complete(transaction, max(partition.after, partition.complete_after), partition.upto)

    def _divided(
        self, after: int, upto: int, complete_after: int | None = None, newest_upto: int | None = None
    ) -> Sequence[InputPartition]:
        """Divide a range of entries into partitions of the same length."""
        return [EntryRange(low, high, complete_after, newest_upto) for low, high in self._edges(after, upto)]

    def _edges(self, after: int, upto: int) -> list[tuple[int, int]]:
        count = min(self._parts, upto - after)
        edges = [after + (upto - after) * part // count for part in range(count + 1)] if count > 0 else []
        return list(pairwise(edges))


class HistoryReader(EntryReader, DataSourceReader):
    """Reads the history as a table."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        super().__init__(options, columns)
        self._from = options.number("from_seq", 1, 1, _EVER)
        self._to = options.number("to_seq", _EVER, 0, _EVER)
        self._newest = options.flag("newest")

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the range. Its end is fixed here, for all partitions."""
        check(self.source.url)
        with self.source.transaction() as transaction:
            there = history_range(transaction)
        last = min(self._to, there.last)
        parts = self._divided(max(self._from - 1, there.before), last, newest_upto=last if self._newest else None)
        return parts or [EntryRange(there.last, there.last)]  # Spark needs at least one partition


class TelemetrySource(OneMessage, DataSource):
    """The recorded messages without RETAIN."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "telemetry"

    def schema(self) -> StructType:
        """Return the columns of the option ``columns``."""
        return struct_of(self._options().columns(TELEMETRY))

    def reader(self, schema: StructType) -> TelemetryReader:
        """Return a reader of the columns of a schema."""
        return TelemetryReader(self._options(), chosen(TELEMETRY, schema))

    def _options(self) -> Options:
        return Options(self.name(), self.options, TELEMETRY_OPTIONS)


class TelemetryReader(EntryReader, DataSourceReader):
    """Reads the telemetry as a table."""

    table = "telemetry"

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        super().__init__(options, columns)
        self._from = options.number("from_seq", 1, 1, _EVER)
        self._to = options.number("to_seq", _EVER, 0, _EVER)

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the range. Its end is fixed here, for all partitions."""
        check(self.source.url)
        with self.source.transaction() as transaction:
            there = telemetry_range(transaction)
        parts = self._divided(max(self._from - 1, there.before), min(self._to, there.last))
        return parts or [EntryRange(there.last, there.last)]


class HistoryStreamReader(EntryReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the history as a stream.

    An offset has ``seq``, the last entry that was read, and ``pruned``: up to this entry, some were missing when the
    stream began with the earliest entry. They do not count as lost.
    """

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        super().__init__(options, columns)
        self._start = options.text("starting_seq", "earliest") or "earliest"
        if self._start not in ("earliest", "latest"):
            options.number("starting_seq", 1, 1, _EVER)
        self._most = options.number("max_rows_per_trigger", _ROWS_PER_TRIGGER, 1, _EVER)
        self._fails = options.flag("fail_on_data_loss", True)
        self._end: int | None = None

    def initialOffset(self) -> Offset:
        """Return the offset at which a new stream begins."""
        check(self.source.url)
        there = self._history_range()
        if self._start == "latest":
            return {"seq": there.last, "pruned": there.last}
        if self._start == "earliest":
            return {"seq": there.before, "pruned": there.pruned}
        return {"seq": int(self._start) - 1, "pruned": int(self._start) - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the size limit of a batch."""
        return ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Stop after the entries that exist now."""
        self._end = self._history_range().last

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the offset at which the next batch ends."""
        last = self._end if self._end is not None else self._history_range().last
        upto = max(start["seq"], last)
        if not isinstance(limit, ReadAllAvailable):
            upto = min(upto, start["seq"] + (limit.max_rows if isinstance(limit, ReadMaxRows) else self._most))
        return {"seq": upto, "pruned": start["pruned"]}

    def reportLatestOffset(self) -> Offset:
        """Return the offset of the last entry."""
        last = self._history_range().last
        return {"seq": last, "pruned": last}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide a batch; no entry of it may be missing."""
        after, upto = start["seq"], end["seq"]
        if upto <= after:
            return []
        if not self._fails:
            return self._divided(after, upto)
        with self.source.transaction() as transaction:  # before a task reads: this finds the first missing entry
            _require_complete(transaction, max(after, start["pruned"]), upto)
        return self._divided(after, upto, start["pruned"])

    def _history_range(self) -> HistoryRange:
        with self.source.transaction() as transaction:
            return history_range(transaction)


def _any(_topic: str) -> bool:
    return True


def _require_complete(transaction: ReadTransaction, after: int, upto: int) -> None:
    missing = missing_entries(transaction, after, upto) if after < upto else None
    if missing is not None:
        raise PipelineError(
            f"the history has lost {missing.count} entries from seq {missing.first} on: they were pruned before they "
            "were read. To go on without them, set fail_on_data_loss to false. To prevent it, keep the history "
            "longer (retainer.history)"
        )
