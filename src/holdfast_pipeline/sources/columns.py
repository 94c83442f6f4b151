"""The columns of the formats, and Arrow batches of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.changes.api import stored_at_sql
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.storage.api import TIME_SHIFT
from holdfast_pipeline.database import Cursor
from holdfast_pipeline.errors import PipelineError

#: A time, for Spark and Arrow.
TIME = pa.timestamp("us", "UTC")
#: A column with the same time in all rows: that of the snapshot.
NOW = "now"


@frozen
class Column:
    """A column. ``sql`` is its expression in SELECT. ``large`` columns count for the size of a batch."""

    name: str
    sql: str
    spark: DataType
    arrow: pa.DataType
    nullable: bool = True
    large: bool = False


def _text(name: str, nullable: bool = True) -> Column:
    return Column(name, name, StringType(), pa.string(), nullable)


def _integer(name: str) -> Column:
    return Column(name, name, LongType(), pa.int64(), False)


def _time(name: str, nullable: bool) -> Column:
    return Column(name, f"{name} * 1000", TimestampType(), TIME, nullable)


_QOS = Column("qos", "qos", IntegerType(), pa.int32(), False)
_PAYLOAD = Column("payload", "payload", BinaryType(), pa.binary(), False, large=True)
_PROPERTIES = Column("properties_json", "properties_json", StringType(), pa.string(), large=True)

#: Retained messages, as in the view ``retained_messages``.
RETAINED: tuple[Column, ...] = (
    _text("topic", False), _PAYLOAD, _QOS, _text("client_id"), _text("username"), _time("stored_at", False),
    _time("expires_at", True), _integer("size"), _integer("revision"), _PROPERTIES,
)  # fmt: skip

#: Messages that have changed since a token: ``op`` is "set", or "clear" where there is none any more.
CHANGED: tuple[Column, ...] = (_text("op", False), *RETAINED, _time("changed_at", False))

#: The history, as in the view ``retained_history_events``, without ``operator``.
HISTORY: tuple[Column, ...] = (
    _integer("seq"), _text("op", False), _text("topic", False), _PAYLOAD, _QOS, _text("client_id"),
    _text("username"), _text("origin", False), _time("changed_at", False), _time("expires_at", True),
    _integer("size"), _integer("revision"), _PROPERTIES,
)  # fmt: skip

#: The telemetry, as in the view ``telemetry_messages``.
TELEMETRY: tuple[Column, ...] = (
    _integer("seq"), _text("topic", False), _PAYLOAD, _QOS, _text("client_id"), _text("username"),
    _time("received_at", False), _time("expires_at", True), _integer("size"), _PROPERTIES,
)  # fmt: skip

#: ``stored_at`` of the message that an entry of the history sets: the history has no such column.
STORED_AT_OF_ENTRY = Column(
    "stored_at", f"({stored_at_sql(f'(revision >> {TIME_SHIFT})')}) * 1000", TimestampType(), TIME, False
)


def struct_of(columns: Sequence[Column]) -> StructType:
    """Return the columns as Spark's schema."""
    # All columns are nullable for Spark: it refuses an Arrow batch with a nullable column where its schema has none.
    return StructType([StructField(column.name, column.spark, True) for column in columns])


def named(columns: Sequence[Column], names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns with these names, in this order. Raises :class:`PipelineError` for an unknown name."""
    known = {column.name: column for column in columns}
    for position, name in enumerate(names):
        if name not in known:
            raise PipelineError(f"there is no column {name!r}; the columns are: {', '.join(known)}")
        if name in names[:position]:
            raise PipelineError(f"the column {name} is named twice")
    return tuple(known[name] for name in names)


def chosen(columns: Sequence[Column], schema: StructType) -> tuple[Column, ...]:
    """Return the columns in a user's schema, in its order.

    Raises :class:`PipelineError` for an unknown column, or one with another type.
    """
    known = {column.name: column for column in columns}
    found = []
    for wanted in schema.fields:
        column = known.get(wanted.name)
        if column is None:
            raise PipelineError(f"there is no column {wanted.name!r}; the columns are: {', '.join(known)}")
        if wanted.dataType != column.spark:
            raise PipelineError(
                f"the column {wanted.name} has the type {column.spark.simpleString()}, "
                f"not {wanted.dataType.simpleString()}; read it with its own type, and cast it"
            )
        found.append(column)
    return tuple(found)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the columns as Arrow's schema."""
    return pa.schema([pa.field(column.name, column.arrow) for column in columns])


# Arrow batches of rows, limited in rows and in bytes.

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
