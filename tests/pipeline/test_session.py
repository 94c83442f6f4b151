"""Where Spark runs is what its own settings say, and the console is quiet there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark
import pytest

from tests.pipeline.commands import BIN, COMMAND, LEAN, PATIENCE, environment, run
from tests.pipeline.stores import database, message

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("java")]

#: What a command does, up to its session.
SCRIPT = """
from holdfast.pipeline.chatter import Chatter
from holdfast.pipeline.session import session
with session("test", Chatter()) as spark:
    print(spark.conf.get("spark.master"), spark.conf.get("spark.sql.python.filterPushdown.enabled"))
"""
ARGUMENTS = "--master local[3] --conf spark.ui.enabled=false pyspark-shell"


def defaults(folder: Path) -> dict[str, str]:
    """Say it in spark-defaults.conf."""
    (folder / "spark-defaults.conf").write_text("spark.master local[3]\nspark.ui.enabled false\n")
    return {"SPARK_CONF_DIR": str(folder)}


@pytest.mark.parametrize(
    "said",
    [
        lambda _folder: {"MASTER": "local[3]"},
        lambda _folder: {"PYSPARK_SUBMIT_ARGS": ARGUMENTS},
        lambda _folder: {"SPARK_REMOTE": "local[3]"},
        defaults,
    ],
    ids=["MASTER", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "spark-defaults.conf"],
)
def test_settings_of_sparks_are_honoured(said: Callable[[Path], Mapping[str, str]], tmp_path: Path) -> None:
    """Each way to say what the master is; nothing but the answer is on the console."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run(sys.executable, script, settings=said(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "local[3] true\n", "")


def test_spark_submit_runs_the_command(tmp_path: Path) -> None:
    """Its exit status is passed on; all it says is on standard output."""
    script = run(COMMAND, "--script").stdout.strip()
    submit = (Path(pyspark.__file__).parent / "bin/spark-submit", "--master", "local[1]", "--driver-memory", "512m")
    settings = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a/b"), message("a/c"))
        file = tmp_path / "filters"
        file.write_text("a/+\n#/b\n")
        done = run(*submit, script, "filters", "--storage", filled.url, "--filters", file, settings=settings)
    assert done.returncode == 3, done.stderr
    assert f"{file}:2: '#/b': " in done.stdout
    assert "1 Topic Filters, 1 subscriptions: 2 messages" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_with_spark_and_the_copy_it_made(number: signal.Signals, tmp_path: Path) -> None:
    """In a line, with the status that shells expect; it is sent when the copy is there."""
    copies = tmp_path / "copies"
    copies.mkdir()
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a/b"))
        process = subprocess.Popen(
            [COMMAND, "export", "--storage", filled.url, "--out", tmp_path / "out", "--snapshot-dir", copies],
            env=environment(PYSPARK_SUBMIT_ARGS=LEAN, MASTER="local[1]"), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + PATIENCE
        while not list(copies.iterdir()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        java = children(process.pid)
        process.send_signal(number)
        out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, errors) == (128 + number, "", f"ended by {number.name}\n")
    assert list(copies.iterdir()) == []
    assert len(java) == 1
    assert not Path(f"/proc/{java[0]}").exists()


def children(pid: int) -> list[int]:
    """Return the processes that another has started."""
    told = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in told.stdout.split()]
