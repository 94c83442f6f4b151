"""``holdfast-pipeline sync`` as a process: killed with SIGKILL, ended with SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.commands import COMMAND, PATIENCE, environment, run
from tests.pipeline.lake.reading import expected, in_iceberg, in_tables
from tests.pipeline.stores import Filled, message

#: the changes before each run: as batches, many more than a run commits before it is killed
GROWTH = 300


def sync(filled: Filled, out: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a sync in small batches."""
    with log.open("ab") as errors:
        return subprocess.Popen(
            [COMMAND, "sync", "--storage", filled.url, "--to", str(out), "--rows", "3", "--json", *options],
            env=environment(), stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
        )  # fmt: skip


def commits(out: Path, table: str) -> int:
    """Return the number of commits of a table, from the files of its log."""
    logs = [log for name in ("_delta_log", "metadata") if (log := out / table / name).is_dir()]
    return sum(name.endswith(".json") for log in logs for name in os.listdir(log))


def await_that(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a condition is true or the process ends."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.001)


def grow(filled: Filled, run: int) -> None:
    """Record changes of which some replace, and some clear."""
    filled.put(
        *(message(f"t/{number % 70}", b"" if number % 7 == run % 7 else b"%d" % number) for number in range(GROWTH))
    )


_OFTEN = tuple((table, more) for more in (1, 2, 5, 9, 14) for table in ("changes", "current"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recorded", "kills", "form"),
    [
        ("sqlite", (("changes", 3),), "delta"),
        ("sqlite", (("changes", 4),), "iceberg"),
        pytest.param("sqlite", _OFTEN, "delta", marks=pytest.mark.nightly),
        pytest.param("postgresql", _OFTEN, "delta", marks=pytest.mark.nightly),
        pytest.param("sqlite", _OFTEN, "iceberg", marks=pytest.mark.nightly),
    ],
    ids=["once", "once in Iceberg", "often on SQLite", "often on Postgres", "often in Iceberg"],
    indirect=["recorded"],
)
def test_kill_9_loses_and_doubles_nothing(
    recorded: Filled, tmp_path: Path, kills: tuple[tuple[str, int], ...], form: str
) -> None:
    """As soon as a table has so many new commits. The last run ends by itself; then both tables equal the broker."""
    out, log = tmp_path / "lake", tmp_path / "log"
    for number, (table, more) in enumerate(kills):
        grow(recorded, number)
        wanted = commits(out, table) + more
        process = sync(recorded, out, log, "--format", form)
        try:
            await_that(lambda table=table, wanted=wanted: commits(out, table) >= wanted, process, log)  # type: ignore[misc]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    done = run(COMMAND, "sync", "--storage", recorded.url, "--to", out, "--json", "--format", form)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["added"] > 0
    assert (in_tables(out) if form == "delta" else in_iceberg(out)) == expected(recorded)


@pytest.mark.slow
@pytest.mark.parametrize("recorded", ["sqlite"], indirect=True)
def test_sigterm_ends_a_continuous_sync_in_order(recorded: Filled, tmp_path: Path) -> None:
    """It follows the broker until then, and ends with status 0 and its result."""
    out, log = tmp_path / "lake", tmp_path / "log"
    recorded.put(message("a"))
    process = sync(recorded, out, log, "--every", "100ms")
    try:
        await_that(lambda: commits(out, "current") >= 2, process, log)
        before = commits(out, "current")
        recorded.put(message("b"))
        await_that(lambda: commits(out, "current") > before, process, log)
        process.terminate()
        told, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, log.read_text()
    assert json.loads(told)["added"] == 2
    assert in_tables(out) == expected(recorded)
