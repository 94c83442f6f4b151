"""Find the shapes of the retained topics, and count the messages of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast_pipeline.analysis.messages import kept_messages
from holdfast_pipeline.analysis.shaped import shapes_of
from holdfast_pipeline.analysis.topic_changes import topic_changes
from holdfast_pipeline.background import entered
from holdfast_pipeline.shapes.patterns import Patterns
from holdfast_pipeline.shapes.totals import ShapesFound
from holdfast_pipeline.sources.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shapes(spark: SparkSession, snapshot: Snapshot, given: Patterns) -> ShapesFound:
    """Find the shapes of the retained topics, besides those that are ``given``. Raises :class:`PipelineError`."""
    with (
        entered(topic_changes(spark, snapshot, reads_changes=False)) as history,
        kept_messages(spark, snapshot) as messages,
        shapes_of(snapshot, messages, given, history.result) as shaped,
    ):
        return shaped.found
