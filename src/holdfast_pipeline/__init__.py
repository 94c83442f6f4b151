"""Retained messages and their history in Apache Spark: formats, and the jobs of ``holdfast-pipeline``.

    from holdfast_pipeline import read_retained, register
    register(spark)
    spark.read.format("retained").option("storage", "sqlite:////var/lib/holdfast/holdfast.db").load()

The executors need this package too: Spark sends them the names of classes, not their code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast_pipeline.analysis.shapes import learn_shapes, shape_of
    from holdfast_pipeline.database import Source
    from holdfast_pipeline.sink import write_stream
    from holdfast_pipeline.sources.lake import read_delta
    from holdfast_pipeline.sources.snapshot import Snapshot, snapshot_of
    from holdfast_pipeline.sources.tables import read_history, read_retained
    from holdfast_pipeline.spark import register

__all__ = [
    "Snapshot",
    "Source",
    "learn_shapes",
    "read_delta",
    "read_history",
    "read_retained",
    "register",
    "shape_of",
    "snapshot_of",
    "write_stream",
]

_MODULES = {
    "Snapshot": "sources.snapshot",
    "Source": "database",
    "learn_shapes": "analysis.shapes",
    "read_delta": "sources.lake",
    "read_history": "sources.tables",
    "read_retained": "sources.tables",
    "register": "spark",
    "shape_of": "analysis.shapes",
    "snapshot_of": "sources.snapshot",
    "write_stream": "sink",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: without Spark, the command can still name the missing package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
