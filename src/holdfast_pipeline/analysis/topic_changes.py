"""Count the changes of each topic in the history: once for shapes, findings and the figures of changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.changes.api import Period, retained_sql
from holdfast.core.messages import ChangeKind, ChangeOrigin
from holdfast_pipeline.analysis.kept_table import KeptTable, kept_frame, kept_table
from holdfast_pipeline.sources.columns import NOW
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import history_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A baseline describes messages that were retained before: its entries are no changes.
_IS_CHANGE = f"origin != '{ChangeOrigin.BASELINE.value}'"
_NEEDED = ("seq", "op", "topic", "client_id", "origin", "changed_at", "expires_at", "size")


@frozen
class TopicChanges:
    """The history of a snapshot: its entries without those of baselines, its periods, and a table with a row for each
    topic.

    A topic has the number of its ``changes`` and their ``bytes``, the times of its ``first`` and ``last`` entry and of
    its ``first_change`` and ``last_change`` (milliseconds since the epoch), the ``times`` that its message was stored,
    the position of its first entry (``first_seq``), whether it is ``retained`` when the snapshot is taken, whether a
    Will was published (``has_will``), and two of its publishers, ``one`` and ``other``, which may be the same. A topic
    with a baseline alone has no changes.
    """

    changes: DataFrame
    topics: KeptTable
    periods: tuple[Period, ...]


@contextmanager
def topic_changes(
    spark: SparkSession, snapshot: Snapshot, topic_filter: str = "", reads_changes: bool = True
) -> Iterator[TopicChanges | None]:
    """Give the history of the topics that match a Topic Filter; None if there is none.

    Spark keeps the entries if the caller ``reads_changes``, and not only the table of topics.

    Raises :class:`PipelineError`.
    """
    if snapshot.before >= snapshot.last_seq:
        yield None
        return
    read = history_table(spark, snapshot, topic_filter, _NEEDED)
    with (
        kept_frame(read.frame, read.is_small) if reads_changes else nullcontext(read.frame) as entries,
        kept_table(_by_topic(entries), read.is_small) as topics,
    ):
        yield TopicChanges(entries.where(_IS_CHANGE), topics, snapshot.periods)


def _by_topic(entries: DataFrame) -> DataFrame:
    is_change = F.expr(_IS_CHANGE)
    published = is_change & (F.col("op") != ChangeKind.EXPIRE.value)
    # An override moves the expiry of a stored message. The message is not stored again.
    stored = (F.col("op") == ChangeKind.SET.value) & (F.col("origin") != ChangeOrigin.OVERRIDE.value)
    changed_at = F.when(is_change, F.col("changed_at"))
    return entries.groupBy("topic").agg(
        F.count_if(is_change).alias("changes"),
        F.sum(F.when(is_change, F.col("size"))).alias("bytes"),
        F.unix_millis(F.min("changed_at")).alias("first"),
        F.unix_millis(F.max("changed_at")).alias("last"),
        F.unix_millis(F.min(changed_at)).alias("first_change"),
        F.unix_millis(F.max(changed_at)).alias("last_change"),
        F.count_if(stored).alias("times"),
        F.min("seq").alias("first_seq"),
        F.max_by(F.expr(retained_sql(NOW)), "seq").alias("retained"),
        F.bool_or(F.col("origin") == ChangeOrigin.WILL.value).alias("has_will"),
        F.min(F.when(published, F.col("client_id"))).alias("one"),
        F.max(F.when(published, F.col("client_id"))).alias("other"),
    )
