"""The columns of the formats, and Arrow batches of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
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
from holdfast_pipeline.database import Cursor, ReadTransaction
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


# Arrow batches of an SQLite table, without a Python object for each value.
#
# How it works. SQLite joins the values of a column in some thousand rows to one value: texts and bytes without anything
# between them, their lengths and the numbers as decimal digits with commas. NumPy reads the numbers, and the joined
# bytes are the data of Arrow's array. So Python sees a few values for each column and chunk of rows. All columns of a
# chunk come from one statement, which visits each row once: so their rows are in the same order.

# SQL is built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

#: The length of NULL.
_NULL = -1


class Span(Protocol):
    """Keys from ``low`` up to but not including ``high``; None: there is no end."""

    @property
    def low(self) -> Any:
        """The first key."""

    @property
    def high(self) -> Any:
        """The end."""


def packed_batches(
    transaction: ReadTransaction,
    table: str,
    columns: Sequence[Column],
    key: str,
    span: Span,
    where: str,
    values: Sequence[Any],
    rows: int = ROWS,
    max_bytes: int = BYTES,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of an SQLite table in a span of its primary key that meet a condition, as Arrow batches.

    A batch has at most ``rows`` rows, and at most ``max_bytes`` bytes in large columns or one row. Raises
    :class:`PipelineError` for a text that is not UTF-8, and for a number that is not of the column's type.
    """
    selected = ", ".join(["count(*)", *chain.from_iterable(map(_packed, columns))])
    sizes = " + ".join(f"coalesce(length({column.sql}), 0)" for column in columns if column.large)
    low, fetch = span.low, rows
    while True:
        high = _bound(transaction, table, key, low, span.high, fetch)
        inside, bound = _inside(key, low, high)
        if sizes and fetch > 1:
            ((size,),) = transaction.rows(f"SELECT sum({sizes}) FROM {table} AS entries WHERE {inside}", bound)
            if (size or 0) > max_bytes:
                fetch = max(1, min(fetch - 1, fetch * max_bytes // size))
                continue
        found = transaction.rows(
            f"SELECT {selected} FROM {table} AS entries WHERE {inside} AND {where}", (*bound, *values)
        )
        if found[0][0]:
            yield _unpacked(found[0], columns, table)
        if high == span.high:
            return
        low, fetch = high, min(rows, fetch * 4)


def _bound(transaction: ReadTransaction, table: str, key: str, low: Any, high: Any, rows: int) -> Any:
    """Return the end of the first so many rows of a span, which may be that of the span."""
    inside, values = _inside(key, low, high)
    found = transaction.rows(
        f"SELECT {key} FROM {table} WHERE {inside} ORDER BY {key} LIMIT 1 OFFSET ?", (*values, rows)
    )
    return found[0][0] if found else high


def _inside(key: str, low: Any, high: Any) -> tuple[str, tuple[Any, ...]]:
    return (f"{key} >= ?", (low,)) if high is None else (f"{key} >= ? AND {key} < ?", (low, high))


def _packed(column: Column) -> list[str]:
    """Return the SQL of a column's values in two: joined bytes and their lengths, or numbers and which are NULL."""
    if not _has_bytes(column.arrow):
        return [f"group_concat({column.sql})", f"group_concat({column.sql} IS NULL, '')" if column.nullable else "''"]
    # A text has fewer characters than bytes, and those behind U+0000 do not count.
    as_bytes = column.sql if column.arrow == pa.binary() else f"CAST({column.sql} AS BLOB)"
    return [f"CAST(group_concat({column.sql}, '') AS BLOB)", f"group_concat(coalesce(length({as_bytes}), {_NULL}))"]


def _unpacked(row: Sequence[Any], columns: Sequence[Column], table: str) -> pa.RecordBatch:
    arrays = []
    for place, column in enumerate(columns):
        first, second = row[1 + 2 * place : 3 + 2 * place]
        try:
            found = _cut(first, second, column.arrow) if _has_bytes(column.arrow) else _counted(first, second, column)
            if len(found) != row[0]:
                raise ValueError(f"{len(found)} of {row[0]} values can be read")
        except (ValueError, DeprecationWarning) as error:  # Arrow's errors are ValueErrors, too
            raise PipelineError(
                f"the column {column.name} of the table {table} has a value that no broker writes ({error}); "
                "restore a backup of the database"
            ) from error
        arrays.append(found)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _has_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _cut(data: bytes | None, lengths: str, kind: pa.DataType) -> pa.Array:
    """Cut joined bytes into values of these lengths."""
    sizes = _numbers(lengths)
    is_null = sizes == _NULL
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(np.where(is_null, 0, sizes), out=offsets[1:])
    valid = None if not is_null.any() else pa.array(~is_null).buffers()[1]
    found = pa.Array.from_buffers(kind, len(sizes), [valid, pa.py_buffer(offsets), pa.py_buffer(data or b"")])
    found.validate(full=True)
    return found


def _counted(numbers: str | None, nulls: str, column: Column) -> pa.Array:
    """Return the numbers, with NULL where ``nulls`` has a 1."""
    found, is_null = _numbers(numbers or ""), None
    if "1" in nulls:
        is_null = np.frombuffer(nulls.encode(), np.uint8) == ord("1")
        whole = np.zeros(len(nulls), np.int64)
        whole[~is_null] = found
        found = whole
    made = pa.array(found, mask=is_null)
    return made if made.type == column.arrow else made.cast(column.arrow)


def _numbers(text: str) -> Any:
    # NumPy stops at what is no number: the 0 behind the last number tells that it did not.
    return np.fromstring(f"{text},0", np.int64, sep=",")[:-1] if text else np.zeros(0, np.int64)
