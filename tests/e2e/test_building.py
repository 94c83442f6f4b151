"""``python -m examples.building``: the day is played to a real broker, which loses nothing."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from examples.building.day import HOURS, Building
from examples.building.events import Message
from tests.processes import PATIENCE

_ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e


def play(*arguments: str) -> subprocess.Popen[str]:
    """Start to play."""
    command = [sys.executable, "-m", "examples.building", *arguments]
    return subprocess.Popen(command, cwd=_ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_the_history_has_each_message_that_was_published(tmp_path: Path) -> None:
    """Each topic retains its last message, unless that has expired. The broker adds Wills and expiries."""
    folder = tmp_path / "building"
    process = play("--out", str(folder), "--scale", "0.005", "--seed", "3")
    said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "messages are retained" in said
    building = Building.of(0.005, 3)
    hours = (event for hour in range(HOURS) for event in building.hour(hour))
    messages = [event for event in (*building.first_values(), *hours) if isinstance(event, Message)]
    last = {message.topic: message.payload for message in messages}
    with closing(sqlite3.connect(folder / "data" / "holdfast.db")) as connection:
        counts = dict(connection.execute("SELECT origin, count(*) FROM retained_history_events GROUP BY origin"))
        retained = dict(connection.execute("SELECT topic, payload FROM retained_messages"))
    assert counts.pop("publish") == len(messages)
    assert counts.pop("will") == 1
    assert set(counts) <= {"expiry"}
    assert retained.items() <= last.items()
    missing = {topic for topic in last.keys() - retained.keys() if last[topic]}
    assert all(topic.endswith("/booking") for topic in missing)
    assert len((folder / "hours.txt").read_text().splitlines()) == HOURS


def test_an_interruption_ends_the_broker_with_a_message(tmp_path: Path) -> None:
    """No process still runs. Another day refuses the incomplete folder."""
    folder = tmp_path / "building"
    process = play("--out", str(folder), "--scale", "1")
    assert process.stdout is not None
    assert process.stdout.read(10)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "interrupted: the broker has ended" in errors
    assert not re.search("Traceback", errors)
    with closing(sqlite3.connect(folder / "data" / "holdfast.db")) as connection:
        connection.execute("BEGIN EXCLUSIVE")  # the lock is free
    again = play("--out", str(folder))
    _, errors = again.communicate(timeout=PATIENCE)
    assert (again.returncode, errors) == (
        1,
        f"{folder}: exists already; remove it, or name another folder: --out FOLDER\n",
    )
