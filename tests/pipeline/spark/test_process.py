"""Spark's own settings determine where it runs, and the console stays quiet."""

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

from tests.pipeline.commands import BIN, COMMAND, PATIENCE, ends, environment, lean_arguments, run
from tests.pipeline.java_classes import java_options
from tests.pipeline.stores import database, message

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("java")]

_LEAN = ("SPARK_LOCAL_IP", "PYSPARK_SUBMIT_ARGS")
ARGUMENTS = "--master local[3] --conf spark.ui.enabled=false pyspark-shell"

#: Starts a session in the way of a command. Prints its master, whether it shows its jobs on a page, whether its port
#: reads the objects of strangers, and where its Java listens, in hexadecimal.
SCRIPT = """
import os, subprocess
from pathlib import Path
from pyspark import SparkContext
from holdfast_pipeline.spark import SparkProcess
from tests.pipeline.spark.rpc import reads_objects

def listening(pid):
    links = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    lines = [line.split() for line in table.splitlines() if "local_address" not in line]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in links}

with SparkProcess("test") as process:
    spark = process.start()
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.range(10).count() == 10
    (java,) = subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True).stdout.split()
    page = None if "SPARK_REMOTE" in os.environ else SparkContext._active_spark_context.uiWebUrl
    trusting = reads_objects(int(spark.conf.get("spark.driver.port")), host=spark.conf.get("spark.driver.host"))
    print(spark.conf.get("spark.master"), page is not None, trusting, *sorted(listening(java)))
"""
#: 127.0.0.1 as a socket for IPv4 and one for IPv6 have it.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def defaults(folder: Path) -> dict[str, str]:
    """Write spark-defaults.conf; return the environment that leads to it."""
    (folder / "spark-defaults.conf").write_text("spark.master local[3]\nspark.ui.enabled true\n")
    return {"SPARK_CONF_DIR": str(folder)}


@pytest.mark.parametrize(
    ("said", "reachable"),
    [
        (lambda _folder: {"MASTER": "local[3]"}, False),
        pytest.param(lambda _folder: {"PYSPARK_SUBMIT_ARGS": ARGUMENTS}, False, marks=pytest.mark.nightly),
        pytest.param(lambda _folder: {"SPARK_REMOTE": "local[3]"}, True, marks=pytest.mark.nightly),
        pytest.param(defaults, True, marks=pytest.mark.nightly),
    ],
    ids=["MASTER", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "spark-defaults.conf"],
)
def test_spark_s_settings_are_used(said: Callable[[Path], Mapping[str, str]], reachable: bool, tmp_path: Path) -> None:
    """Each way to set the master. The console is quiet. Other hosts cannot reach Spark unless its settings allow it.

    Other users of this host cannot have it read their objects, unless the user starts Spark Connect.
    """
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    bare = {name: value for name, value in environment().items() if name not in _LEAN}
    bare["PYTHONPATH"] = str(Path(__file__).parents[3])
    arguments = f"--driver-java-options '{java_options()}' pyspark-shell"
    done = subprocess.run(
        [sys.executable, script], env={**bare, "PYSPARK_SUBMIT_ARGS": arguments, **said(tmp_path)}, capture_output=True,
        text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    master, page, trusting, *addresses = done.stdout.split()
    assert (master, page) == ("local[3]", str(said is defaults))
    assert trusting == str("SPARK_REMOTE" in said(tmp_path))
    assert addresses
    assert (set(addresses) <= LOOPBACK) is not reachable


@pytest.mark.nightly
def test_spark_submit_runs_the_command(tmp_path: Path) -> None:
    """The exit status is passed on; all output is on standard output."""
    script = run(COMMAND, "--script").stdout.strip()
    program = Path(pyspark.__file__).parent / "bin/spark-submit"
    submit = (program, "--master", "local[1]", "--driver-memory", "512m", "--driver-java-options", java_options())
    settings = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a/b"), message("a/c"))
        file = tmp_path / "filters"
        file.write_text("a/+\n#/b\n")
        done = run(
            *submit,
            script,
            "report",
            "--only",
            "filters",
            "--storage",
            filled.url,
            "--filters",
            file,
            settings=settings,
        )
    assert done.returncode == 3, done.stderr
    assert f"{file}:2: '#/b': " in done.stdout
    assert "1 Topic Filter, 1 subscription: 2 messages" in done.stdout


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_a_signal_ends_the_command_with_spark_and_the_copy_it_made(number: signal.Signals, tmp_path: Path) -> None:
    """With one line, and the status that shells expect. The test sends it once the copy exists."""
    copies = tmp_path / "copies"
    copies.mkdir()
    with database("sqlite", tmp_path) as filled:
        filled.put(message("a/b"))
        process = subprocess.Popen(
            [
                COMMAND, "asof", "--quiet", "--storage", filled.url, "--out", tmp_path / "out",
                "--snapshot-dir", copies,
            ],
            env=environment(PYSPARK_SUBMIT_ARGS=lean_arguments(), MASTER="local[1]"), stdin=subprocess.DEVNULL,
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
    assert ends(java.pop())


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    told = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in told.stdout.split()]
