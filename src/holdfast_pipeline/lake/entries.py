"""Reading for Delta tables: a bounded batch of entries or recorded messages, or the newest entry of each topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen

from holdfast.core.messages import ChangeKind
from holdfast_pipeline.database.connection import ReadTransaction
from holdfast_pipeline.lake.layouts import READ, READ_CURRENT
from holdfast_pipeline.sources.arrow_batches import batches_of
from holdfast_pipeline.sources.columns import TELEMETRY, Column, arrow_schema
from holdfast_pipeline.sources.lake import PARTITION

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
