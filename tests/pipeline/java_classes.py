"""An archive of Spark's classes. With it, Java starts Spark in half the processor time.

Java then maps the checked classes into its memory, instead of reading and checking them. Java refuses an archive of
other jars or of another Java, and then reads the classes as usual; the options below keep it silent about that.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import pyspark

#: Java without its optimising compiler: tests' processes end too early to profit from it.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_FOLDER = Path(__file__).parents[2] / "build" / "java-classes"
#: Seconds for one start of Spark on a slow machine.
_PATIENCE = 600.0
_START = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").getOrCreate()
assert spark.range(10).groupBy("id").count().count() == 10
spark.stop()
"""


def java_options() -> str:
    """Return Java's options for a Spark process of a test."""
    archive = _archive()
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive} -Xlog:disable" if archive.exists() else SHORT_LIVED


def make_archive() -> None:
    """Make the archive for this Java and this Spark, unless it exists. Without one, the tests only take longer."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers want it at the same time
        if _archive().exists():
            return
        made = _archive().with_suffix(".new")
        made.unlink(missing_ok=True)
        options = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        environment = {
            **os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_SUBMIT_ARGS": submit_arguments(options),
        }  # fmt: skip
        # The output ends when Java has ended, which may be after Python.
        done = subprocess.run(
            [sys.executable, "-c", _START], env=environment, capture_output=True, check=False, timeout=_PATIENCE
        )
        if done.returncode == 0 and made.exists():
            made.rename(_archive())


def submit_arguments(options: str) -> str:
    """Return Spark's settings for a short process with these options for Java."""
    return (
        "--conf spark.ui.enabled=false --conf spark.driver.memory=512m "
        f"--conf 'spark.driver.extraJavaOptions={options}' pyspark-shell"
    )


@cache
def _archive() -> Path:
    folders = os.pathsep.join([f"{os.environ.get('JAVA_HOME', '')}/bin", os.environ.get("PATH", "")])
    java = Path(shutil.which("java", path=folders) or "").resolve()
    jars = Path(pyspark.__file__).parent / "jars"
    facts = [f"{path} {path.stat().st_mtime_ns}" for path in (java, jars)]
    return _FOLDER / f"{sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"
