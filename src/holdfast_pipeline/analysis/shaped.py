"""Count the messages of each shape. Spark looks up the shape of every topic in those that were learned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.kept_table import KeptTable
from holdfast_pipeline.analysis.payload_kinds import json_value
from holdfast_pipeline.analysis.shape_changes import ShapeChanges, shape_changes
from holdfast_pipeline.analysis.shape_learning import learn
from holdfast_pipeline.analysis.shape_numbers import ShapeNumbers, shape_numbers
from holdfast_pipeline.analysis.topic_changes import TopicChanges
from holdfast_pipeline.analysis.topic_shapes import with_shape
from holdfast_pipeline.background import entered
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.report.shape_details import ExampleMessage, KindTotals
from holdfast_pipeline.shapes.patterns import Patterns
from holdfast_pipeline.shapes.shapes import NO_SHAPE, Shapes
from holdfast_pipeline.shapes.totals import ShapesFound, ShapeTotals
from holdfast_pipeline.sources.driver_reads import MOST_ROWS
from holdfast_pipeline.sources.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

#: Bytes of a payload that are shown of an example.
_SHOWN = 160
#: The names of variables are counted one by one in so many messages, and about in more, with this error.
_MOST_COUNTED, _ERROR = 300_000, 0.01
#: A level of a pattern that stands for others without a name.
_WILDCARDS = frozenset("+#")


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
        with phase("counting the names of variables"):
            names = _names(shaped, shapes, rows)
        totals = tuple(sorted(_merged(rows, shapes, rates, names), key=lambda each: (-each.messages, each.shape)))
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


def _names(shaped: DataFrame, found: Shapes, rows: Iterable[dict[str, Any]]) -> dict[int, tuple[tuple[int, ...], bool]]:
    """Return the number of names of each variable of each shape, and whether the numbers are approximate.

    A shape with one variable has as many names as messages, since each topic has one message.
    """
    messages = Counter[int]()
    for row in rows:
        messages[row["shape"]] += row["messages"]
    known: dict[int, tuple[tuple[int, ...], bool]] = {}
    places: dict[int, list[int]] = {}
    for shape in found.shapes:
        variables = [place for place, level in enumerate(shape.levels) if level.is_variable]
        if len(variables) < 2 and _WILDCARDS.isdisjoint(level.name for level in shape.levels):
            known[shape.number] = (messages[shape.number],) * len(variables), False
        elif variables and shape.number in messages:
            places[shape.number] = variables
    if not places:
        return known
    is_exact = sum(messages[number] for number in places) <= _MOST_COUNTED
    of_shape = F.create_map(
        *(F.lit(one) for number, each in places.items() for one in (number, each))
    )  # fmt: skip
    levels = F.split("topic", "/")
    names = F.transform(F.element_at(of_shape, F.col("shape")), lambda place: F.get(levels, place))
    named = shaped.where(F.col("shape").isin(list(places))).select("shape", F.posexplode(names).alias("place", "name"))
    count = F.count_distinct("name") if is_exact else F.approx_count_distinct("name", _ERROR)
    counted = {
        (row.shape, row.place): row.names for row in named.groupBy("shape", "place").agg(count.alias("names")).collect()
    }
    for number, each in places.items():
        numbers = (min(counted[number, place], messages[number]) for place in range(len(each)))
        known[number] = tuple(numbers), not is_exact
    return known


def _merged(
    rows: Iterable[dict[str, Any]],
    found: Shapes,
    rates: dict[int, float] | None,
    names: Mapping[int, tuple[tuple[int, ...], bool]],
) -> Iterator[ShapeTotals]:
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
            names.get(number, ((), False))[0],
            messages,
            sum(row["bytes"] for row in kinds),
            main["kind"],
            messages - main["messages"],
            None if main["schema"] in (None, "VOID") else main["schema"],
            max(row["newest"] for row in kinds),
            min(row["oldest"] for row in kinds),
            sum(row["expiring"] for row in kinds),
            min(max(row["publishers"] for row in kinds), messages),
            None if rates is None else rates.get(number),
            min(row["example"] for row in kinds),
            names.get(number, ((), False))[1],
        )
