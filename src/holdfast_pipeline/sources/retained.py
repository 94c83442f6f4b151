"""Reading ``format("retained")``: the messages of now or of a past time, or what has changed since.

Options, with defaults in parentheses: ``storage`` (the database's URL) or ``config`` (the broker's file); ``filter``, a
Topic Filter (all topics); ``columns``, names separated by commas (all columns); ``partitions`` (1); ``as_of``, a past
time (none): the messages that were retained then, from the history; ``expired_at``, a time (now): messages of the
present table that have expired by then are left out. Times are as in the commands. ``pushdown`` (true): the database
evaluates conditions; ``spark.sql.python.filterPushdown.enabled`` must be true then, and ``register`` sets it; ``copy``
and ``exported``, set by
:class:`holdfast_pipeline.Snapshot`. Several partitions read at different times, so they need one of the last two:
without a snapshot they would be inconsistent. A schema selects columns too, and overrides ``columns``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from holdfast.changes.api import (
    GENERAL,
    TOKEN_LENGTHS,
    BadToken,
    Depth,
    HistoryUnavailable,
    Moment,
    Rules,
    Token,
    check_moment,
    check_recorded,
    find_moment,
    is_good,
    read_kept,
    retained_sql,
    rules_in,
    stored_at_sql,
    time_of,
    token_of,
    turn_before,
    turns_of,
)
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.api import KeyRange
from holdfast.storage.api import TIME_SHIFT
from holdfast_pipeline.database import ReadTransaction, Source, check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.columns import (
    CHANGED,
    RETAINED,
    STORED_AT_OF_ENTRY,
    Column,
    MatchingRows,
    batches_of,
    chosen,
    packed_batches,
    struct_of,
)
from holdfast_pipeline.sources.history import EntryRange, EntryReader
from holdfast_pipeline.sources.options import OneMessage, Options
from holdfast_pipeline.sources.ranges import (
    Condition,
    TopicSelection,
    bounds,
    divided,
    pattern,
    pushed,
    selection,
    within,
)

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


# Reading ``format("retained")`` with the option ``since``: the topics that have changed after a token or a time.
#
# How it works. The broker stores which topics change, in turns (``changes/log.py``). A token names the turn up to
# which a reader knows all changes. The rows are the present messages of the topics that have changed after it, and a
# row ``clear`` for each topic that has none any more. A change may come twice, and every change comes in the end.
# Some changes are not in the table yet: their transaction has not ended, or the broker gathers them. They are above
# the next token.

# SQL is built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

_MOST = 2**31 - 1
_EVERYTHING = "read all messages once, without this option, and go on from the token of their snapshot"
#: messages that have expired and wait for the sweep have changed too
_CHANGED = (
    "SELECT topic AS changed_topic, max(at) AS changed_at FROM (SELECT topic, changed_at AS at FROM retained_changes "
    "WHERE turn > ? UNION ALL SELECT topic, expires_at FROM retained WHERE expires_at > ? AND expires_at <= ? "
    "AND tombstone = 0) AS both_kinds GROUP BY topic"
)
_IS_SET = "(topic IS NOT NULL AND tombstone = 0 AND (expires_at IS NULL OR expires_at > {now}))"
_BLOB = {"sqlite": "BLOB", "postgresql": "bytea"}


class ChangesAfter(InputPartition):
    """The changes after a turn, and the messages that have expired since a time (milliseconds)."""

    def __init__(self, turn: int, since: int) -> None:
        super().__init__((turn, since))
        self.turn = turn
        self.since = since


class ChangesReader(OneMessage, DataSourceReader):
    """Reads the changes since the token or the time of the option ``since``, in one task."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self.source = Source(options.url(), options.text("copy"), options.text("exported"))
        self._filter = options.topic_filter()
        options.partitions()  # one task reads them: they are few
        now = time.time_ns() // 1_000_000
        expired_at = options.moment("expired_at", now)
        self._now = now if expired_at is None else expired_at
        self._known = _known(options, now)

    def partitions(self) -> Sequence[InputPartition]:
        """Find the turn. Raises :class:`PipelineError` if not every change after it is stored."""
        check(self.source.url)
        with self.source.transaction() as transaction:
            turn = self._turn(transaction)
            return [ChangesAfter(turn, time_of(transaction.connection.cursor(), turn))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the changes."""
        assert isinstance(partition, ChangesAfter)
        with self.source.transaction() as transaction:
            columns = ", ".join(self._sql(column, transaction.dialect) for column in self._columns)
            checked = self._filter != EVERY_TOPIC
            statement = (
                f"SELECT {columns}{', changed_topic' if checked else ''} FROM ({_CHANGED}) AS changed "
                "LEFT JOIN retained ON retained.topic = changed_topic"
            )
            values = (partition.turn, partition.since, self._now)
            with transaction.streamed(statement, values) as cursor:
                yield from batches_of(MatchingRows(cursor, self._filter) if checked else cursor, self._columns)
            kept = read_kept(transaction.connection.cursor())
            if kept is None or kept.turn > partition.turn:
                raise PipelineError(f"format retained: since: changes were pruned while they were read; {_EVERYTHING}")

    def _turn(self, transaction: ReadTransaction) -> int:
        cursor, known = transaction.connection.cursor(), self._known
        if isinstance(known, int):
            turn = turn_before(cursor, known, _MOST)
            if turn is None:
                raise PipelineError(f"format retained: since: not all changes since then are kept; {_EVERYTHING}")
            return turn
        if not is_good(cursor, turns_of(transaction.dialect), known):
            raise PipelineError(
                "format retained: since: the changes after this token are not all here: it is of another database, is "
                "newer than this one (a restored backup), is older than what is kept, was made before a broker was "
                f"killed, or a broker does not store changes (retainer.changes.enable); {_EVERYTHING}"
            )
        return known.turn

    def _sql(self, column: Column, dialect: str) -> str:
        """Return a column's expression: of a cleared topic there is no message."""
        is_set = _IS_SET.format(now=self._now)
        match column.name:
            case "op":
                return f"CASE WHEN {is_set} THEN 'set' ELSE 'clear' END"
            case "topic":
                return "changed_topic"
            case "changed_at":
                return column.sql
            case "payload":
                return f"CASE WHEN {is_set} THEN payload ELSE CAST('' AS {_BLOB[dialect]}) END"
        return f"CASE WHEN {is_set} THEN {column.sql} END"


def _known(options: Options, now: int) -> Token | int:
    """Return the token, or the time in milliseconds since the epoch, that the option names."""
    text = options.text("since") or ""
    if len(text) in TOKEN_LENGTHS:
        try:
            return token_of(text)
        except BadToken:
            pass  # a time may be as long
    try:
        at = options.moment("since", now)
    except PipelineError as error:
        raise PipelineError(f"{error}; or give a token: of a marker, or of a snapshot") from error
    assert at is not None
    return at


# Reading ``format("retained")`` with the option ``as_of``: the messages that were retained at a past time.
#
# How it works. The history finds the time's moment: a range of entries, whose newest entry of each topic tells what
# was retained then. The rules are those of ``changes/moments.py``: topics that the history does not know then are
# left out, and a Topic Filter of such topics alone is refused. Each task checks its part in the transaction that
# reads it, so pruning cannot make topics disappear from the answer.


class PastRange(EntryRange):
    """The entries of one task, for a moment."""

    def __init__(self, after: int, upto: int, moment: Moment) -> None:
        super().__init__(after, upto, newest_upto=moment.last_seq)
        self.moment = moment


class PastReader(EntryReader, DataSourceReader):
    """Reads the messages that were retained at ``at``, in milliseconds since the epoch, from the history."""

    def __init__(self, options: Options, columns: tuple[Column, ...], at: int) -> None:
        # The history has no column stored_at: it follows from the entry.
        found = [STORED_AT_OF_ENTRY if column.name == STORED_AT_OF_ENTRY.name else column for column in columns]
        super().__init__(options, tuple(found), Condition(retained_sql("?"), (at,)))
        self._at = at

    def partitions(self) -> Sequence[InputPartition]:
        """Find the moment, and divide its entries. Raises :class:`PipelineError` if the history cannot answer."""
        check(self.source.url)
        with self.source.transaction() as transaction:
            try:
                cursor = transaction.connection.cursor()
                moment = find_moment(cursor, self._at, time.time_ns() // 1_000_000)
                check_recorded(check_moment(cursor, moment), self._at, self._filter)
            except HistoryUnavailable as error:
                raise PipelineError(f"format retained: as_of: {error}") from error
        parts = [PastRange(low, high, moment) for low, high in self._edges(moment.first_seq, moment.last_seq)]
        return parts or [PastRange(moment.last_seq, moment.last_seq, moment)]  # Spark needs at least one partition

    def _knows(self, partition: EntryRange) -> Callable[[str], bool] | None:
        """Leave out the topics that the history does not know then."""
        assert isinstance(partition, PastRange)
        return partition.moment.knows if partition.moment.hides_entries else None

    def _verify(self, transaction: ReadTransaction, partition: EntryRange) -> None:
        assert isinstance(partition, PastRange)
        try:
            check_moment(transaction.connection.cursor(), partition.moment)
        except HistoryUnavailable as error:
            raise PipelineError(f"format retained: as_of: the history was pruned while it was read: {error}") from error


# SQL is built from constants and the names of columns: values are always bound.
# ruff: noqa: S608

OPTIONS = ("filter", "columns", "partitions", "as_of", "since", "expired_at", "pushdown", "copy", "exported")


class TopicRanges(InputPartition):
    """The topics of one task."""

    def __init__(self, ranges: tuple[KeyRange, ...], conditions: tuple[Condition, ...], checked: bool) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.conditions = conditions
        self.checked = checked


class RetainedSource(OneMessage, DataSource):
    """The retained messages. The sink adds the writer."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "retained"

    def schema(self) -> StructType:
        """Return the columns of the option ``columns``."""
        options = Options(self.name(), self.options, OPTIONS)
        if options.text("since") is None:
            return struct_of(options.columns(RETAINED))
        chosen_ones = options.columns(CHANGED)
        kinds = () if CHANGED[0] in chosen_ones else CHANGED[:1]  # without "op", a cleared topic looks like a message
        return struct_of((*kinds, *chosen_ones))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of a schema: of present messages, of those of a past time, or of changes."""
        options = Options(self.name(), self.options, OPTIONS)
        at = options.moment("as_of", time.time_ns() // 1_000_000)
        if at is not None:
            if options.text("expired_at") is not None:
                raise PipelineError("format retained: as_of and expired_at exclude each other; as_of expires by itself")
            if options.text("since") is not None:
                raise PipelineError("format retained: as_of and since exclude each other: changes lead to the present")
            return PastReader(options, chosen(RETAINED, schema), at)
        if options.text("since") is not None:
            return ChangesReader(options, chosen(CHANGED, schema))
        reader = PushdownReader if options.flag("pushdown", default=True) else RetainedReader
        return reader(options, chosen(RETAINED, schema))


class RetainedReader(OneMessage, DataSourceReader):
    """Reads retained messages, in one transaction or from a snapshot."""

    def __init__(self, options: Options, columns: tuple[Column, ...]) -> None:
        self._columns = columns
        self.source = Source(options.url(), options.text("copy"), options.text("exported"))
        self._filter = options.topic_filter()
        self._parts = options.partitions()
        now = time.time_ns() // 1_000_000
        expired_at = options.moment("expired_at", now)
        self._expired_at = now if expired_at is None else expired_at
        self._conditions: tuple[Condition, ...] = ()
        if self._parts > 1 and self.source.copy is None and self.source.exported is None:
            raise PipelineError(
                "format retained: several partitions need a snapshot, which keeps them consistent: "
                "use holdfast_pipeline.snapshot_of, or read with one partition"
            )

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the topics."""
        check(self.source.url)
        with self.source.transaction() as transaction:
            topics = self._selection(transaction)
            conditions = (*topics.conditions, *self._conditions)
            parts = divided(topics.ranges, bounds(transaction, topics.ranges, self._parts))
        return [TopicRanges(part, conditions, topics.checked) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition."""
        assert isinstance(partition, TopicRanges)
        with self.source.transaction() as transaction:
            # With conditions of a query, the database searches for few rows. To pack them, it would walk through all.
            if transaction.dialect == "sqlite" and not partition.checked and not self._conditions:
                where, values = self._conditions_of(partition)
                for span in partition.ranges:
                    yield from packed_batches(transaction, "retained", self._columns, "topic", span, where, values)
                return
            where, values = self._where(partition)
            columns = ", ".join(column.sql for column in self._columns)
            if partition.checked:
                statement = f"SELECT {columns}, topic FROM retained WHERE {where}"
                with transaction.streamed(statement, values) as cursor:
                    yield from batches_of(MatchingRows(cursor, self._filter), self._columns)
            else:
                with transaction.streamed(f"SELECT {columns} FROM retained WHERE {where}", values) as cursor:
                    yield from batches_of(cursor, self._columns)

    def _selection(self, transaction: ReadTransaction) -> TopicSelection:
        levels = [row[0] for row in transaction.rows("SELECT levels FROM retained_levels")]
        return selection(self._filter, levels, transaction.dialect)

    def _where(self, partition: TopicRanges) -> tuple[str, list[Any]]:
        ranges, inside = within(partition.ranges)
        where, values = self._conditions_of(partition)
        return f"({ranges}) AND {where}", [*inside, *values]

    def _conditions_of(self, partition: TopicRanges) -> tuple[str, list[Any]]:
        terms, bound = ["tombstone = 0", "(expires_at IS NULL OR expires_at > ?)"], [self._expired_at]
        for condition in partition.conditions:
            terms.append(condition.sql)
            bound += condition.values
        return " AND ".join(terms), bound


class PushdownReader(RetainedReader):
    """Has the database evaluate conditions that Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the conditions that the database can evaluate; return the others."""
        self._conditions, rest = pushed(filters)
        return rest


# The retained messages of a moment, from the history's entries up to that moment.

#: The SQL of the time at which the message of an entry was stored.
STORED_AT = stored_at_sql(f"timestamp_millis(shiftright(revision, {TIME_SHIFT}))")


def is_known(moment: Moment) -> SparkColumn:
    """Return whether the history knows the topic of a row at a moment."""
    return has_depth(rules_in(moment.rules), lambda depth: depth not in moment.hidden)


def has_depth(rules: Rules, wanted: Callable[[Depth], bool]) -> SparkColumn:
    """Return whether the topic of a row has a wanted depth."""
    chain: Any = F
    for rule in rules.rules:
        matches = F.col("topic").rlike(rf"\A(?:{pattern(rule.topic_filter)})\z")
        chain = chain.when(matches, F.lit(wanted(rule.depth)))
    rest = F.lit(wanted(GENERAL))
    found: SparkColumn = rest if chain is F else chain.otherwise(rest)
    return found


def has_general_depth(rules: Iterable[Rules]) -> SparkColumn:
    """Return whether none of the rules keeps the topic of a row for a time of its own, or leaves it out."""
    return reduce(and_, (has_depth(each, _is_general) for each in rules if each.rules), F.lit(True))


def _is_general(depth: Depth) -> bool:
    return depth is GENERAL


def state_of(newest: DataFrame, moment: Moment) -> DataFrame:
    """Return the columns of the messages that were retained at a moment.

    ``newest`` are the last entries of each topic up to then. Topics that the history does not know then are left out.
    """
    retained = newest.where(retained_sql(f"timestamp_millis({moment.at})"))
    if moment.hides_entries:
        retained = retained.where(is_known(moment))
    return retained.withColumn("stored_at", F.expr(STORED_AT)).select(*(column.name for column in RETAINED))
