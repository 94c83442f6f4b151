"""A session of a user's own job, and what a start of Spark tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_pipeline.spark.process import starting_text
from tests.pipeline.commands import PATIENCE, environment
from tests.pipeline.stores import Filled, message

_JOB = """
import sys
from pyspark.sql import SparkSession
from holdfast_pipeline import {name}

spark = SparkSession.builder.master("local[1]").getOrCreate()
{read}
"""
_READS = {
    "register": 'register(spark); print(spark.read.format("retained").option("storage", sys.argv[1]).load().count())',
    "read_history, Source": "print(read_history(spark, Source(sys.argv[1]), partitions=1).count())",
}


@pytest.mark.spark
@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", ["register", pytest.param("read_history, Source", marks=pytest.mark.nightly)])
def test_a_job_works_without_an_activated_environment(recorded: Filled, tmp_path: Path, name: str) -> None:
    """The first python3 in PATH, which Spark would start for its workers, cannot import this package."""
    recorded.put(message("a/b"), message("a/c"))
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text('#!/bin/sh\nexec "$REAL_PYTHON" -S "$@"\n')  # without its site-packages
    other.chmod(0o755)
    script = tmp_path / "job.py"
    script.write_text(_JOB.format(name=name, read=_READS[name]))
    settings = environment(REAL_PYTHON=sys.executable)
    settings.pop("PYSPARK_PYTHON", None)
    settings["PATH"] = f"{other.parent}:{settings['PATH']}"
    done = subprocess.run(
        [sys.executable, script, recorded.url],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


@pytest.mark.parametrize(
    ("priority", "load", "told"),
    [
        (10, 1000.0, "starting Spark, while other work has the processors"),
        (0, 1000.0, "starting Spark"),
        (10, 0.1, "starting Spark"),
    ],
)
def test_a_start_tells_that_it_waits_for_other_work(
    monkeypatch: pytest.MonkeyPatch, priority: int, load: float, told: str
) -> None:
    """At a low priority it may take minutes beside a busy broker."""
    monkeypatch.setattr(os, "getpriority", lambda *_: priority)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert starting_text() == told
