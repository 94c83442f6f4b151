"""The Spark session of the jobs, and the registration of the sources. Which master it is, is never said here."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from threading import Thread
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from holdfast.pipeline.sources.files import FilesSource
from holdfast.pipeline.sources.history import HistorySource
from holdfast.pipeline.sources.retained import RetainedSource
from holdfast.pipeline.spark.local_only import keep_to_this_host
from holdfast.pipeline.spark.remote_files import ReachSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.pipeline.spark.console import Chatter

#: What the jobs rely on; all may be set while a session runs.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # Other readers take times of Spark's own form (INT96) for local ones.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # What is kept in memory for several questions has as many parts as it needs, not 200.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}
#: Seconds a session has to stop, and Spark's process to end, when a job is cut short.
_STOPPING, _LEAVING = 5.0, 5.0


def register(spark: SparkSession) -> None:
    """Make the formats ``retained``, ``retained_history`` and ``retained_files`` known to a session."""
    for source in (RetainedSource, HistorySource, FilesSource, ReachSource):
        spark.dataSource.register(source)


@contextmanager
def session(
    name: str, chatter: Chatter | None = None, started: Callable[[], None] = lambda: None
) -> Iterator[SparkSession]:
    """Give a session as the environment says it should be, with the sources registered; one of our own is stopped.

    ``chatter`` takes what its processes say on the console. ``started`` is called when it is there, which has begun to
    listen to SIGINT.
    """
    # Spark's workers would run whatever "python3" is found first.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is not None:
        prepare(spark)
        yield spark
        return
    if chatter is not None:
        chatter.draw("starting Spark")
    with chatter.diverted() if chatter else nullcontext():
        keep_to_this_host()
        spark = SparkSession.builder.appName(name).getOrCreate()
    try:
        started()
        prepare(spark)
        yield spark
    finally:
        # In another thread: where this one was interrupted in a call to Spark, the answer is still on its connection.
        stopping = Thread(target=_stop, args=(spark,), daemon=True)
        stopping.start()
        stopping.join(_STOPPING)


def prepare(spark: SparkSession) -> None:
    """Register the sources, and set what the jobs rely on."""
    register(spark)
    for key, value in _SETTINGS.items():
        spark.conf.set(key, value)


def leave(error: BaseException) -> None:
    """See to it that Spark's process ends before this one does, which was interrupted by ``error``."""
    from pyspark import SparkContext

    # One that is only being started is known to nothing but the frame that waits for it; left alone, it would stay.
    process = getattr(SparkContext._gateway, "proc", None) or _waited_for(error)
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(_LEAVING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _waited_for(error: BaseException) -> subprocess.Popen[bytes] | None:
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    values = (value for frame in frames for value in frame.f_locals.values())
    return next((value for value in values if isinstance(value, subprocess.Popen)), None)


def _stop(spark: SparkSession) -> None:
    # A session whose process has died cannot be stopped, and need not be.
    with suppress(PySparkException, Py4JError, OSError):
        spark.stop()
