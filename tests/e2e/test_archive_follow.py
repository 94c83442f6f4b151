"""``holdfast-pipeline archive --follow`` beside a broker that receives messages."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pyarrow.dataset
import pytest

from tests.paho import PahoClient
from tests.pipeline.commands import COMMAND, PATIENCE, environment
from tests.processes import BrokerProcess


def started(log: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command, in a process group of its own with its JVM and workers."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            [COMMAND, *arguments], env=environment(MASTER="local[2]"),
            stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
        )  # fmt: skip


def ended(process: subprocess.Popen[str], log: Path) -> str:
    """Wait until a command has ended with status 0, and return its output."""
    try:
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, log.read_text()
    finally:
        if process.poll() is None:
            kill(process)
    return said


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a command with all its processes."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def await_that(what: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    """Wait until a condition is true, or the command ends."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def places(database: Path) -> tuple[int, int, int | None]:
    """Return the number of recorded changes, the ``seq`` of the last one, and the last confirmed ``seq``."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        ((entries,),) = connection.execute("SELECT count(*) FROM retained_history").fetchall()
        ((last, archived),) = connection.execute("SELECT last_seq, archived_seq FROM retained_history_state").fetchall()
    return entries, last, archived


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.nightly
def test_an_archive_that_follows_ends_by_a_signal_and_has_each_change_once(tmp_path: Path) -> None:
    """It ends by Ctrl-C, by SIGTERM, or by kill -9 in a batch. The next run completes the archive."""
    configuration, out, log = tmp_path / "history.toml", tmp_path / "archive", tmp_path / "driver.log"
    configuration.write_text('[node]\ndata_dir = "data"\n[retainer.history]\nenable = true\n')
    broker = BrokerProcess(tmp_path, "--config", str(configuration)).start()
    database = tmp_path / "data" / "holdfast.db"
    silent = threading.Event()

    def publish() -> None:
        client = PahoClient(broker.port, client_id="device")
        for number in count():
            if silent.wait(0.02):
                break
            client.publish(f"t/{number % 50}", b"%d" % number, retain=True)
        client.close()

    def batches(kind: str) -> int:
        folder = out / "checkpoint" / kind
        return sum(path.name.isdigit() for path in folder.iterdir()) if folder.is_dir() else 0

    publisher = threading.Thread(target=publish)
    publisher.start()
    archive = ("archive", "--config", str(configuration), "--out", str(out))
    try:
        for ending, kind in ((signal.SIGINT, "commits"), (signal.SIGTERM, "commits"), (signal.SIGKILL, "offsets")):
            before = batches(kind)
            process = started(log, *archive, "--follow", "--interval", "0.5", "--rows", "100")
            try:
                await_that(lambda kind=kind, upto=before + 2: batches(kind) >= upto, process, log)  # type: ignore[misc]
                if ending is signal.SIGTERM:
                    process.send_signal(ending)
                else:  # a terminal sends the signal to all processes, too
                    os.killpg(process.pid, ending)
                if ending is signal.SIGKILL:
                    process.communicate()
                else:
                    assert "has every change up to" in ended(process, log)
            finally:
                if process.poll() is None:
                    kill(process)
        silent.set()
        publisher.join()
        ended(started(log, *archive), log)
        entries, last, archived = places(database)
        assert archived == last
        compacted = tmp_path / "compacted"
        ended(started(log, "compact", "--archive", str(out), "--out", str(compacted), "--unfinished"), log)
    finally:
        silent.set()
        publisher.join()
        broker.stop()
    found = pyarrow.dataset.dataset(compacted / "data", format="parquet").to_table(["seq"])["seq"].to_pylist()
    assert len(found) == entries
    assert sorted(found) == list(range(2, last + 1))
