"""``holdfast-pipeline sync --confirm`` beside a broker that receives messages."""

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

import pytest

from holdfast.config import default
from holdfast_pipeline.database import confirm_in_lake
from holdfast_pipeline.errors import PipelineError
from tests.paho import PahoClient
from tests.pipeline.commands import COMMAND, PATIENCE, environment
from tests.pipeline.lake.reading import in_tables
from tests.processes import BrokerProcess


def test_a_lake_confirms_over_the_control_socket(tmp_path: Path) -> None:
    """A running broker owns its database file: it writes the file, and refuses entries beyond its history."""
    configuration = tmp_path / "history.toml"
    configuration.write_text("[retainer.history]\nenable = true\n")
    broker = BrokerProcess(tmp_path, "--config", str(configuration)).start()
    try:
        file = tmp_path / "data" / "holdfast.db"
        config = default().override([], str(file.parent), f"sqlite:///{file}", allow_anonymous=True, cwd=tmp_path)
        confirm_in_lake(config, 1)
        assert places(file)[2] == 1
        with pytest.raises(PipelineError, match="could not be confirmed: the history ends at event 1"):
            confirm_in_lake(config, 2)
    finally:
        broker.stop()


def places(database: Path) -> tuple[int, int, int | None]:
    """Return the number of recorded changes, the ``seq`` of the last one, and the last confirmed ``seq``."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        ((entries,),) = connection.execute("SELECT count(*) FROM retained_history").fetchall()
        ((last, archived),) = connection.execute("SELECT last_seq, archived_seq FROM retained_history_state").fetchall()
    return entries, last, archived


def started(log: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            [COMMAND, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=errors, text=True
        )


def ended(process: subprocess.Popen[str], log: Path) -> str:
    """Wait until a command has ended with status 0, and return its output."""
    try:
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    return said


def await_that(what: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    """Wait until a condition is true, or the command ends."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.mark.slow
def test_the_lake_has_and_confirms_each_change_once(tmp_path: Path) -> None:
    """It ends by SIGTERM, or by kill -9 in a batch. The next run completes the lake."""
    configuration, out, log = tmp_path / "history.toml", tmp_path / "lake", tmp_path / "log"
    configuration.write_text('[node]\ndata_dir = "data"\n[retainer.history]\nenable = true\n')
    broker = BrokerProcess(tmp_path, "--config", str(configuration)).start()
    database = tmp_path / "data" / "holdfast.db"
    silent = threading.Event()

    def publish() -> None:
        client = PahoClient(broker.port, client_id="device")
        for number in count():
            if silent.wait(0.05):
                break
            client.publish(f"t/{number % 50}", b"%d" % number, retain=True)
        client.close()

    def commits() -> int:
        folder = out / "changes" / "_delta_log"
        return len([name for name in os.listdir(folder) if name.endswith(".json")]) if folder.is_dir() else 0

    publisher = threading.Thread(target=publish)
    publisher.start()
    sync = ("sync", "--config", str(configuration), "--to", str(out), "--confirm")
    try:
        for ending in (signal.SIGTERM, signal.SIGKILL):
            before = commits()
            process = started(log, *sync, "--every", "100ms", "--rows", "10")
            try:
                await_that(lambda upto=before + 3: commits() >= upto, process, log)  # type: ignore[misc]
                process.send_signal(ending)
                if ending is signal.SIGKILL:
                    process.communicate()
                else:
                    assert "has every change up to" in ended(process, log)
            finally:
                process.kill()
                process.wait()
            _, last, confirmed = places(database)
            assert confirmed is not None
            assert confirmed <= last
        silent.set()
        publisher.join()
        ended(started(log, *sync), log)
        entries, last, confirmed = places(database)
    finally:
        silent.set()
        publisher.join()
        broker.stop()
    assert confirmed == last
    assert [row["seq"] for row in in_tables(out)[0]] == list(range(2, last + 1))
    assert entries == last - 1
