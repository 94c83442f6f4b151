"""``holdfast-pipeline`` as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.pipeline.java_classes import java_options, submit_arguments
from tests.processes import unmeasured

BIN = Path(sys.executable).parent
COMMAND = str(BIN / "holdfast-pipeline")
#: Seconds a command may take on a slow machine.
PATIENCE = 600.0


def environment(**settings: str) -> dict[str, str]:
    """Return the environment of a command: this one with settings that make Spark start fast."""
    lean = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": lean_arguments()}
    return {**unmeasured(), **lean, **settings}


def lean_arguments() -> str:
    """Return ``PYSPARK_SUBMIT_ARGS`` for a Spark process that starts fast."""
    return submit_arguments(java_options())


def run(*arguments: str | Path, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [str(argument) for argument in arguments], env=environment(**(settings or {})), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip


def ends(pid: int) -> bool:
    """Wait until a process has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        except ChildProcessError:  # not of this process, or collected before
            if not Path(f"/proc/{pid}").exists():
                return True
        time.sleep(0.02)
    return False
