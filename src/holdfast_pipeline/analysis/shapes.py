"""The shapes of topics in Spark: learned on the driver, looked up for each topic, and counted."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import IntegerType, StringType

from holdfast.changes.api import GENERAL, Depth
from holdfast_pipeline.analysis.history import TopicChanges
from holdfast_pipeline.analysis.messages import KeptTable, given, json_value, kept_frame, kept_table, kind_of
from holdfast_pipeline.progress import entered, phase
from holdfast_pipeline.report.figures import WHOLE, ExampleMessage, KindTotals
from holdfast_pipeline.shapes import (
    ASCII_NUMBERS,
    NO_SHAPE,
    NUMBER,
    Learner,
    Patterns,
    Shapes,
    ShapesFound,
    ShapeTotals,
)
from holdfast_pipeline.sources.retained import has_general_depth
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import MOST_ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


# Learn shapes on the driver: from all topics, or from whole branches of the tree if there are too many.

#: The most topics that shapes are learned from.
MOST_LEARNED = 300_000
#: The most shapes that are found.
MOST_SHAPES = 1000
#: Branches of the tree that are chosen among, for each branch that is taken.
_BRANCHES = 500
_DEEPEST_BRANCH = 8


def learn_shapes(messages: DataFrame, patterns: Sequence[str] = ()) -> Shapes:
    """Learn the shapes of messages from their columns ``topic`` and ``payload``.

    ``patterns`` are shapes that are given: each topic has the first one that matches it, if any. Raises
    :class:`PipelineError` for a text that is no pattern.
    """
    given = Patterns(patterns)
    with kept_table(messages.select("topic", kind_of(F.col("payload")).alias("kind")), is_small=False) as kept:
        return learn(kept, given)[1]


def shape_of(shapes: Shapes, topic: Column) -> Column:
    """Return the text of each topic's shape, such as ``hq/{floor}/light/{lamp}``; NULL for a topic without one."""
    return F.udf(shapes.text_of, StringType(), useArrow=False)(topic)


def learn(kept: KeptTable, patterns: Patterns, most: int = MOST_LEARNED) -> tuple[pa.Table, Shapes]:
    """Learn shapes from a table with the columns ``topic`` and ``kind``.

    Return the rows learned from, too.
    """
    rows = kept.rows if kept.rows is not None and kept.count <= most else _part(kept, most).toArrow()
    learner, learned = Learner(), rows.select(["topic", "kind"])
    with _without_collections():
        for batch in learned.to_batches():
            for topic, kind in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if not patterns.learn(topic):
                    learner.add(topic, kind)
        return learned, Shapes(learner.learn(MOST_SHAPES), patterns)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Have Python look for no garbage in cycles: it would visit the whole tree each time that it has grown."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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


# Look up the shape of each topic of a table.
#
# How it works. The driver looks up the shapes of few topics itself, as the start of a Python worker takes seconds. Of
# many topics, it looks up the *forms*: Spark replaces the numbers in a topic, so that ``site/17/dev/4711/temp``
# becomes ``site/#/dev/#/temp``. A shape asks for the names that it has, and else for the families of names, which are
# the same in a topic and its form. Only names with numbers that a shape has stay as they are. A million topics may
# have one form. If there are too many forms, too, Python workers look up each topic.

_SHAPE, _FORM = "shape", "form"
#: The most names with numbers that are compared with each level.
_MOST_NAMES = 1000
#: What every hexadecimal number has that is more than digits: without it, its digits become the same.
_BESIDE_LETTER = "[0-9][a-fA-FxX]|[a-fA-F][0-9]"
_IS_ASCII = r"\A[\x00-\x7F]*\z"


@contextmanager
def with_shape(table: KeptTable, shapes: Shapes, topics: pa.ChunkedArray | None = None) -> Iterator[DataFrame]:
    """Add the column ``shape`` to a table with the column ``topic``: the number of its shape, or ``NO_SHAPE``.

    If the table is not small, give it the ``topics`` if they are known.
    """
    if table.rows is not None:
        numbers = _numbers(shapes, table.rows.column("topic"))
        yield given(table.session, table.rows.append_column(_SHAPE, numbers))
        return
    frame = table.frame
    if topics is None:
        topics = frame.select("topic").limit(MOST_ROWS + 1).toArrow().column("topic")
    if len(topics) <= MOST_ROWS:
        yield _joined(frame, shapes, "topic", topics.unique())
        return
    found = by_form(frame, shapes)
    if found is None:
        found = frame.withColumn(_SHAPE, F.udf(shapes.number_of, IntegerType(), useArrow=False)("topic"))
    with kept_frame(found) as many:
        yield many


