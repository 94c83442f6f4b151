"""``holdfast-pipeline`` as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BIN = Path(sys.executable).parent
COMMAND = str(BIN / "holdfast-pipeline")
#: Seconds a command may take on a slow machine.
PATIENCE = 240.0
#: Java without its optimising compiler: these processes end too early to profit from it.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LEAN = (
    "--conf spark.ui.enabled=false --conf spark.driver.memory=512m "
    f"--conf 'spark.driver.extraJavaOptions={SHORT_LIVED}' pyspark-shell"
)


def environment(**settings: str) -> dict[str, str]:
    """Return the environment of a command: this one with settings that make Spark start fast."""
    lean = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": LEAN}
    return {**unmeasured(), **lean, **settings}


def unmeasured() -> dict[str, str]:
    """Return this environment without coverage's variables: Spark kills its workers before they write results."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS")}


def run(*arguments: str | Path, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [str(argument) for argument in arguments], env=environment(**(settings or {})), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
