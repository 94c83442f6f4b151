"""Find the shapes of the retained topics, and count the messages of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import asdict

from holdfast_pipeline.analysis.messages import kept_messages
from holdfast_pipeline.analysis.shaped import shapes_of
from holdfast_pipeline.analysis.topic_changes import topic_changes
from holdfast_pipeline.background import entered
from holdfast_pipeline.database.snapshot import Snapshot
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.overwriting import begin_overwriting
from holdfast_pipeline.output.table_files import write_table
from holdfast_pipeline.shapes.patterns import Patterns
from holdfast_pipeline.shapes.totals import ShapesFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLE = (
    "shape string, topic_filter string, names array<int>, messages long, bytes long, kind string, unlike long, "
    "schema string, newest long, oldest long, expiring long, publishers long, changes_a_day double, example string"
)


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