def by_form(frame: DataFrame, shapes: Shapes) -> DataFrame | None:
    """Add the column ``shape`` by looking up the forms of the topics; None if there are too many forms."""
    names = shapes.names_with_numbers
    if len(names) > _MOST_NAMES or any("/" in name for name in names):  # the last of 32 levels has the rest of a topic
        return None
    with_form = frame.withColumn(_FORM, _form(F.col("topic"), sorted(names)))
    forms = with_form.select(_FORM).distinct().limit(MOST_ROWS + 1).toArrow().column(_FORM)
    return None if len(forms) > MOST_ROWS else _joined(with_form, shapes, _FORM, forms).drop(_FORM)


def _form(topic: Column, names: list[str]) -> Column:
    """Return the topics with ``#`` for numbers, except in ``names``. Python and Java differ in letters beyond ASCII."""
    if not names:
        form = _without_numbers(topic)
    else:
        levels = F.transform(
            F.split(topic, "/"), lambda level: F.when(level.isin(names), level).otherwise(_without_numbers(level))
        )
        form = F.array_join(levels, "/")
    return F.when(topic.rlike(_IS_ASCII), form).otherwise(topic)


def _without_numbers(text: Column) -> Column:
    """Replace UUIDs, hexadecimal numbers and digits, in this order.

    Most topics need no search for the first two: a UUID has a hyphen, and a hexadecimal number that is more than digits
    has a digit beside a letter.
    """
    uuid, hexadecimal, digits = ASCII_NUMBERS
    text = F.when(text.contains("-"), F.regexp_replace(text, uuid, NUMBER)).otherwise(text)
    text = F.when(text.rlike(_BESIDE_LETTER), F.regexp_replace(text, hexadecimal, NUMBER)).otherwise(text)
    return F.regexp_replace(text, digits, NUMBER)


def _joined(frame: DataFrame, shapes: Shapes, column: str, texts: pa.ChunkedArray) -> DataFrame:
    """Add the shapes of these texts to the rows that have them in a column."""
    found = frame.sparkSession.createDataFrame(pa.table({column: texts, _SHAPE: _numbers(shapes, texts)}))
    # All rows find theirs. With an inner join, Spark would look for NULL first, and compute the column twice for that.
    return frame.join(F.broadcast(found), column, "left")


def _numbers(shapes: Shapes, topics: pa.ChunkedArray) -> pa.Array:
    return pa.array([shapes.number_of(name) for name in topics.to_pylist()], pa.int32())


# Find the numbers in the payloads of each shape's messages.
#
# The numbers are payloads that are JSON numbers, and the numbers in the first level of JSON objects. Spark finds them
# without a schema: ``variant_explode_outer`` makes a row of each field.

#: Fields of all shapes together (of more, those with the fewest numbers are left out), and characters of a name.
_MOST_FIELDS = 10_000
_LONGEST = 200
#: Higher values have no place in a distribution: 1e400 is infinite as a double, and means become infinite.
_HIGHEST = 1e300
_TYPES = ("BIGINT", "DOUBLE", "FLOAT")
_SHARES = [0.01, 0.25, 0.5, 0.75, 0.99]


@frozen
class ShapeNumbers:
    """The numbers in payloads: ``shape``, ``topic``, ``at``, ``field`` and ``value``.

    ``fields`` has a row for each field of a shape, those with the most numbers first: ``shape``, ``field``, the
    ``count`` of its numbers, the ``least``, the ``most``, and those that 1, 25, 50, 75 and 99 of 100 do not exceed
    (``low``, ``lower``, ``median``, ``upper``, ``high``).
    """

    values: DataFrame
    fields: Sequence[Row]


@contextmanager
def shape_numbers(shaped: DataFrame) -> Iterator[ShapeNumbers]:
    """Give the numbers in messages with the number of their ``shape``."""
    messages = shaped.where(F.col("shape") != NO_SHAPE)
    found = numbers_in(messages.select("shape", "topic", F.col("stored_at").alias("at"), "payload"))
    names = ("low", "lower", "median", "upper", "high")
    with kept_frame(found) as values:
        counted = values.groupBy("shape", "field").agg(
            F.count("*").alias("count"),
            F.min("value").alias("least"),
            F.max("value").alias("most"),
            F.percentile_approx("value", _SHARES).alias("shares"),
        )
        listed = counted.orderBy(F.desc("count"), "shape", "field").limit(_MOST_FIELDS)
        shares = (F.col("shares")[at].alias(name) for at, name in enumerate(names))
        yield ShapeNumbers(values, listed.select("shape", "field", "count", "least", "most", *shares).collect())


