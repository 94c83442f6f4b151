"""Export the retained messages to Parquet, with a manifest of the written rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import asdict, frozen
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast_pipeline.database.snapshot import Snapshot
from holdfast_pipeline.output.checksum import checksum
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.output.names import DATA, MANIFEST
from holdfast_pipeline.output.overwriting import begin_overwriting
from holdfast_pipeline.output.table_files import write_files
from holdfast_pipeline.progress.phases import phase
from holdfast_pipeline.sources.columns import RETAINED, struct_of
from holdfast_pipeline.sources.tables import read_retained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMES = [column.name for column in RETAINED]


@frozen
class Manifest:
    """The content of an export: the state at ``taken_at`` (milliseconds since the epoch), entry ``last_seq``.

    The state of a past time lacks the topics of the Topic Filters ``left_out``: the history does not know them then.
    """

    rows: int
    payload_bytes: int
    taken_at: int
    last_seq: int
    topic_filter: str
    checksum: str
    left_out: Sequence[str] = ()


def export(
    spark: SparkSession,
    snapshot: Snapshot,
    out: Folder,
    topic_filter: str = "",
    partitions: int | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write a snapshot to ``out``. Raises :class:`PipelineError`."""
    total = None if topic_filter else snapshot.messages
    with phase("reading", total):
        frame = read_retained(spark, snapshot, topic_filter, None, partitions)
    return write(spark, frame, out, snapshot.taken_at, snapshot.last_seq, topic_filter, overwrite, total=total)


def write(
    spark: SparkSession,
    frame: DataFrame,
    out: Folder,
    taken_at: int,
    last_seq: int,
    topic_filter: str,
    overwrite: bool,
    verify: Callable[[], None] = lambda: None,
    left_out: Sequence[str] = (),
    total: int | None = None,
) -> Manifest:
    """Write the messages retained at ``taken_at`` as Parquet in the folder ``data``; return the manifest.

    The manifest is written last. Without it an export is incomplete, and the next export starts again. Its figures are
    read back from the files, and ``verify`` is called before it is written. ``total`` is the number
    of messages, if it is known. Raises :class:`PipelineError`, also for a
    complete export without ``overwrite``.
    """
    begin_overwriting(out, overwrite, "export")
    with phase("writing", total):
        write_files(frame, out, DATA)
    verify()
    with phase("reading the files again", total):
        found = describe(spark, out)
    manifest = Manifest(found.rows, found.payload_bytes, taken_at, last_seq, topic_filter, found.sum, list(left_out))
    out.write_json(MANIFEST, asdict(manifest))
    return manifest


@frozen
class Description:
    """The figures of an export's files."""

    rows: int
    payload_bytes: int
    sum: str


def describe(spark: SparkSession, out: Folder) -> Description:
    """Read the files of an export, and return their figures."""
    frame = spark.read.schema(struct_of(RETAINED)).parquet(out.below(DATA))
    row = frame.agg(F.count("*"), F.coalesce(F.sum("size"), F.lit(0)), checksum(_NAMES)).collect()[0]
    return Description(row[0], row[1], row[2])
