"""The retained messages in a snapshot, kept by Spark with the kind of each payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.analysis.kept_table import KeptTable, kept_table
from holdfast_pipeline.analysis.payload_kinds import kind_of
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.sources.snapshot import Snapshot
from holdfast_pipeline.sources.tables import retained_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
