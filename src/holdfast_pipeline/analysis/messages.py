"""The retained messages in a snapshot, tables that several queries follow, and the totals below each prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.progress import phase
from holdfast_pipeline.report.figures import PrefixTotals
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import age, retained_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession


# The kinds of payloads, as columns: Spark itself computes them, without Python.

BINARY, TEXT = "binary", "text"
#: the kinds of JSON values, by the first word of Spark's name for their type
_JSON = (
    ("OBJECT", "object"),
    ("ARRAY", "array"),
    ("BIGINT", "number"),
    ("DECIMAL", "number"),
    ("DOUBLE", "number"),
    ("FLOAT", "number"),
    ("BOOLEAN", "boolean"),
    ("STRING", "string"),
    ("VOID", "null"),
)
KINDS = (*dict.fromkeys(kind for _, kind in _JSON), TEXT, BINARY)


#: How each JSON text begins. For other texts, Spark's parser would make an exception, which takes much longer.
_BEGIN = r"\A[ \t\n\r]*(?:[\[{\"tfn]|-?(?:0(?![0-9])|[1-9]))"


def json_value(payload: Column) -> Column:
    """Return the payload as a VARIANT, NULL if it is not JSON. An object with a name twice is not."""
    text = payload.cast("string")
    return F.when(F.is_valid_utf8(text) & text.rlike(_BEGIN), F.try_parse_json(text))


def kind_of(payload: Column) -> Column:
    """Return the kind, one of :data:`KINDS`: that of a JSON value, else text (UTF-8) or binary."""
    text = F.when(F.is_valid_utf8(payload.cast("string")), F.lit(TEXT)).otherwise(F.lit(BINARY))
    return F.coalesce(json_kind(json_value(payload)), text)


def json_kind(value: Column) -> Column:
    """Return the kind of a JSON value, a VARIANT; NULL for NULL."""
    known = F.create_map(*(F.lit(text) for pair in _JSON for text in pair))
    # One reference to the value: it may be a long expression, and nested ones would multiply.
    return F.try_element_at(known, F.regexp_extract(F.schema_of_variant(value), r"\A[A-Z]*", 0))


# Tables that several queries follow: computed once, and kept by Spark.
#
# A small one comes to the driver, which gives its rows to Spark again (:func:`given`). So the queries that follow do
# not have the plan of its computation in theirs, which takes Spark longer than the rows.


class KeptTable:
    """A table that Spark keeps. ``rows`` are those of a small one, None of another one. Threads may share it."""

    def __init__(self, frame: DataFrame, rows: pa.Table | None = None) -> None:
        self.rows = rows
        self._computed = frame
        self._kept: DataFrame | None = None
        self._lock = Lock()

    @property
    def frame(self) -> DataFrame:
        """The table for queries. Spark gets and keeps it when the first of them wants it."""
        with self._lock:
            if self._kept is None:
                self._kept = self._computed.persist() if self.rows is None else given(self.session, self.rows)
            return self._kept

    @property
    def session(self) -> SparkSession:
        """The session of the table."""
        return self._computed.sparkSession

    @cached_property
    def count(self) -> int:
        """The number of rows."""
        return self.frame.count() if self.rows is None else self.rows.num_rows

    def compute(self) -> None:
        """Have Spark compute the table now, unless it is small: then it has been."""
        self.count  # noqa: B018 - the count is kept

    def forget(self) -> None:
        """Let Spark keep it no longer."""
        if self._kept is not None and self.rows is None:
            _let_go(self._kept)


def given(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Give rows of the driver to Spark. Use it for few rows that several queries follow.

    They are one partition, so that Spark exchanges nothing to group them. Plans refer to them, and do not contain them:
    many rules of the planner would visit each row. Spark forgets them when its Java collects garbage. An executor of a
    cluster that is lost takes them with it: then the queries fail.
    """
    return spark.createDataFrame(rows).coalesce(1).localCheckpoint(eager=False)


@contextmanager
def kept_table(frame: DataFrame, is_small: bool) -> Iterator[KeptTable]:
    """Give a table while the block runs, with its rows if it is small."""
    table = KeptTable(frame, frame.toArrow() if is_small else None)
    try:
        yield table
    finally:
        table.forget()


