"""Arrow batches of rows, limited in rows and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast_pipeline.database.connection import Cursor
from holdfast_pipeline.sources.columns import Column, arrow_schema

#: A batch ends at this many rows, or at this many bytes in large columns.
ROWS = 10_000
BYTES = 8 << 20
#: The first fetch: even if every payload has the largest size, so few rows do no harm.
_FIRST = 64


def batches_of(
    cursor: Cursor, columns: Sequence[Column], rows: int = ROWS, max_bytes: int = BYTES
) -> Iterator[pa.RecordBatch]:
    """Read a whole result as Arrow batches.

    The number of rows in the next fetch follows from the mean size of the rows in the last one: together they should
    stay below ``max_bytes``.
    """
    schema = arrow_schema(columns)
    large = [position for position, column in enumerate(columns) if column.large]
    gathered: list[Any] = []
    size, fetch = 0, min(rows, _FIRST)
    while found := cursor.fetchmany(min(fetch, rows - len(gathered))):
        got = sum(len(row[position] or b"") for position in large for row in found)
        gathered += found
        size += got
        mean = max(1, got // len(found))
        # Grow fourfold at most: the rows so far may be smaller than all others.
        fetch = max(1, min(rows, fetch * 4, (max_bytes - size) // mean if size < max_bytes else 1))
        if size >= max_bytes or len(gathered) == rows:
            yield _batch(gathered, schema)
            gathered, size = [], 0
            fetch = max(1, min(rows, max_bytes // mean))
    if gathered:
        yield _batch(gathered, schema)


class MatchingRows:
    """A cursor over the rows whose topic matches a Topic Filter, or EVERY_TOPIC, and that ``knows`` says yes to.

    The topic is the last column, and is cut off.
    """

    def __init__(self, cursor: Cursor, topic_filter: str, knows: Callable[[str], bool] = lambda _: True) -> None:
        self._cursor = cursor
        self._filter = topic_filter
        self._knows = knows

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return at most ``size`` rows that match; an empty list at the end."""
        while found := self._cursor.fetchmany(size):
            chosen = [row[:-1] for row in found if self._wants(row[-1])]
            if chosen:
                return chosen
        return []

    def _wants(self, topic: str) -> bool:
        return (self._filter == EVERY_TOPIC or matches(self._filter, topic)) and self._knows(topic)


def _batch(rows: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
