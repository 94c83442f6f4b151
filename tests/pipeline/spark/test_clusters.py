"""``holdfast-pipeline`` on clusters of real executors, which are other processes on this host."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.pipeline.commands import COMMAND, PATIENCE, environment, lean_arguments, run
from tests.pipeline.stores import database, message

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("java")]

HOME = Path(pyspark.__file__).parent


def small() -> str:
    """Return Spark's settings with small executors."""
    return f"--conf spark.executor.memory=512m {lean_arguments()}"


@pytest.mark.nightly
def test_executors_of_a_local_cluster_read_a_copy_of_an_sqlite_database(tmp_path: Path) -> None:
    """They are on this host, so no shared folder is needed."""
    settings = {"MASTER": "local-cluster[2,1,1024]", "SPARK_HOME": str(HOME), "PYSPARK_SUBMIT_ARGS": small()}
    with database("sqlite", tmp_path) as source:
        source.put(*(message(f"t/{number}") for number in range(50)))
        done = run(COMMAND, "asof", "--quiet", "--storage", source.url, "--out", tmp_path / "out", settings=settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("50 messages retained at ")


@pytest.mark.nightly
def test_a_standalone_cluster_reads_a_snapshot_in_a_shared_folder(tmp_path: Path) -> None:
    """Two executors check that they see it and the output folder; then they read and write."""
    (tmp_path / "shared").mkdir()
    with database("sqlite", tmp_path) as source, cluster(tmp_path / "workers") as master:
        source.put(*(message(f"t/{number}") for number in range(50)))
        export = (COMMAND, "asof", "--quiet", "--storage", source.url, "--out", tmp_path / "out")
        settings = {"MASTER": master, "PYSPARK_SUBMIT_ARGS": small()}
        done = run(*export, "--snapshot-dir", tmp_path / "shared", settings=settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("50 messages retained at ")
    assert list((tmp_path / "shared").iterdir()) == []
    assert len(list((tmp_path / "workers").glob("*/app-*/*/stderr"))) == 2


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a master and two workers with a core each; give the master's URL."""
    with ExitStack() as processes:
        master = processes.enter_context(daemon("master.Master", "--webui-port", "0", "--port", "0"))
        url = master.await_line(r"Starting Spark master at (spark://\S+)")
        workers = [
            processes.enter_context(
                daemon("worker.Worker", "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(folder / name), url)
            )
            for name in ("first", "second")
        ]
        for worker in workers:
            worker.await_line("(Successfully registered) with master")
        yield url


class Daemon:
    """A process of the cluster, and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._said: queue.Queue[str] = queue.Queue()
        self._lines: list[str] = []
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def await_line(self, pattern: str) -> str:
        """Wait for a line that matches a pattern; return its group."""
        while True:
            try:
                line = self._said.get(timeout=PATIENCE)
            except queue.Empty:
                line = ""
            self._lines.append(line)
            assert line, "".join(self._lines)
            if found := re.search(pattern, line):
                return found[1]

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._said.put(line)
        self._said.put("")


@contextmanager
def daemon(name: str, *arguments: str) -> Iterator[Daemon]:
    """Run a process of a cluster."""
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    settings = {"SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(
        command, env=environment(**settings), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield Daemon(process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
