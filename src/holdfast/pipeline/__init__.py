"""Retained messages and their history in Apache Spark: sources, a sink, and the jobs of ``holdfast-pipeline``.

    from holdfast.pipeline import read_retained, register
    register(spark)
    spark.read.format("retained").option("storage", "sqlite:////var/lib/holdfast/holdfast.db").load()

The package must be installed where the executors run: Spark takes its classes by their names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.pipeline.database.connection import Source
    from holdfast.pipeline.database.snapshot import Snapshot, snapshot_of
    from holdfast.pipeline.sources.tables import read_history, read_retained
    from holdfast.pipeline.spark import register

__all__ = ["Snapshot", "Source", "read_history", "read_retained", "register", "snapshot_of"]

_MODULES = {
    "Snapshot": "database.snapshot",
    "Source": "database.connection",
    "read_history": "sources.tables",
    "read_retained": "sources.tables",
    "register": "spark",
    "snapshot_of": "database.snapshot",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: without Spark there is still a command that says what is missing."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
