"""Retained messages and their history in Apache Spark: sources, a sink, and the jobs of ``holdfast-pipeline``.

    from holdfast.pipeline import read_retained, register
    register(spark)
    spark.read.format("retained").option("storage", "sqlite:////var/lib/holdfast/holdfast.db").load()

The package must be installed where the executors run: Spark takes its classes by their names.
"""

from holdfast.pipeline.session import register
from holdfast.pipeline.snapshot import Snapshot, snapshot_of
from holdfast.pipeline.store import Source
from holdfast.pipeline.tables import read_history, read_retained

__all__ = ["Snapshot", "Source", "read_history", "read_retained", "register", "snapshot_of"]
