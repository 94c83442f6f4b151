"""From rows to Arrow batches, bounded in rows and in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from holdfast.pipeline.sources.columns import Column, arrow_schema
from holdfast.topics import matches

#: Rows of a batch at most, and the bytes of large columns at which it ends.
ROWS = 10_000
BYTES = 8 << 20
#: Rows fetched at once in the beginning: as many as may be large without harm.
_FIRST = 64


class Cursor(Protocol):
    """A cursor of a driver with an answer under way."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return the next rows."""


def batches_of(
    cursor: Cursor, columns: Sequence[Column], rows: int = ROWS, max_bytes: int = BYTES
) -> Iterator[pa.RecordBatch]:
    """Read all of an answer as Arrow batches.

    As many rows are fetched at once as would make ``max_bytes`` if they were like those before.
    """
    schema = arrow_schema(columns)
    large = [place for place, column in enumerate(columns) if column.large]
    gathered: list[Any] = []
    size, fetch = 0, min(rows, _FIRST)
    while found := cursor.fetchmany(min(fetch, rows - len(gathered))):
        got = sum(len(row[place] or b"") for place in large for row in found)
        gathered += found
        size += got
        mean = max(1, got // len(found))
        fetch = max(1, min(rows, fetch * 4, (max_bytes - size) // mean if size < max_bytes else 1))
        if size >= max_bytes or len(gathered) == rows:
            yield _batch(gathered, schema)
            gathered, size = [], 0
            fetch = max(1, min(rows, max_bytes // mean))
    if gathered:
        yield _batch(gathered, schema)


class Matching:
    """A cursor over the rows whose last column, which is left out, matches a Topic Filter."""

    def __init__(self, cursor: Cursor, topic_filter: str) -> None:
        self._cursor = cursor
        self._filter = topic_filter

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return the next rows that match, at most so many; none when there are no more."""
        while found := self._cursor.fetchmany(size):
            chosen = [row[:-1] for row in found if matches(self._filter, row[-1])]
            if chosen:
                return chosen
        return []


def _batch(rows: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
