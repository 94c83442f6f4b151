"""Find the shapes of the retained topics, and count the messages of each.

Shapes are learned on the driver from all topics, or from whole branches of the tree if there are too many. Then Spark
looks up the shape of every topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import asdict, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.pipeline.background import entered
from holdfast.pipeline.database.snapshot import Snapshot
from holdfast.pipeline.jobs.kept_table import KeptTable, kept_table
from holdfast.pipeline.jobs.payload_kinds import json_value, kind_of
from holdfast.pipeline.jobs.shape_changes import ShapeChanges, shape_changes
from holdfast.pipeline.jobs.shape_numbers import ShapeNumbers, shape_numbers
from holdfast.pipeline.jobs.topic_changes import TopicChanges, topic_changes
from holdfast.pipeline.jobs.topic_shapes import with_shape
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.output.overwriting import begin_overwriting
from holdfast.pipeline.output.table_files import write_table
from holdfast.pipeline.progress.phases import phase
from holdfast.pipeline.report.shape_details import ExampleMessage, KindTotals
from holdfast.pipeline.shapes.learning import Learner
from holdfast.pipeline.shapes.patterns import Patterns
from holdfast.pipeline.shapes.shapes import NO_SHAPE, Shapes
from holdfast.pipeline.shapes.totals import ShapesFound, ShapeTotals
from holdfast.pipeline.sources.small_reads import MOST_ROWS
from holdfast.pipeline.sources.tables import retained_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: The most topics that shapes are learned from.
MOST_LEARNED = 300_000
#: The most shapes that are found.
MOST_SHAPES = 1000
#: Branches of the tree that are chosen among, for each branch that is taken.
_BRANCHES = 500
_DEEPEST_BRANCH = 8
#: Bytes of a payload that are shown of an example.
_SHOWN = 160
#: The columns of the retained messages that shapes need.
NEEDED = ("topic", "payload", "size", "stored_at", "expires_at", "client_id")


def shapes(
    spark: SparkSession,
    snapshot: Snapshot,
    topic_filter: str = "",
    patterns: Sequence[str] = (),
    out: Folder | None = None,
    form: str = "parquet",
    overwrite: bool = False,
) -> ShapesFound:
    """Find the shapes of the retained topics that match a Topic Filter. ``patterns`` are shapes that are given.

    With ``out``, write all shapes there. Raises :class:`PipelineError`.
    """
    given = Patterns(patterns)
    if out is not None:
        begin_overwriting(out, overwrite)
    with (
        entered(topic_changes(spark, snapshot, topic_filter, reads_changes=False)) as history,
        kept_messages(spark, snapshot, topic_filter) as messages,
        shapes_of(snapshot, messages, given, history.result) as shaped,
    ):
        result = shaped.found
    if out is not None:
        about = {name: getattr(result, name) for name in ("taken_at", "messages", "bytes", "unshaped", "learned")}
        write_table(spark.createDataFrame([asdict(each) for each in result.shapes], _TABLE), out, form, about)
    return result


_TABLE = (
    "shape string, topic_filter string, names array<int>, messages long, bytes long, kind string, unlike long, "
    "schema string, newest long, oldest long, expiring long, publishers long, changes_a_day double, example string"
)


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


@frozen
class Shaped:
    """Messages with the number of their ``shape``, these ``shapes``, and all that was ``found`` of them.

    A tenth of the messages of a shape, or more, were stored before the time in ``tenth_before``. ``oldest`` is the time
    of the oldest of all messages, None if there is none. Times are in milliseconds since the epoch. ``changes`` are
    those of the same topics, None without a history. ``kinds`` are the payloads of a shape, with examples.
    ``numbers`` are those in payloads, if they were wanted.
    """

    found: ShapesFound
    shapes: Shapes
    messages: DataFrame
    tenth_before: Mapping[int, int]
    oldest: int | None
    changes: ShapeChanges | None
    kinds: Mapping[int, tuple[KindTotals, ...]]
    numbers: ShapeNumbers | None


@contextmanager
def shapes_of(
    snapshot: Snapshot,
    kept: KeptTable,
    patterns: Patterns,
    history: Callable[[], TopicChanges | None],
    finds_numbers: bool = False,
) -> Iterator[Shaped]:
    """Give the shapes of the messages in a table of :func:`kept_messages`.

    ``history`` returns the changes of the same topics. Queries that need nothing but the shapes run beside each other.
    """
    with phase("learning shapes", kept.count):
        learned, shapes = learn(kept, patterns)
        topics = learned.column("topic") if kept.count <= MOST_ROWS else None
    with ExitStack() as stack:
        counted = stack.enter_context(entered(_changes_of(history, shapes)))
        shaped = stack.enter_context(with_shape(kept, shapes, topics))
        explored = stack.enter_context(entered(shape_numbers(shaped))) if finds_numbers else None
        with phase("counting the messages of shapes"):
            rows = _totals(shaped)
        with phase("counting the changes of shapes"):
            changes = counted.result()
        rates = None if changes is None else changes.a_day(snapshot.taken_at, shapes)
        totals = tuple(sorted(_merged(rows, shapes, rates), key=lambda each: (-each.messages, each.shape)))
        found = ShapesFound(
            snapshot.taken_at,
            sum(row["messages"] for row in rows),
            sum(row["bytes"] for row in rows),
            sum(row["messages"] for row in rows if row["shape"] == NO_SHAPE),
            learned.num_rows,
            totals,
        )
        # A tenth of each kind is older than the time of this kind: so a tenth of all is older than the latest of them.
        tenth_before = {row["shape"]: row["tenth_before"] for row in sorted(rows, key=lambda row: row["tenth_before"])}
        oldest = min((row["oldest"] for row in rows), default=None)
        with phase("finding numbers in payloads"):
            numbers = None if explored is None else explored.result()
        yield Shaped(found, shapes, shaped, tenth_before, oldest, changes, _kinds(rows), numbers)


@contextmanager
def _changes_of(history: Callable[[], TopicChanges | None], shapes: Shapes) -> Iterator[ShapeChanges | None]:
    found = history()
    with nullcontext() if found is None else shape_changes(found, shapes) as changes:
        yield changes


def learn(kept: KeptTable, patterns: Patterns, most: int = MOST_LEARNED) -> tuple[pa.Table, Shapes]:
    """Learn shapes from a table with the columns ``topic`` and ``kind``.

    Return the rows learned from, too.
    """
    rows = kept.rows if kept.rows is not None and kept.count <= most else _part(kept, most).toArrow()
    learner, learned = Learner(), rows.select(["topic", "kind"])
    for batch in learned.to_batches():
        for topic, kind in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if not patterns.learn(topic):
                learner.add(topic, kind)
    return learned, Shapes(learner.learn(MOST_SHAPES), patterns)


def _part(table: KeptTable, most: int) -> DataFrame:
    """Return whole branches of the tree with about as many topics: a level has to have its siblings beside it."""
    depths = range(1, _DEEPEST_BRANCH + 1)
    branches = {depth: F.substring_index("topic", "/", depth) for depth in depths}
    kept, share = table.frame, -(-table.count // most)
    if share <= 1:
        return kept.select("topic", "kind")
    (counts,) = kept.agg(*(F.approx_count_distinct(branches[depth]) for depth in depths)).collect()
    depth = next((at for at, count in zip(depths, counts, strict=True) if count >= _BRANCHES * share), depths[-1])
    return kept.where(F.pmod(F.xxhash64(branches[depth]), F.lit(share)) == 0).select("topic", "kind").limit(2 * most)


def _totals(shaped: DataFrame) -> list[dict[str, Any]]:
    """Return the figures of each shape and kind of payload."""
    shown = F.struct(
        "topic", F.substring("payload", 1, _SHOWN).alias("payload"), F.unix_millis("stored_at").alias("at")
    )
    order = F.struct("stored_at", "topic")
    rows = shaped.groupBy("shape", "kind").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.schema_of_variant_agg(json_value(F.col("payload"))).alias("schema"),
        F.unix_millis(F.max("stored_at")).alias("newest"),
        F.unix_millis(F.min("stored_at")).alias("oldest"),
        (-F.percentile_approx(-F.unix_millis("stored_at"), 0.9)).alias("tenth_before"),
        F.count("expires_at").alias("expiring"),
        F.approx_count_distinct("client_id").alias("publishers"),
        F.min("topic").alias("example"),
        F.max_by(shown, order).alias("newest_one"),
        F.min_by(shown, order).alias("oldest_one"),
    )
    return [row.asDict() for row in rows.collect()]


def _kinds(rows: Iterable[dict[str, Any]]) -> dict[int, tuple[KindTotals, ...]]:
    found: dict[int, tuple[KindTotals, ...]] = {}
    for row in sorted(rows, key=lambda row: (row["shape"], -row["messages"], row["kind"])):
        newest, oldest = (_example(row[name]) for name in ("newest_one", "oldest_one"))
        totals = KindTotals(row["kind"], row["messages"], row["bytes"], newest, oldest)
        found[row["shape"]] = (*found.get(row["shape"], ()), totals)
    return found


def _example(row: Row) -> ExampleMessage:
    return ExampleMessage(row.topic, bytes(row.payload).decode("utf-8", "backslashreplace"), row["at"])


def _merged(rows: Iterable[dict[str, Any]], found: Shapes, rates: dict[int, float] | None) -> Iterator[ShapeTotals]:
    """Merge the kinds of payloads of each shape."""
    by_shape: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if row["shape"] != NO_SHAPE:
            by_shape.setdefault(row["shape"], []).append(row)
    for number, kinds in by_shape.items():
        main = max(kinds, key=lambda row: (row["messages"], row["kind"]))
        shape = found.shapes[number]
        messages = sum(row["messages"] for row in kinds)
        yield ShapeTotals(
            shape.text,
            shape.topic_filter,
            tuple(level.names for level in shape.levels if level.is_variable),
            messages,
            sum(row["bytes"] for row in kinds),
            main["kind"],
            messages - main["messages"],
            None if main["schema"] in (None, "VOID") else main["schema"],
            max(row["newest"] for row in kinds),
            min(row["oldest"] for row in kinds),
            sum(row["expiring"] for row in kinds),
            max(row["publishers"] for row in kinds),
            None if rates is None else rates.get(number),
            min(row["example"] for row in kinds),
        )
