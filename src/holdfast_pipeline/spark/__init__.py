"""Spark for the commands: the process that a command starts, its session and errors, and storage shared with executors.

Other packages import only the names below, never a module of this package (import-linter checks that).
"""

from __future__ import annotations

from holdfast_pipeline.spark.java import java_problem
from holdfast_pipeline.spark.process import SparkProcess
from holdfast_pipeline.spark.process import failure_text as text_of_failure
from holdfast_pipeline.spark.server import Server, running_server, start_server, stop_server
from holdfast_pipeline.spark.session import (
    prepare,
    refuse_history,
    refuse_snapshot,
    refuse_staging,
    register,
    require_folder,
    require_lake,
    shared_folder,
    shared_snapshot,
)

__all__ = [
    "Server",
    "SparkProcess",
    "java_problem",
    "prepare",
    "refuse_history",
    "refuse_snapshot",
    "refuse_staging",
    "register",
    "require_folder",
    "require_lake",
    "running_server",
    "shared_folder",
    "shared_snapshot",
    "start_server",
    "stop_server",
    "text_of_failure",
]
