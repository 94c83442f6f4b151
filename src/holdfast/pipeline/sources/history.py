"""``format("retained_history")``: the history of what is retained, as a table and as a stream.

Options of both: ``storage`` or ``config``; ``filter``, a Topic Filter (all topics without one); ``columns``, the names
of those to read, with commas between them (all of them); ``partitions`` (1). A table takes ``from_seq`` and ``to_seq``,
the first and the last entry (all of them), ``newest`` (false): of each topic only the last of these; and what
:attr:`holdfast.pipeline.Snapshot.options` says. A stream takes
``starting_seq``: "earliest" (the default), "latest", or the entry to begin with; ``max_rows_per_trigger`` (200000); and
``fail_on_data_loss`` (true): entries that are gone before they were read stop the stream.

Entries have a place, ``seq``, in the order of commits; one is never seen before those that precede it. What a range of
places holds never changes, but for what is pruned from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from holdfast.pipeline.database.connection import Reading, Source, check
from holdfast.pipeline.database.history_range import Gap, Places, extent, gap_in
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.sources.arrow_batches import Matching, batches_of
from holdfast.pipeline.sources.columns import HISTORY, Column, chosen, struct_of
from holdfast.pipeline.sources.options import Options
from holdfast.topics import EVERY_TOPIC

# Built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

_OPTIONS = ("filter", "columns", "partitions")
TABLE_OPTIONS = (*_OPTIONS, "from_seq", "to_seq", "newest", "copy", "exported")
STREAM_OPTIONS = (*_OPTIONS, "starting_seq", "max_rows_per_trigger", "fail_on_data_loss")
_EVER = 2**63 - 1
_ROWS_PER_TRIGGER = 200_000
#: A look at the index for each entry: every part of a table does its own share of the work.
_NEWEST = "NOT EXISTS (SELECT 1 FROM retained_history WHERE topic = entries.topic AND seq > entries.seq AND seq <= ?)"

Offset = dict[str, int]


class Entries(InputPartition):
    """The entries after one place, up to another; none may be missing after ``whole``, where that is known.

    With ``last``, only those that no entry of their topic follows, up to there.
    """

    def __init__(self, after: int, upto: int, whole: int | None = None, last: int | None = None) -> None:
        super().__init__((after, upto))
        self.after = after
        self.upto = upto
        self.whole = whole
        self.last = last


class HistorySource(DataSource):
    """The history of what is retained."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "retained_history"

    def schema(self) -> StructType:
        """Return the columns that are asked for."""
        allowed = tuple(dict.fromkeys((*TABLE_OPTIONS, *STREAM_OPTIONS)))
        return struct_of(Options(self.name(), self.options, allowed).columns(HISTORY))

    def reader(self, schema: StructType) -> HistoryReader:
        """Return what reads the columns of a schema as a table."""
        return HistoryReader(Options(self.name(), self.options, TABLE_OPTIONS), chosen(HISTORY, schema))

    def streamReader(self, schema: StructType) -> HistoryStreamReader:
        """Return what reads the columns of a schema as a stream."""
        return HistoryStreamReader(Options(self.name(), self.options, STREAM_OPTIONS), chosen(HISTORY, schema))


