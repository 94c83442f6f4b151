"""A session: its settings, its formats, its tasks, and what they share with the driver."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.utils import is_remote

from holdfast_pipeline.database import Source, url_of
from holdfast_pipeline.errors import PipelineError
from holdfast_pipeline.output.folder import Folder
from holdfast_pipeline.progress import Tasks
from holdfast_pipeline.sink import RetainedFormat
from holdfast_pipeline.sources.files import HEAD, FileCheckSource, FilesSource, head_of
from holdfast_pipeline.sources.history import HistorySource, TelemetrySource
from holdfast_pipeline.sources.lake import COVERAGE, Lake
from holdfast_pipeline.sources.options import register_once, runs_here
from holdfast_pipeline.sources.snapshot import Snapshot, snapshot_of
from holdfast_pipeline.sources.tables import parallelism
from holdfast_pipeline.spark.server import is_used

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Without it, Spark refuses to read a format that lets the database evaluate conditions.
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
#: The jobs rely on these settings. A running session accepts all of them.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    _PUSHDOWN: "true",
    # Other readers interpret Spark's older form of times (INT96) as local times.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A cached result then has as many partitions as its size needs, instead of 200.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # To find the best form of a kept column takes longer than its queries, and most columns are texts that differ.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Otherwise Spark keeps a table by a copy of the session, which it never closes: a server would keep the rows that
    # commands have sent.
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
}

#: A small input is in one task. Then nothing is exchanged among tasks, and the few exchanges left need no second plan.
#: Its groups fit into memory: beyond 128 of them, Spark would sort the rows for some functions. Compiled code computes
#: the columns of the driver's rows, rather than the optimiser of queries.
_SMALL_SETTINGS = {
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "300000",
}
_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_LOCAL_ROWS = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"


def register(spark: SparkSession) -> None:
    """Make the formats ``retained``, ``retained_history`` and ``retained_files`` known to a session.

    It also lets formats evaluate conditions in the database (``spark.sql.python.filterPushdown.enabled``), and has the
    workers use the Python of this process, if no setting names another one (:mod:`..sources.registration`).
    """
    spark.conf.set(_PUSHDOWN, "true")
    for source in (RetainedFormat, HistorySource, TelemetrySource, FilesSource, FileCheckSource):
        register_once(spark, source)


def prepare(spark: SparkSession, is_small: bool = False) -> None:
    """Set the settings of the jobs, for a small input if it ``is_small``. They register the formats that they use."""
    settings = dict(_SETTINGS)
    if is_small:
        excluded = spark.conf.get(_EXCLUDED_RULES, None)
        settings |= {**_SMALL_SETTINGS, _EXCLUDED_RULES: f"{excluded},{_LOCAL_ROWS}" if excluded else _LOCAL_ROWS}
    for key, value in settings.items():
        spark.conf.set(key, value)


def is_local(master: str) -> bool:
    """Tell whether a master runs its tasks in its own process."""
    return master == "local" or master.startswith("local[")


# The tasks that a session runs at the moment.


def tasks_of(session: SparkSession) -> Callable[[], Tasks | None]:
    """Return a function that asks a session for its tasks; None if it runs none. It may be called in any thread."""
    if is_remote():
        watched = _Watched()
        session.registerProgressHandler(watched)  # type: ignore[arg-type]  # a function will do
        return lambda: watched.tasks
    context: Any = session.sparkContext

    def ask() -> Tasks | None:
        stages = context._jsc.sc().statusStore().activeStages()
        found = [stages.apply(place) for place in range(stages.size())]
        if not found:
            return None
        return Tasks(
            sum(each.numCompleteTasks() for each in found),
            sum(each.numTasks() for each in found),
            sum(each.inputRecords() for each in found),
        )

    return ask


class _Watched:
    """Takes what a Spark Connect server tells while a query runs. It does not tell of rows."""

    def __init__(self) -> None:
        self.tasks: Tasks | None = None

    def __call__(self, stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        running = [] if done else [each for each in stages or () if not each.done]
        self.tasks = (
            Tasks(sum(each.num_completed_tasks for each in running), sum(each.num_tasks for each in running), 0)
            if running
            else None
        )


# Storage that this host and the executors share: checked before a job starts on other hosts.
#
# Otherwise a task would find no file, or write to a folder that no other process reads. What the options alone tell
# is refused before Spark starts: a cluster may let a session wait for minutes.

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
