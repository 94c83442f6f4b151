"""Import the retained messages of other brokers, and those in files of ``asof``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from attrs import asdict, frozen
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name that PySpark's users know

from holdfast.retained.api import Job, Merge, read_job, sweep
from holdfast_pipeline.choices import DATA, IMPORT_MAX_REJECTS, MANIFEST
from holdfast_pipeline.database import Source, check
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.progress import Amount, phase
from holdfast_pipeline.sink import FIELDS, RetainedFormat, Target, staging_explained
from holdfast_pipeline.sources.files import FilesSource, files_of
from holdfast_pipeline.sources.lake import COVERAGE
from holdfast_pipeline.sources.options import register_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@frozen
class Imported:
    """The figures of an import. A job that was killed and run again counts its earlier work, too.

    ``rejected`` counts rows that are not messages, and messages over a limit of the broker. ``done_before`` is True if
    an earlier run of the same name had finished; then nothing was read.
    """

    job: str
    done_before: bool
    imported: int
    unchanged: int
    kept: int
    cleared: int
    expired: int
    rejected: int


def import_messages(
    spark: SparkSession,
    source: str,
    kind: str,
    target: Target,
    merge: Merge = Merge.NEWER,
    job: str | None = None,
    rejects: str | None = None,
    max_rejects: int = IMPORT_MAX_REJECTS,
    staging: str | None = None,
) -> Imported:
    """Import all messages in a file or folder. Raises :class:`PipelineError`, also for too many rejects."""
    before = None if job is None else _job(target, job)
    if before is not None and before.is_done and before.merge is merge:
        with staging_explained():
            sweep(target.url, before.name, staging)
        return Imported(before.name, True, **before.counts)
    job = job or uuid4().hex
    options = {"merge": merge.value, "job": job, "max_rejects": str(max_rejects), **asdict(target.anywhere())}
    options["rejects"] = None if rejects is None else Folder(rejects).uri
    options["staging"] = None if staging is None else str(Path(staging).absolute())
    given = {name: value for name, value in options.items() if value is not None}
    frame = read_messages(spark, source, kind)
    register_once(spark, RetainedFormat)

    def merged() -> Amount | None:
        found = _job(target, job)
        return None if found is None else (sum(found.counts.values()), None)

    with phase("reading and merging", unit="messages", look=merged):
        frame.write.format(RetainedFormat.name()).mode("append").options(**given).save()
    done = _job(target, job)
    if done is None:
        raise PipelineError(f"the job {job!r} is not in the database it was written to")
    return Imported(job, False, **done.counts)


def _job(target: Target, name: str) -> Job | None:
    check(target.url)
    with Source(target.url).transaction() as transaction:
        return read_job(transaction.connection.cursor(), name)


def read_messages(spark: SparkSession, source: str, kind: str) -> DataFrame:
    """Return the messages in a file or folder, in the columns of the sink. Raises :class:`PipelineError`."""
    if kind == "parquet":
        return _parquet(spark, source)
    register_once(spark, FilesSource)
    reader = spark.read.format(FilesSource.name()).option("format", kind)
    return reader.option("files", json.dumps(files_of(source))).load()


def _parquet(spark: SparkSession, source: str) -> DataFrame:
    """Read a result of ``asof``, or other Parquet files with some of its columns."""
    if "://" not in source:
        folder = Path(source).absolute()
        if not folder.exists():
            raise PipelineError(f"{source}: there is no such file or folder")
        if (folder / COVERAGE).is_file():
            raise PipelineError(f"{source}: is a lake; first write the state of one time with asof --lake")
        source = str(folder / DATA if (folder / MANIFEST).is_file() else folder)
    try:
        frame = spark.read.parquet(source)
    except AnalysisException as error:  # no files, or names of folders that are not partitions
        raise PipelineError(f"{source}: holds no table of Parquet files") from error
    names = [name for name in frame.columns if name in FIELDS]
    for name in ("topic", "payload"):
        if name not in names:
            raise PipelineError(f"{source}: has no column {name}; the columns are: {', '.join(frame.columns)}")
    return frame.select(*names, F.col("_metadata.file_path").alias("source"))
