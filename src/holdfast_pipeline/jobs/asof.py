"""Write the retained messages of the present or of a past time to files, with a manifest of the written rows.

The newest entry of each topic up to a past time tells its retained message then: see ``sources/states.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import asdict, evolve, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import HistoryUnavailable, Moment, check_moment, check_recorded, find_moment
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.api import header
from holdfast_pipeline.choices import DATA, MANIFEST
from holdfast_pipeline.database import Source, check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder, begin_overwriting
from holdfast_pipeline.output.table_files import LINE, LINES, checksum, table_maker, write_files, write_lines
from holdfast_pipeline.progress import phase
from holdfast_pipeline.sources.columns import RETAINED, struct_of
from holdfast_pipeline.sources.lake import CHANGES, PARTITION, Lake, recorded
from holdfast_pipeline.sources.retained import state_of
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import read_history, read_retained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = [column.name for column in RETAINED]


@frozen
class Manifest:
    """The written messages: the state at ``taken_at`` (milliseconds since the epoch), entry ``last_seq``.

    The state of a past time lacks the topics of the Topic Filters ``left_out``: the history does not know them then.
    """

    form: str
    rows: int
    taken_at: int
    last_seq: int
    topic_filter: str
    checksum: str
    left_out: Sequence[str] = ()


@frozen
class Destination:
    """Where to write, in which of ``STATE_FORMS``, and whether in place of a complete result."""

    out: Folder
    form: str = "parquet"
    overwrite: bool = False


def write_present(
    spark: SparkSession, snapshot: Snapshot, to: Destination, topic_filter: str = "", partitions: int | None = None
) -> Manifest:
    """Write the retained messages in a snapshot. Raises :class:`PipelineError`."""
    total = None if topic_filter else snapshot.messages
    with phase("reading", total):
        frame = read_retained(spark, snapshot, topic_filter, None, partitions)
    left_out: tuple[str, ...] = ()
    if isinstance(snapshot.source, Lake):  # it has the topics of which changes are recorded
        period, at = snapshot.source.coverage.present, snapshot.taken_at
        moment = recorded(Moment(at, period.first_seq, snapshot.last_seq, rules=period.rules), period, topic_filter)
        left_out = moment.left_out(topic_filter)
    return _write(spark, frame, to, snapshot.taken_at, snapshot.last_seq, topic_filter, left_out=left_out, total=total)


def write_past(
    spark: SparkSession, source: Source | Lake, at: int, to: Destination, topic_filter: str = "",
    partitions: int | None = None,
) -> Manifest:  # fmt: skip
    """Write the messages that were retained at ``at`` (milliseconds since the epoch).

    Raises :class:`PipelineError`, also for a time outside the history; the text names the possible times.
    """
    if isinstance(source, Lake):
        moment = _moment_in_lake(spark, source, at, topic_filter)
        verify = _nothing
    else:
        moment = moment_at(source, at, topic_filter)
        verify = partial(_verify, source, moment)
    frame = state_at(spark, source, moment, topic_filter, partitions)
    left_out = moment.left_out(topic_filter)
    return _write(spark, frame, to, at, moment.last_seq, topic_filter, verify, left_out)


def moment_at(source: Source, at: int, topic_filter: str = EVERY_TOPIC) -> Moment:
    """Find the moment of a time (milliseconds since the epoch) in the history of a database.

    Raises :class:`PipelineError`, also if the history knows no topic of the Topic Filter then.
    """
    check(source.url)
    with source.transaction() as transaction:
        cursor = transaction.connection.cursor()
        try:
            moment = find_moment(cursor, at, time.time_ns() // 1_000_000)
            check_recorded(check_moment(cursor, moment), at, topic_filter)
            return moment
        except HistoryUnavailable as error:
            raise PipelineError(str(error)) from error


def _moment_in_lake(spark: SparkSession, lake: Lake, at: int, topic_filter: str) -> Moment:
    moment = lake.coverage.moment(at, topic_filter)
    moments = F.timestamp_millis(F.lit(at))
    earlier = F.col("seq").between(moment.first_seq + 1, moment.last_seq) & (F.col("changed_at") <= moments)
    # By the day, Spark skips whole files without opening them.
    earlier &= F.col(PARTITION) <= F.to_date(moments)
    (last,) = lake.read(spark, CHANGES, ("seq",), "", earlier).agg(F.max("seq")).collect()[0]
    return evolve(moment, last_seq=last or moment.first_seq)


def state_at(
    spark: SparkSession, source: Source | Lake, moment: Moment, topic_filter: str = "", partitions: int | None = None
) -> DataFrame:
    """Return the columns of the messages that were retained at a moment."""
    first, last = moment.first_seq + 1, moment.last_seq
    return state_of(read_history(spark, source, first, last, topic_filter, None, partitions, newest=True), moment)


def _verify(source: Source, moment: Moment) -> None:
    """Raise :class:`PipelineError` if the history was pruned while it was read."""
    with source.transaction() as transaction:
        try:
            check_moment(transaction.connection.cursor(), moment)
        except HistoryUnavailable as error:
            raise PipelineError(f"the history was pruned while it was read: {error}") from error


def _nothing() -> None:
    """Verify nothing: the rows of a lake stay."""


def _write(
    spark: SparkSession,
    frame: DataFrame,
    to: Destination,
    taken_at: int,
    last_seq: int,
    topic_filter: str,
    verify: Callable[[], None] = _nothing,
    left_out: Sequence[str] = (),
    total: int | None = None,
) -> Manifest:
    """Write messages to the folder ``data``; return the manifest.

    The manifest is written last. Without it a result is incomplete, and the next run starts again. Its figures are
    read back from the files, and ``verify`` is called before it is written. ``total`` is the number of messages, if it
    is known.
    """
    out, form = to.out, to.form
    make_table = table_maker(form)  # before the work
    begin_overwriting(out, to.overwrite)
    with phase("writing", total):
        if form in LINES:
            write_lines(frame, out, DATA, form)
        else:
            write_files(frame, out, DATA)
        make_table(out, DATA)
    verify()
    with phase("reading the files again", total):
        rows, found = _described(spark, out, form)
    manifest = Manifest(form, rows, taken_at, last_seq, topic_filter, found, list(left_out))
    out.write_json(MANIFEST, asdict(manifest))
    return manifest


def _described(spark: SparkSession, out: Folder, form: str) -> tuple[int, str]:
    """Return the number of the written messages, and the checksum of all columns or of all lines."""
    if form in LINES:
        frame, columns = spark.read.text(out.below(DATA)), [LINE]
        if form == "csv":
            frame = frame.where(F.col(LINE) != header().decode().rstrip())
    else:
        frame, columns = spark.read.schema(struct_of(RETAINED)).parquet(out.below(DATA)), _COLUMNS
    row = frame.agg(F.count("*"), checksum(columns)).collect()[0]
    return row[0], row[1]
