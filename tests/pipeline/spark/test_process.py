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

from tests.pipeline.commands import BIN, COMMAND, PATIENCE, environment, lean_arguments, run
from tests.pipeline.java_classes import java_options
from tests.pipeline.stores import database, message

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("java")]

#: Starts a session in the way of a command.
SCRIPT = """
from holdfast.pipeline.spark import SparkProcess
with SparkProcess("test") as process:
    spark = process.start()
    print(spark.conf.get("spark.master"), spark.conf.get("spark.sql.python.filterPushdown.enabled"))
"""
_LEAN = ("SPARK_LOCAL_IP", "PYSPARK_SUBMIT_ARGS")
ARGUMENTS = "--master local[3] --conf spark.ui.enabled=false pyspark-shell"


def defaults(folder: Path) -> dict[str, str]:
    """Write spark-defaults.conf; return the environment that leads to it."""
    (folder / "spark-defaults.conf").write_text("spark.master local[3]\nspark.ui.enabled false\n")
    return {"SPARK_CONF_DIR": str(folder)}


@pytest.mark.parametrize(
    "said",
    [
        lambda _folder: {"MASTER": "local[3]"},
        pytest.param(lambda _folder: {"PYSPARK_SUBMIT_ARGS": ARGUMENTS}, marks=pytest.mark.nightly),
        pytest.param(lambda _folder: {"SPARK_REMOTE": "local[3]"}, marks=pytest.mark.nightly),
        defaults,
    ],
    ids=["MASTER", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "spark-defaults.conf"],
)
def test_spark_s_settings_are_used(said: Callable[[Path], Mapping[str, str]], tmp_path: Path) -> None:
    """Each way to set the master; the console has only the answer."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run(sys.executable, script, settings=said(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "local[3] true\n", "")


#: Prints where this process's Spark listens, in hexadecimal, and whether it shows its jobs on a page.
LISTENING = """
import os, subprocess
from pathlib import Path
from holdfast.pipeline.spark import SparkProcess

def listening(pid):
    links = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    lines = [line.split() for line in table.splitlines() if "local_address" not in line]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in links}

with SparkProcess("test", quiet=False) as process:
    spark = process.start()
    assert spark.range(10).count() == 10
    (java,) = subprocess.run(["pgrep", "-P", str(os.getpid()), "java"], capture_output=True, text=True).stdout.split()
    print(*sorted(listening(java)), spark.sparkContext.uiWebUrl is not None)
"""
#: 127.0.0.1 as a socket for IPv4 and one for IPv6 have it.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def test_on_one_machine_other_hosts_cannot_reach_spark(tmp_path: Path) -> None:
    """By default; the user's settings override that."""
    script = tmp_path / "script.py"
    script.write_text(LISTENING)
    bare = {name: value for name, value in environment(MASTER="local[2]").items() if name not in _LEAN}
    java = f"--driver-java-options '{java_options()}'"
    for arguments, shown in (("pyspark-shell", "False"), ("--conf spark.ui.enabled=true pyspark-shell", "True")):
        done = subprocess.run(
            [sys.executable, script], env={**bare, "PYSPARK_SUBMIT_ARGS": f"{java} {arguments}"}, capture_output=True,
            text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        *addresses, ui = done.stdout.split()
        assert ui == shown
        assert addresses
        assert (set(addresses) <= LOOPBACK) is (shown == "False")


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
        done = run(*submit, script, "filters", "--storage", filled.url, "--filters", file, settings=settings)
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
            [COMMAND, "export", "--storage", filled.url, "--out", tmp_path / "out", "--snapshot-dir", copies],
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
    assert not Path(f"/proc/{java[0]}").exists()


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    told = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in told.stdout.split()]
