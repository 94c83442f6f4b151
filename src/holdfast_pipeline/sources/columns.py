"""The columns of the formats: their SQL, their Spark type and their Arrow type. Spark requires that the types agree."""

from __future__ import annotations

from collections.abc import Sequence

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
from holdfast.storage.api import TIME_SHIFT
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
