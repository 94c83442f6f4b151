"""``format("retained")``: what is retained, as a table.

Options: ``storage`` (the database's URL) or ``config`` (the broker's file); ``filter``, a Topic Filter (all topics
without one); ``columns``, the names of those to read, with commas between them (all of them); ``partitions`` (1);
``as_of``, milliseconds since the epoch, at which a message must not have expired (now); ``pushdown`` (false): take
conditions on columns, which Spark allows where ``spark.sql.python.filterPushdown.enabled`` is true; ``copy`` and
``exported``, which a :class:`holdfast.pipeline.Snapshot` sets. With more than one partition, one of these two is
needed: the partitions read at different times, and would not fit together otherwise. A schema with some of the columns
does what ``columns`` does, and prevails over it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from holdfast.pipeline.database.connection import Reading, Source, check
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.sources.arrow_batches import Matching, batches_of
from holdfast.pipeline.sources.columns import RETAINED, Column, chosen, struct_of
from holdfast.pipeline.sources.options import Options
from holdfast.pipeline.sources.pushdown import pushed
from holdfast.pipeline.sources.ranges import Condition, Wanted, divided, wanted
from holdfast.pipeline.sources.splitting import bounds, within
from holdfast.retained.wildcards.plan import KeyRange

if TYPE_CHECKING:
    from holdfast.pipeline.sink.writer import RetainedWriter

# Built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

OPTIONS = ("filter", "columns", "partitions", "as_of", "pushdown", "copy", "exported")
_EVER = 2**63 - 1


class Topics(InputPartition):
    """A part of what is asked for."""

    def __init__(self, ranges: tuple[KeyRange, ...], conditions: tuple[Condition, ...], checked: bool) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.conditions = conditions
        self.checked = checked


class RetainedSource(DataSource):
    """What is retained."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "retained"

    def schema(self) -> StructType:
        """Return the columns that are asked for."""
        return struct_of(Options(self.name(), self.options, OPTIONS).columns(RETAINED))

    def reader(self, schema: StructType) -> RetainedReader:
        """Return what reads the columns of a schema."""
        options = Options(self.name(), self.options, OPTIONS)
        reader = PushingReader if options.flag("pushdown") else RetainedReader
        return reader(options, chosen(RETAINED, schema))

    def writer(self, schema: StructType, overwrite: bool) -> RetainedWriter:
        """Return what writes rows with these columns."""
        from holdfast.pipeline.sink.writer import OPTIONS as WRITING  # every process that only reads would wait for it
        from holdfast.pipeline.sink.writer import RetainedWriter

        return RetainedWriter(Options(self.name(), self.options, WRITING), schema, overwrite)


class RetainedReader(DataSourceReader):
    """Reads what is retained, in one transaction or from a snapshot."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self._source = Source(options.url(), options.text("copy"), options.text("exported"))
        self._filter = options.topic_filter()
        self._parts = options.partitions()
        self._as_of = options.number("as_of", time.time_ns() // 1_000_000, 0, _EVER)
        self._conditions: tuple[Condition, ...] = ()
        if self._parts > 1 and self._source.copy is None and self._source.exported is None:
            raise PipelineError(
                "format retained: several partitions need a snapshot, which keeps them consistent: "
                "use holdfast.pipeline.snapshot_of, or read with one partition"
            )

    def partitions(self) -> Sequence[InputPartition]:
        """Divide what is asked for."""
        check(self._source.url)
        with self._source.reading() as reading:
            asked = self._wanted(reading)
            conditions = (*asked.conditions, *self._conditions)
            parts = divided(asked.ranges, bounds(reading, asked.ranges, self._parts))
        return [Topics(part, conditions, asked.checked) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a part."""
        assert isinstance(partition, Topics)
        where, values = self._where(partition)
        columns = ", ".join(column.sql for column in self._columns)
        with self._source.reading() as reading:
            if partition.checked:
                statement = f"SELECT {columns}, topic FROM retained WHERE {where}"
                with reading.streamed(statement, values) as cursor:
                    yield from batches_of(Matching(cursor, self._filter), self._columns)
            else:
                with reading.streamed(f"SELECT {columns} FROM retained WHERE {where}", values) as cursor:
                    yield from batches_of(cursor, self._columns)

    def _wanted(self, reading: Reading) -> Wanted:
        levels = [row[0] for row in reading.rows("SELECT levels FROM retained_levels")]
        return wanted(self._filter, levels, reading.dialect)

    def _where(self, partition: Topics) -> tuple[str, list[Any]]:
        ranges, values = within(partition.ranges)
        terms = [f"({ranges})", "tombstone = 0", "(expires_at IS NULL OR expires_at > ?)"]
        bound: list[Any] = [*values, self._as_of]
        for condition in partition.conditions:
            terms.append(condition.sql)
            bound += condition.values
        return " AND ".join(terms), bound


class PushingReader(RetainedReader):
    """Reads only what meets the conditions Spark pushes down, as far as the database can check them."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the conditions that can be asked of the database; return the others."""
        self._conditions, rest = pushed(filters)
        return rest