class _Reading:
    """What a table and a stream have in common."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._source = Source(options.url(), options.text("copy"), options.text("exported"))
        self._filter = options.topic_filter()
        self._parts = options.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the entries of a part, in order."""
        assert isinstance(partition, Entries)
        columns = ", ".join(column.sql for column in self._columns)
        checked = self._filter != EVERY_TOPIC
        where, values = "seq > ? AND seq <= ?", [partition.after, partition.upto]
        if partition.last is not None:
            where, values = f"{where} AND {_NEWEST}", [*values, partition.last]
        statement = (
            f"SELECT {columns}{', topic' if checked else ''} FROM retained_history AS entries "
            f"WHERE {where} ORDER BY seq"
        )
        with self._source.reading() as reading, reading.streamed(statement, values) as cursor:
            yield from batches_of(Matching(cursor, self._filter) if checked else cursor, self._columns)
            if partition.whole is not None:  # in the transaction that has read them
                _require_whole(reading, max(partition.after, partition.whole), partition.upto)

    def _divided(
        self, after: int, upto: int, whole: int | None = None, last: int | None = None
    ) -> Sequence[InputPartition]:
        """Divide a range of places into parts of the same length."""
        count = min(self._parts, upto - after)
        edges = [after + (upto - after) * part // count for part in range(count + 1)] if count > 0 else []
        return [Entries(low, high, whole, last) for low, high in pairwise(edges)]


class HistoryReader(_Reading, DataSourceReader):
    """Reads the history as a table."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        super().__init__(options, columns)
        self._from = options.number("from_seq", 1, 1, _EVER)
        self._to = options.number("to_seq", _EVER, 0, _EVER)
        self._newest = options.flag("newest")

    def partitions(self) -> Sequence[InputPartition]:
        """Divide what there is: the end is fixed here, for all parts."""
        check(self._source.url)
        with self._source.reading() as reading:
            there = extent(reading)
        last = min(self._to, there.last)
        parts = self._divided(max(self._from - 1, there.before), last, last=last if self._newest else None)
        return parts or [Entries(there.last, there.last)]  # Spark reads a part in any case


class HistoryStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the history as a stream.

    An offset is the place of the last entry read, ``seq``, and ``pruned``, up to which entries were missing already
    when the stream began with the earliest: that is no loss.
    """

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        super().__init__(options, columns)
        self._start = options.text("starting_seq", "earliest") or "earliest"
        if self._start not in ("earliest", "latest"):
            options.number("starting_seq", 1, 1, _EVER)
        self._most = options.number("max_rows_per_trigger", _ROWS_PER_TRIGGER, 1, _EVER)
        self._fails = options.flag("fail_on_data_loss", True)
        self._target: int | None = None

    def initialOffset(self) -> Offset:
        """Return where a new stream begins."""
        check(self._source.url)
        there = self._extent()
        if self._start == "latest":
            return {"seq": there.last, "pruned": there.last}
        if self._start == "earliest":
            return {"seq": there.before, "pruned": there.pruned}
        return {"seq": int(self._start) - 1, "pruned": int(self._start) - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a batch takes at most."""
        return ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is there now."""
        self._target = self._extent().last

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return where the next batch ends."""
        last = self._target if self._target is not None else self._extent().last
        upto = max(start["seq"], last)
        if not isinstance(limit, ReadAllAvailable):
            upto = min(upto, start["seq"] + (limit.max_rows if isinstance(limit, ReadMaxRows) else self._most))
        return {"seq": upto, "pruned": start["pruned"]}

    def reportLatestOffset(self) -> Offset:
        """Return where the history ends now."""
        last = self._extent().last
        return {"seq": last, "pruned": last}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Divide a batch, which must be there as a whole."""
        after, upto = start["seq"], end["seq"]
        if upto <= after:
            return []
        if not self._fails:
            return self._divided(after, upto)
        with self._source.reading() as reading:  # before anything is read, so that the first is named
            _require_whole(reading, max(after, start["pruned"]), upto)
        return self._divided(after, upto, start["pruned"])

    def _extent(self) -> Places:
        with self._source.reading() as reading:
            return extent(reading)


def _require_whole(reading: Reading, after: int, upto: int) -> None:
    gap = gap_in(reading, after, upto) if after < upto else None
    if gap is not None:
        raise PipelineError(_lost(gap))


def _lost(gap: Gap) -> str:
    return (
        f"the history has lost {gap.missing} entries from seq {gap.first} on before they were read: they were pruned. "
        "To go on without them, set fail_on_data_loss to false (an archive: begin another in another folder); to keep "
        "this from happening, confirm what is archived, or keep the history longer (retainer.history)"
    )
