"""``python -m examples.building``: the day is played to a real broker, which loses nothing."""

from __future__ import annotations

import json
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from examples.building.day import Building
from examples.building.events import HOUR, HOURS, Day, Lost, Message
from tests.processes import PATIENCE

_ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.e2e


def play(*arguments: str) -> subprocess.Popen[str]:
    """Start to play."""
    command = [sys.executable, "-m", "examples.building", *arguments]
    return subprocess.Popen(command, cwd=_ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_the_history_has_each_message_that_was_published(tmp_path: Path) -> None:
    """Each topic retains its last message, unless that has expired. The broker adds Wills and expiries.

    The broker's times are those of the day: each change is stored within a minute of its event.
    """
    folder = tmp_path / "building"
    end = "2026-03-02T08:40:00Z"
    process = play("--out", str(folder), "--scale", "0.005", "--seed", "3", "--end", end)
    said, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "messages are retained" in said
    day = Day(datetime(2026, 3, 1, 8, 40, tzinfo=UTC), 3)
    building = Building.of(0.005, day)
    events = [*building.first_values(), *(event for hour in range(HOURS) for event in building.hour(hour))]
    messages = [event for event in events if isinstance(event, Message)]
    last = {message.topic: message.payload for message in messages}
    with closing(sqlite3.connect(folder / "data" / "holdfast.db")) as connection:
        counts = dict(connection.execute("SELECT origin, count(*) FROM retained_history_events GROUP BY origin"))
        retained = dict(connection.execute("SELECT topic, payload FROM retained_messages"))
        changes = connection.execute(
            "SELECT changed_at, topic, payload, origin FROM retained_history_events"
        ).fetchall()
        ((complete_since,),) = connection.execute("SELECT complete_since FROM retained_history_periods")
    assert counts.pop("publish") == len(messages)
    assert counts.pop("will") == 1
    assert set(counts) <= {"expiry"}
    assert retained.items() <= last.items()
    missing = {topic for topic in last.keys() - retained.keys() if last[topic]}
    assert all(topic.endswith("/booking") for topic in missing)
    assert complete_since < day.milliseconds(0)
    assert max(at for at, *_ in changes) <= day.milliseconds(HOURS * HOUR)
    (lost,) = (event.at for event in events if isinstance(event, Lost))
    for at, topic, payload, origin in changes:
        if origin == "will":
            assert 0 <= at - day.milliseconds(lost) <= 60_000
        elif topic.endswith(("/vibration/raw", "/meter/energy")):
            noted = datetime.fromisoformat(json.loads(payload)["at"]).timestamp() * 1000
            assert 0 <= at - noted <= 60_000, topic
    assert not (folder / "clock").exists()


def test_a_day_in_the_future_is_refused(tmp_path: Path) -> None:
    process = play("--out", str(tmp_path / "building"), "--end", "2999-01-01T00:00:00Z")
    _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (
        1,
        "--end 2999-01-01T00:00:00Z: is in the future; the day must have ended\n",
    )
    assert not (tmp_path / "building").exists()


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
