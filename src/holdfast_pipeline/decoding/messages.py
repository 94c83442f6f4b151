"""The messages to decode, retained, of the history or of the telemetry; and the schema of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know
from pyspark.sql.types import StructType

from holdfast.core.messages import ChangeKind
from holdfast.core.topics import overlap
from holdfast_pipeline.decoding.plain_formats import Decoder
from holdfast_pipeline.decoding.typed_rows import parsed
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.sources.ranges import TopicPattern, pattern
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import last_of_telemetry, read_history, read_retained, read_telemetry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Longer payloads are not in a sample: all payloads of the sample come to one process at once.
_LONGEST_SAMPLED = 64 << 10
_RETAINED = ("topic", "payload", "stored_at", "revision")
_HISTORY = ("topic", "payload", "op", "changed_at", "seq")
_TELEMETRY = ("topic", "payload", "received_at", "seq")


@frozen
class Messages:
    """A source of messages by Topic Filter. ``about`` are its columns after topic and payload.

    It has the messages at ``taken_at`` (milliseconds since the epoch), up to the entry ``last_seq`` of the history or
    of the telemetry.
    """

    of_filter: Callable[[str], DataFrame]
    about: tuple[str, ...]
    taken_at: int
    last_seq: int

    @property
    def order(self) -> str:
        """The column that orders the messages by time: the last one."""
        return self.about[-1]

    def matching(self, patterns: Sequence[TopicPattern]) -> DataFrame:
        """Return the messages whose topics match a pattern, with a column for each named level.

        If several patterns match a topic, the first one names the levels. Raises :class:`PipelineError` for a name that
        another column has.
        """
        taken = ("topic", "payload", *self.about)
        for each in patterns:
            for name in each.levels:
                if name.lower() in taken:
                    raise PipelineError(
                        f"pattern {each.text!r}: {name} is the name of another column; choose another name"
                    )
        frames = [self._of_pattern(each, patterns[:place]) for place, each in enumerate(patterns)]
        return reduce(lambda all_before, frame: all_before.unionByName(frame, allowMissingColumns=True), frames)

    def _of_pattern(self, wanted: TopicPattern, before: Sequence[TopicPattern]) -> DataFrame:
        frame = self.of_filter(wanted.topic_filter)
        for other in before:
            if overlap(wanted.topic_filter, other.topic_filter):
                frame = frame.where(~F.col("topic").rlike(rf"\A(?:{pattern(other.topic_filter)})\z"))
        if not wanted.levels:  # Spark Connect refuses to add no columns
            return frame
        levels = F.split("topic", "/")
        return frame.withColumns({name: F.get(levels, F.lit(place)) for name, place in wanted.levels.items()})


def retained(spark: SparkSession, snapshot: Snapshot, partitions: int | None = None) -> Messages:
    """Return the retained messages."""

    def of_filter(topic_filter: str) -> DataFrame:
        return read_retained(spark, snapshot, topic_filter, _RETAINED, partitions)

    return Messages(of_filter, _RETAINED[2:], snapshot.taken_at, snapshot.last_seq)


def recorded(spark: SparkSession, snapshot: Snapshot, partitions: int | None = None) -> Messages:
    """Return all messages that were set since the beginning of the history."""

    def of_filter(topic_filter: str) -> DataFrame:
        bounds = (1, snapshot.last_seq)
        return _set(read_history(spark, snapshot.source, *bounds, topic_filter, _HISTORY, partitions))

    return Messages(of_filter, _HISTORY[3:], snapshot.taken_at, snapshot.last_seq)


def telemetry(spark: SparkSession, snapshot: Snapshot, partitions: int | None = None) -> Messages:
    """Return all recorded messages without RETAIN."""
    last = last_of_telemetry(snapshot.source)

    def of_filter(topic_filter: str) -> DataFrame:
        return read_telemetry(spark, snapshot.source, last, topic_filter, _TELEMETRY, partitions)

    return Messages(of_filter, _TELEMETRY[2:], snapshot.taken_at, last)


def _set(entries: DataFrame) -> DataFrame:
    return entries.where(F.col("op") == ChangeKind.SET.value).drop("op")


def schema_of(decoder: Decoder, frame: DataFrame, sample: int) -> StructType:
    """Return the schema of a decoder's rows, inferred from a sample if it has none. Raises :class:`PipelineError`."""
    if isinstance(decoder.schema, StructType):
        return decoder.schema
    if decoder.schema is not None:
        return parsed(decoder.schema)
    sampled = frame.where(F.octet_length("payload") <= _LONGEST_SAMPLED)
    # By the lowest hashes, so that the same messages give the same sample and the same schema again.
    chosen = sampled.orderBy(F.xxhash64("topic", "payload"), "topic").limit(sample).select("payload").collect()
    return inferred_by(decoder, [bytes(row.payload) for row in chosen])


def inferred_by(decoder: Decoder, sample: Sequence[bytes]) -> StructType:
    """Return the schema that a decoder infers. Raises :class:`PipelineError` if it fails."""
    try:
        return decoder.infer(sample)
    except Exception as error:  # - a decoder of another package may raise anything for an unexpected payload
        raise PipelineError(f"no schema could be inferred: {type(error).__name__}: {error}") from error