def numbers_in(messages: DataFrame) -> DataFrame:
    """Return the numbers in the payloads: ``shape``, ``topic``, ``at``, ``field`` and ``value``.

    Numbers beyond :data:`_HIGHEST` are left out, and fields with long names, as the driver keeps the names.
    """
    parsed = messages.withColumn("json", json_value(F.col("payload"))).drop("payload")
    # An array is not exploded: its elements have no names either.
    named = F.when(~F.schema_of_variant("json").startswith("ARRAY"), F.col("json"))
    fields = messages.sparkSession.tvf.variant_explode_outer(named.outer())
    parts = parsed.lateralJoin(fields).where(F.col("key").isNull() | (F.length("key") <= _LONGEST))
    # A payload that is a number has one row, without a key: its own.
    field = F.coalesce(F.concat(F.lit("."), "key"), F.lit(WHOLE))
    part = F.coalesce(F.col("value"), F.col("json"))
    value = F.when(_is_number(part), F.try_variant_get(part, "$", "double"))
    numbers = parts.select("shape", "topic", "at", field.alias("field"), value.alias("value"))
    return numbers.where(F.abs("value") < _HIGHEST)


def _is_number(part: Column) -> Column:
    kind = F.schema_of_variant(part)
    return kind.isin(*_TYPES) | kind.startswith("DECIMAL")


# Count the changes of each shape's topics in the history.

_DAY = 86_400_000
#: A shorter history tells nothing about a day.
_LEAST = _DAY // 4


@frozen
class ShapeChanges:
    """The changes of each shape: ``topics`` are those of a history, with the number of their ``shape``.

    ``totals`` has a row for each of these numbers, and one for all topics, with the key None; it is empty without
    topics. A row has the ``topics`` that changed, the ``usual`` number of changes of nine in ten of them, that of 99 in
    100 (``high``), the ``most`` changes of a topic, the time of the first change (``since``), the topics with Wills
    (``wills``) and with ``several`` publishers; and of the topics without a rule of their own, the ``changes`` and the
    time of the ``first`` entry.
    """

    history: TopicChanges
    topics: DataFrame
    totals: Mapping[int | None, Row]

    def a_day(self, taken_at: int, shapes: Shapes) -> dict[int, float]:
        """Return the changes of each shape in a day of the history, which ends at ``taken_at``.

        A history of less than six hours tells none. Shapes whose topics may have rules of their own in the history are
        left out: they were recorded for another time.
        """
        begun = [period.complete_since for period in self.history.periods]
        firsts = [row.first for row in self.totals.values()]
        since = min((at for at in (*firsts, *begun) if at is not None), default=taken_at)
        if taken_at - since < _LEAST:
            return {}
        days = (taken_at - since) / _DAY
        rules = {period.parsed for period in self.history.periods}
        return {
            number: (self.totals[number].changes or 0) / days if number in self.totals else 0.0
            for number, shape in enumerate(shapes.shapes)
            if not any(each.left_out(shape.topic_filter, _has_own_rule).filters for each in rules)
        }


@contextmanager
def shape_changes(history: TopicChanges, shapes: Shapes) -> Iterator[ShapeChanges]:
    """Give the changes of each shape in a history."""
    is_general = has_general_depth({period.parsed for period in history.periods})
    changes = F.when(F.col("changes") > 0, F.col("changes"))
    with with_shape(history.topics, shapes) as topics:
        counted = topics.withColumn("general", is_general).rollup("shape").agg(
            F.count(changes).alias("topics"),
            F.percentile_approx(changes, 0.9).alias("usual"),
            F.percentile_approx(changes, 0.99).alias("high"),
            F.max("changes").alias("most"),
            F.min("first_change").alias("since"),
            F.count_if("has_will").alias("wills"),
            F.count_if(F.col("one") != F.col("other")).alias("several"),
            F.sum(F.when(F.col("general"), F.col("changes"))).alias("changes"),
            F.min(F.when(F.col("general"), F.col("first"))).alias("first"),
        )  # fmt: skip
        yield ShapeChanges(history, topics, {row.shape: row for row in counted.collect()})


def _has_own_rule(depth: Depth) -> bool:
    return depth is not GENERAL


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
