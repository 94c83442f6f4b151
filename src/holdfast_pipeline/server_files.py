"""The files of the user's server, and when commands use it: known without importing Spark, which takes a second.

A server belongs to a Python environment, since its workers are processes of that environment::

    ~/.cache/holdfast/server-5d1c0a9e/server.json    {"port": 37363, "token": "...", "pid": 731, "java": 733}
    ~/.cache/holdfast/server-5d1c0a9e/server.lock    held while a server starts
    ~/.cache/holdfast/server-5d1c0a9e/commands       the socket of the process that runs commands
    ~/.cache/holdfast/server-5d1c0a9e/logs/          the log of Spark
    ~/.cache/holdfast/server-5d1c0a9e/rehearsal/     the sample of the warm-up, while that runs
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from holdfast_pipeline.cache_folder import cache_folder

#: Variables with which a user chooses another Spark.
_CHOICES = ("SPARK_REMOTE", "MASTER", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT")


def server_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the server, which may not be there yet; None if there can be none."""
    folder = cache_folder(environment)
    try:
        own = f"{sys.prefix} {version('holdfast')} {version('pyspark')}"
    except PackageNotFoundError:
        return None
    return None if folder is None else folder / f"server-{sha256(own.encode()).hexdigest()[:8]}"


def chooses_another_spark(environment: Mapping[str, str]) -> bool:
    """Tell whether the user's settings choose another Spark than the server."""
    return any(environment.get(name) for name in _CHOICES)
