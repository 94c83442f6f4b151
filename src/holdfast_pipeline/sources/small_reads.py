"""Small results, read by the driver itself.

To read with a format, Spark plans in one Python process and reads in others. Their start takes seconds, whatever the
size. So the driver reads a result that is small as a format's reader would, and hands it over as one Arrow table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol

import pyarrow as pa

from holdfast_pipeline.sources.columns import Column, arrow_schema

#: A result with more rows or more bytes is not small. So many are read before that is known.
MOST_ROWS = 50_000
MOST_BYTES = 16 << 20


class TableReader(Protocol):
    """A reader of a format, for a table."""

    def partitions(self) -> Sequence[Any]:
        """Divide the result."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read a part."""


def read_small(
    reader: TableReader, columns: Sequence[Column], most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES
) -> pa.Table | None:
    """Return the whole result of a reader of these columns, None if it is not small."""
    found: list[pa.RecordBatch] = []
    rows = size = 0
    for partition in reader.partitions():
        with closing(reader.read(partition)) as batches:  # type: ignore[type-var]  # readers are generators
            for batch in batches:
                rows += batch.num_rows
                size += batch.nbytes
                if rows > most_rows or size > most_bytes:
                    return None
                found.append(batch)
    return pa.Table.from_batches(found, arrow_schema(columns))
