"""Storage that this host and the executors share: checked before a job starts on other hosts.

Otherwise a task would find no file, or write to a folder that no other process reads. What the options alone tell is
refused before Spark starts: a cluster may let a session wait for minutes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast_pipeline.database.connection import Source
from holdfast_pipeline.database.location import url_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.sources.coverage import COVERAGE
from holdfast_pipeline.sources.file_check import HEAD, FileCheckSource, head_of
from holdfast_pipeline.sources.lake import Lake
from holdfast_pipeline.sources.registration import register_once, runs_here
from holdfast_pipeline.sources.snapshot import Snapshot, snapshot_of
from holdfast_pipeline.sources.tables import parallelism
from holdfast_pipeline.spark.server import is_used

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARED = "it must be on storage that this host and the executors share, under the same path"
_LOCAL = "or run on this host (MASTER='local[*]')"


def uses_other_hosts(master: str, environment: Mapping[str, str]) -> bool:
    """Tell whether a master may run tasks on other hosts; local masters, and servers started here, do not."""
    is_here = "SPARK_LOCAL_REMOTE" in environment or is_used(environment)
    remote = "local" if is_here else environment.get("SPARK_REMOTE", "local")
    return not (remote.startswith("local") and runs_here(master))


def has_remote_tasks(spark: SparkSession) -> bool:
    """Tell whether tasks of a session may run on other hosts."""
    return uses_other_hosts(str(spark.conf.get("spark.master", "")), os.environ)


def require_file(spark: SparkSession, file: str) -> None:
    """Raise :class:`PipelineError` unless the tasks of a session can read a file of this host."""
    if not has_remote_tasks(spark):
        return
    register_once(spark, FileCheckSource)
    reader = spark.read.format(FileCheckSource.name()).option("file", file).option("content", head_of(file).hex())
    checked = reader.option("tasks", str(parallelism(spark))).load()
    for row in checked.where("problem IS NOT NULL").limit(1).collect():
        raise PipelineError(f"{file}: the executor on {row.host} cannot read it ({row.problem}); {_SHARED}")


def require_folder(spark: SparkSession, folder: str) -> None:
    """Raise :class:`PipelineError` unless the tasks of a session see a folder of this host.

    A new file with random content is the proof: a task that reads it sees this folder, not its own of the same name.
    """
    if "://" in folder or not has_remote_tasks(spark):
        return
    token = Path(folder) / f".holdfast-{secrets.token_hex(8)}"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        token.write_bytes(secrets.token_bytes(HEAD))
        require_file(spark, str(token))
    except OSError as error:
        raise PipelineError(f"{folder}: cannot be used ({error.strerror})") from error
    finally:
        token.unlink(missing_ok=True)


def shared_folder(spark: SparkSession, path: str) -> Folder:
    """Return a folder for output that the tasks see too. Raises :class:`PipelineError`."""
    folder = Folder(path)
    require_folder(spark, folder.uri)
    return folder


@contextmanager
def shared_snapshot(
    spark: SparkSession, storage: str | None, config: str | None, folder: str | None, lake: str | None = None
) -> Iterator[Snapshot]:
    """Take a snapshot that the tasks can read, of a ``lake`` or as ``snapshot_of`` takes it.

    What is read from an SQLite database is in files, so ``folder`` is required if tasks run on other hosts.
    """
    if lake is not None:
        require_lake(spark, lake)
        with snapshot_of(lake=lake) as taken:
            yield taken
        return
    if folder is None:
        if has_remote_tasks(spark):
            refuse_snapshot(storage, config, folder, lake)
    elif Source(url_of(storage, config)).is_sqlite:
        require_folder(spark, folder)
    with snapshot_of(storage, config, folder) as taken:
        yield taken


def require_lake(spark: SparkSession, path: str) -> None:
    """Raise :class:`PipelineError` unless the tasks of a session can read a lake."""
    if "://" not in path:
        require_file(spark, str(Path(path).absolute() / COVERAGE))


def refuse_snapshot(storage: str | None, config: str | None, folder: str | None, lake: str | None) -> None:
    """Raise :class:`PipelineError` if tasks on other hosts cannot read a snapshot.

    What is read from an SQLite database is in files, so it needs a ``folder`` that they share.
    """
    if lake is None and folder is None and Source(url := url_of(storage, config)).is_sqlite:
        raise PipelineError(
            f"{url}: the executors may be on other hosts, which cannot read this host's temporary "
            f"folder; name a folder that all of them share (--snapshot-dir), {_LOCAL}"
        )


def refuse_history(source: Source | Lake) -> None:
    """Raise :class:`PipelineError` if tasks on other hosts would have to open the file of an SQLite database."""
    if isinstance(source, Source) and source.is_sqlite:
        raise PipelineError(
            f"{source.url}: its history is read from the file itself, and the executors may be on other hosts; "
            f"read the tables of sync (--lake), {_LOCAL}"
        )


def refuse_staging(url: str, staging: str | None) -> None:
    """Raise :class:`PipelineError` if tasks on other hosts cannot stage rows where the broker finds them."""
    if staging is None and Source(url).is_sqlite:
        raise PipelineError(
            f"{url}: the executors may be on other hosts, which cannot stage rows beside the database; "
            f"name a folder that all of them and the broker share (--staging), {_LOCAL}"
        )