@contextmanager
def kept_frame(frame: DataFrame, is_small: bool = False) -> Iterator[DataFrame]:
    """Have Spark keep a table while the block runs, computed when the first query needs it.

    A small one is in the plans of queries as in :func:`given`.
    """
    if is_small:
        yield frame.localCheckpoint(eager=False)
        return
    kept = frame.persist()
    try:
        yield kept
    finally:
        _let_go(kept)


def _let_go(kept: DataFrame) -> None:
    with suppress(PySparkException, Py4JError, OSError):  # a Spark that has ended keeps nothing
        kept.unpersist()


#: The columns of the retained messages that shapes need.
NEEDED = ("topic", "payload", "size", "stored_at", "expires_at", "client_id")


@contextmanager
def kept_messages(
    spark: SparkSession,
    snapshot: Snapshot,
    topic_filter: str = "",
    columns: Sequence[str] = NEEDED,
    since: str | None = None,
) -> Iterator[KeptTable]:
    """Keep the retained messages in a snapshot, with the ``kind`` of each payload and the time of the snapshot.

    The ``columns`` are those that shapes need, or more. With ``since``, a token or a time, only messages set since.
    Raises :class:`PipelineError`.
    """
    with ExitStack() as stack:
        with phase("reading", snapshot.messages if since is None else None):
            names = columns if since is None else ("op", *columns)
            read = retained_table(spark, snapshot, topic_filter, names, since)
            frame = read.frame if since is None else read.frame.where(F.col("op") == "set").drop("op")
            with_kind = frame.withColumn("kind", kind_of(F.col("payload")))
            kept = stack.enter_context(kept_table(with_kind, read.is_small))
            kept.compute()
        yield kept


# Count the messages below each prefix.
#
# Each message counts once for each of its prefixes: ``a/b/c`` counts for ``a``, ``a/b`` and ``a/b/c``.
#
# There may be more prefixes than messages, and a median needs all ages of its group. So the medians of many prefixes
# are found last, in a second pass, for those prefixes only that somebody will see.

#: The columns of the retained messages that are needed.
NEEDED_BY_BRANCHES = ("topic", "size", "stored_at", "expires_at")
#: The accuracy of the median: it is off by a thousandth of the messages at most.
_ACCURACY = 1000


def branches(retained: DataFrame, depth: int, with_medians: bool = True) -> DataFrame:
    """Return the fields of :class:`PrefixTotals` for each prefix of 1 to ``depth`` levels.

    ``retained`` has the columns :data:`NEEDED_BY_BRANCHES`, and the column ``NOW``. Without medians, they are NULL.
    """
    return (
        _prefixed(retained, depth)
        .groupBy("depth", "prefix")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").alias("bytes"),
            F.max("age").alias("oldest_age"),
            (_median() if with_medians else F.lit(None).cast("long")).alias("median_age"),
            F.min("age").alias("newest_age"),
            F.count("expires_at").alias("expiring"),
            F.unix_millis(F.min("expires_at")).alias("expires_first"),
        )
    )


def totals_of(retained: DataFrame, rows: Sequence[Row]) -> tuple[PrefixTotals, ...]:
    """Return some rows of :func:`branches` as plain values, with the medians that they lack."""
    lacking = [row for row in rows if row.median_age is None]
    medians: dict[str, int] = {}
    if lacking:
        names = pa.table({"prefix": pa.array([row.prefix for row in lacking], pa.string())})
        wanted = F.broadcast(retained.sparkSession.createDataFrame(names))
        ages = _prefixed(retained, max(row.depth for row in lacking)).join(wanted, "prefix")
        medians = {row.prefix: row["median"] for row in ages.groupBy("prefix").agg(_median().alias("median")).collect()}
    return tuple(
        PrefixTotals(**{**row.asDict(), "median_age": medians.get(row.prefix, row.median_age)}) for row in rows
    )


def _median() -> Column:
    return F.percentile_approx("age", 0.5, _ACCURACY)


def _prefixed(retained: DataFrame, depth: int) -> DataFrame:
    return retained.select(
        F.posexplode(prefixes(F.col("topic"), depth)).alias("at", "prefix"), "size", "expires_at", age().alias("age")
    ).withColumn("depth", F.col("at") + 1)


def prefixes(topic: Column, depth: int) -> Column:
    """Return the array of a topic's prefixes of 1, 2, ... levels, at most ``depth``."""
    levels = F.size(F.split(topic, "/"))
    made = (F.when(levels >= count, F.substring_index(topic, "/", count)) for count in range(1, depth + 1))
    return F.array_compact(F.array(*made))
