"""Jobs that follow the history: their reading, the columns of their tables, and the upkeep of these tables.

How it works. Each commit adds at least one file. Once a part of a table (a day, or the whole of ``current``) has
``most_small`` files below half of ``file_size``, they are joined; a past day already with two of them, because it gets
no more. The old files stay for ``keep`` seconds, for readers that have begun with an older version.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from holdfast.core.messages import ChangeKind
from holdfast_pipeline.database import ReadTransaction
from holdfast_pipeline.lake.growing_table import GrowingTable, Layout
from holdfast_pipeline.lake.iceberg_table import IcebergTable
from holdfast_pipeline.progress import phase
from holdfast_pipeline.sources.columns import (
    HISTORY,
    RETAINED,
    STORED_AT_OF_ENTRY,
    TELEMETRY,
    Column,
    arrow_schema,
    batches_of,
)
from holdfast_pipeline.sources.lake import PARTITION

# The columns of the tables ``changes``, ``current`` and ``telemetry``.
#
# They follow the formats ``retained_history``, ``retained`` and ``telemetry``: a column that a later release adds
# there is added here.

#: What a sync reads of each entry: the columns of both tables.
READ: tuple[Column, ...] = (*HISTORY, STORED_AT_OF_ENTRY)
#: The columns of ``current``, read from the newest entry of each topic.
READ_CURRENT: tuple[Column, ...] = tuple(
    next(known for known in READ if known.name == name) for name in (*(column.name for column in RETAINED), "seq")
)


def _layout(columns: tuple[Column, ...], *more: pa.Field, divided_by: str | None = None) -> Layout:
    # All columns are nullable: rows that an earlier release wrote have no values in later columns.
    return Layout(pa.schema([*((column.name, column.arrow) for column in columns), *more]), divided_by)


CHANGES_LAYOUT = _layout(HISTORY, pa.field(PARTITION, pa.date32()), divided_by=PARTITION)
CURRENT_LAYOUT = _layout(READ_CURRENT)
TELEMETRY_LAYOUT = _layout(TELEMETRY, pa.field(PARTITION, pa.date32()), divided_by=PARTITION)


# Reading for Delta tables: a bounded batch of entries or recorded messages, or the newest entry of each topic.

# SQL is built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

#: Whether a message is retained after an entry.
KEPT = "kept"
_ENTRIES = "SELECT {columns} FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?"
_NEWEST = (
    f"SELECT {', '.join(column.sql for column in READ_CURRENT)} FROM retained_history AS entries "
    f"WHERE seq > ? AND op = '{ChangeKind.SET.value}' AND NOT EXISTS "
    "(SELECT 1 FROM retained_history WHERE topic = entries.topic AND seq > entries.seq) ORDER BY seq"
)
_TIME = "SELECT {time} FROM {table} WHERE seq <= ? ORDER BY seq DESC LIMIT 1"


@frozen
class Numbered:
    """A table of the database with numbered rows, the columns that are read, and the column of their times."""

    name: str
    time: str
    columns: Sequence[Column]


HISTORY_TABLE = Numbered("retained_history", "changed_at", READ)
TELEMETRY_TABLE = Numbered("telemetry", "received_at", TELEMETRY)


@frozen
class Entries:
    """The entries of a table up to ``upto``, after the position from which they were read."""

    rows: pa.Table
    upto: int
    table: Numbered = HISTORY_TABLE

    def after(self, seq: int) -> Entries:
        """Return the entries after a position."""
        return evolve(self, rows=self.rows.filter(pc.greater(self.rows["seq"], seq)))

    @property
    def dated(self) -> pa.Table:
        """The rows of ``changes`` or ``telemetry``: each entry with its day in UTC."""
        return self.rows.append_column(PARTITION, self.rows[self.table.time].cast(pa.date32()))

    @property
    def newest(self) -> pa.Table:
        """The last entry of each topic, with the column :data:`KEPT`."""
        last = self.rows.group_by("topic").aggregate([("seq", "max")])["seq_max"]
        rows = self.rows.filter(pc.is_in(self.rows["seq"], value_set=last.combine_chunks()))
        return rows.append_column(KEPT, pc.equal(rows["op"], ChangeKind.SET.value))


def read_entries(
    transaction: ReadTransaction, after: int, rows: int, size: int, last: int, table: Numbered = HISTORY_TABLE
) -> Entries:
    """Read entries after a position: at most ``rows``, and no further batch after ``size`` bytes.

    ``last`` is the last position of the table in this transaction.
    """
    statement = _ENTRIES.format(columns=", ".join(column.sql for column in table.columns), table=table.name)
    gathered: list[pa.RecordBatch] = []
    held = count = 0
    with transaction.streamed(statement, (after, rows)) as cursor:
        for batch in batches_of(cursor, table.columns):
            gathered.append(batch)
            count += len(batch)
            held += batch.nbytes
            if held >= size:
                break
    found = pa.Table.from_batches(gathered, arrow_schema(table.columns))
    # The end of the history may be a number without an entry: the beginning of a period.
    complete = count < rows and held < size
    return Entries(found, last if complete else found["seq"][-1].as_py(), table)


def newest_entries(transaction: ReadTransaction, first_seq: int) -> Iterator[pa.RecordBatch]:
    """Read the retained messages of the period that begins at ``first_seq``, which must be the last one."""
    with transaction.streamed(_NEWEST, (first_seq,)) as cursor:
        yield from batches_of(cursor, READ_CURRENT)


def time_of_entry(transaction: ReadTransaction, seq: int, table: Numbered = HISTORY_TABLE) -> int | None:
    """Return the time of the last entry up to a position, in milliseconds since the epoch; None without one."""
    rows = transaction.rows(_TIME.format(time=table.time, table=table.name), (seq,))
    return int(rows[0][0]) if rows else None


#: A table that a job keeps.
KeptTable = GrowingTable | IcebergTable


@frozen
class Upkeep:
    """The size of joined files in bytes, the most small files of a part, and the seconds that old files stay."""

    file_size: int = 128 << 20
    most_small: int = 16
    keep: float = 7 * 86_400.0


def join_files(table: KeptTable, upkeep: Upkeep) -> int:
    """Join the small files of a table; return the number of parts that had too many."""
    files = table.files
    small = Counter(file.part for file in files if file.size < upkeep.file_size // 2)
    last = max((file.part for file in files if file.part is not None), default=None)
    full = [
        part for part, count in small.items() if count >= (upkeep.most_small if part == last else 2)
    ]  # fmt: skip
    for part in sorted(full, key=str):
        table.compact(part, upkeep.file_size)
    return len(full)


# Jobs that follow something which grows: step by step to its end, and again after a while, with the upkeep between.

#: Seconds between two vacuums, and between two looks whether the job shall end.
_VACUUM, _LOOK = 3600.0, 0.2


def follow(
    step: Callable[[], bool], tables: Collection[KeptTable], upkeep: Upkeep, stopped: Callable[[], bool],
    every: float | None,
) -> None:  # fmt: skip
    """Call ``step`` until it returns False; with ``every``, again after so many seconds.

    It ends early, between two steps, when ``stopped`` returns True. Small files are joined at each end, and old files
    deleted at the first end, then once an hour.
    """
    tended = time.monotonic() - _VACUUM
    while True:
        began = time.monotonic()
        with phase("reading changes", unit="changes"):
            while not stopped() and step():
                pass
        for table in tables:
            if not stopped():
                with phase("joining small files"):
                    join_files(table, upkeep)
        if not stopped() and time.monotonic() - tended >= _VACUUM:
            for table in tables:
                with phase("deleting old files"):
                    table.vacuum(upkeep.keep)
            tended = time.monotonic()
        if every is None or stopped():
            return
        while not stopped() and time.monotonic() - began < every:
            time.sleep(_LOOK)
