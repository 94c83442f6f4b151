"""Spark for the commands: the process that a command starts, its session and errors, and storage shared with executors.

Other packages import only the names below, never a module of this package (import-linter checks that).
May import ``sink`` and ``sources`` to register the formats, ``database`` and ``output``.
"""

from __future__ import annotations

from holdfast.pipeline.spark.failure_text import failure_text as text_of_failure
from holdfast.pipeline.spark.java import java_problem
from holdfast.pipeline.spark.process import SparkProcess
from holdfast.pipeline.spark.server import Server, running_server, start_server, stop_server
from holdfast.pipeline.spark.session import prepare, register
from holdfast.pipeline.spark.shared_storage import require_history, require_staging, shared_folder, shared_snapshot

__all__ = [
    "Server",
    "SparkProcess",
    "java_problem",
    "prepare",
    "register",
    "require_history",
    "require_staging",
    "running_server",
    "shared_folder",
    "shared_snapshot",
    "start_server",
    "stop_server",
    "text_of_failure",
]
