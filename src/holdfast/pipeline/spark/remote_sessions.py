"""Sessions whose tasks run on other hosts: what they would have to open there is shared, or refused here.

Otherwise a task would find no file, or write to a folder that nobody looks into.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.pipeline.database.connection import Source
from holdfast.pipeline.database.snapshot import Snapshot, snapshot_of
from holdfast.pipeline.errors import PipelineError
from holdfast.pipeline.output.folder import Folder
from holdfast.pipeline.sources.options import url_of
from holdfast.pipeline.sources.tables import parallelism
from holdfast.pipeline.spark.local_only import is_alone
from holdfast.pipeline.spark.remote_files import HEAD, head_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARED = "it has to be on storage that this host and the executors share, under the same path"
_LOCAL = "or run on this host (MASTER='local[*]')"


def is_distant(master: str, environment: Mapping[str, str]) -> bool:
    """Tell whether tasks of a session may run on other hosts: any but those of the masters that are this host."""
    remote = environment.get("SPARK_REMOTE", "local") if "SPARK_LOCAL_REMOTE" not in environment else "local"
    return not (remote.startswith("local") and (is_alone(master) or master.startswith("local-cluster[")))


def distant(spark: SparkSession) -> bool:
    """Tell whether tasks of a session may run on other hosts."""
    return is_distant(str(spark.conf.get("spark.master", "")), os.environ)


def require_file(spark: SparkSession, file: str) -> None:
    """Raise :class:`PipelineError` unless the tasks of a session can read a file of this host."""
    if not distant(spark):
        return
    reader = spark.read.format("retained_reach").option("file", file).option("content", head_of(file).hex())
    told = reader.option("tasks", str(parallelism(spark))).load().where("problem IS NOT NULL").limit(1).collect()
    if told:
        raise PipelineError(f"{file}: cannot be read by the executor on {told[0].host} ({told[0].problem}); {_SHARED}")


def require_folder(spark: SparkSession, folder: str) -> None:
    """Raise :class:`PipelineError` unless the tasks of a session see a folder of this host."""
    if "://" in folder or not distant(spark):
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


def folder_within_reach(spark: SparkSession, place: str) -> Folder:
    """Return a folder to write to, which the tasks see too. Raises :class:`PipelineError`."""
    folder = Folder(place)
    require_folder(spark, folder.uri)
    return folder


@contextmanager
def snapshot_within_reach(
    spark: SparkSession, storage: str | None, config: str | None, folder: str | None
) -> Iterator[Snapshot]:
    """Take a snapshot that the tasks can read; the arguments are those of ``snapshot_of``.

    That of an SQLite database is a file: its ``folder`` has to be named where tasks run elsewhere.
    """
    url = url_of(storage, config)
    if folder is None and Source(url).is_sqlite and distant(spark):
        raise PipelineError(
            f"{url}: the executors may be on other hosts, which cannot read a copy in this one's temporary "
            f"folder; name a folder that all of them share (--snapshot-dir), {_LOCAL}"
        )
    with snapshot_of(storage, config, folder) as taken:
        if taken.source.copy is not None:
            require_file(spark, taken.source.copy)
        yield taken


def require_history(spark: SparkSession, source: Source) -> None:
    """Raise :class:`PipelineError` where the tasks cannot read the history: an SQLite file is opened on its host."""
    if source.is_sqlite and distant(spark):
        raise PipelineError(
            f"{source.url}: its history is read from the file itself, and the executors may be on other hosts; "
            "run on this host (MASTER='local[*]')"
        )


def require_staging(spark: SparkSession, url: str, staging: str | None) -> None:
    """Raise :class:`PipelineError` where the tasks cannot stage rows where the broker finds them."""
    if not Source(url).is_sqlite or not distant(spark):
        return
    if staging is None:
        raise PipelineError(
            f"{url}: the executors may be on other hosts, which cannot stage rows beside the database; "
            f"name a folder that all of them and the broker share (--staging), {_LOCAL}"
        )
    require_folder(spark, staging)
