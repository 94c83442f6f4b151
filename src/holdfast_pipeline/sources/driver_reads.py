"""Results that the driver reads itself: small ones, and all of an SQLite database.

To read with a format, Spark plans in one Python process and reads in others. Their start takes seconds, whatever the
size. So the driver reads a result that is small as a format's reader would, and hands it over as one Arrow table.

Larger results of an SQLite database are read by the driver too, since a transaction belongs to one process. It writes
them to a Parquet file, which Spark's tasks read without Python. Their row groups are of limited size, so that several
tasks share the file, and so that the driver needs little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Protocol

import pyarrow as pa
from pyarrow.parquet import ParquetWriter

from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.columns import NOW, TIME, Column, arrow_schema

#: A result with more rows or more bytes is not small. So many are read before that is known.
MOST_ROWS = 50_000
MOST_BYTES = 16 << 20
#: A row group ends at this many rows, or bytes.
_GROUP_ROWS, _GROUP_BYTES = 100_000, 32 << 20


class TableReader(Protocol):
    """A reader of a format, for a table."""

    def partitions(self) -> Sequence[Any]:
        """Divide the result."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read a part."""


def read_here(
    reader: TableReader,
    columns: Sequence[Column],
    now: int | None = None,
    folder: Path | None = None,
    most_rows: int = MOST_ROWS,
    most_bytes: int = MOST_BYTES,
    added: Callable[[int], None] = lambda _: None,
) -> pa.Table | Path | None:
    """Return the result of a reader of these columns: a table if it is small, else the path of a file in ``folder``.

    None if it is not small and there is no folder. With ``now`` (milliseconds since the epoch), the result has this
    time in the column :data:`NOW`. ``added`` is told how many rows have been written to the file.
    """
    found: list[pa.RecordBatch] = []
    rows = size = 0
    schema = arrow_schema(columns)
    if now is not None:
        schema = schema.append(pa.field(NOW, TIME))
    with closing(_batches(reader, now)) as batches:
        for batch in batches:
            rows += batch.num_rows
            size += batch.nbytes
            found.append(batch)
            if rows > most_rows or size > most_bytes:
                break
        else:
            return pa.Table.from_batches(found, schema)
        return None if folder is None else _written(chain(found, batches), schema, folder, added)


def _batches(reader: TableReader, now: int | None) -> Generator[pa.RecordBatch, None, None]:
    for partition in reader.partitions():
        with closing(reader.read(partition)) as batches:  # type: ignore[type-var]  # readers are generators
            for batch in batches:
                yield batch if now is None else _with_time(batch, now)


def _with_time(batch: pa.RecordBatch, now: int) -> pa.RecordBatch:
    times = pa.repeat(pa.scalar(now * 1000, pa.int64()), batch.num_rows).cast(TIME)
    return batch.append_column(NOW, times)


def _written(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, folder: Path, added: Callable[[int], None]
) -> Path:  # fmt: skip
    try:
        number, path = mkstemp(prefix="rows-", suffix=".parquet", dir=folder)
        with open(number, "wb") as file, ParquetWriter(file, schema) as writer:
            for group in _groups(batches, schema):
                writer.write_table(group)
                added(group.num_rows)
    except OSError as error:
        raise PipelineError(
            f"{folder}: the rows of the database cannot be written there ({error.strerror or error}); "
            "name a folder with enough space (--snapshot-dir)"
        ) from error
    return Path(path)


def _groups(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(group, schema)
            group, rows, size = [], 0, 0
    if group:
        yield pa.Table.from_batches(group, schema)
