"""Changes are written at their own times, without a broker, and a broker goes on from there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.commands.api import standing_in, write_past
from holdfast.config import default
from holdfast.core.messages import RetainedChange, RetainedMessage
from holdfast.storage.location import StoreUnusable
from holdfast.storage.revisions import time_of
from holdfast.wire.properties import NO_PROPERTIES

_BEGIN = 1_700_000_000_000


def change(topic: str, at: int, payload: bytes = b"x") -> RetainedChange:
    message = RetainedMessage(topic, payload, 1, NO_PROPERTIES, "c", None, at, None, 0) if payload else None
    return RetainedChange(topic, 0, at, message, "c")


def test_the_history_begins_at_the_given_time_with_what_was_retained_then(tmp_path: Path) -> None:
    """Later changes are in it one by one, clears too, and revisions tell the times of the changes."""
    changes = [
        change("old", _BEGIN - 9),
        change("gone", _BEGIN - 5),
        change("gone", _BEGIN, b""),
        change("new", _BEGIN + 7),
    ]
    write_past(f"sqlite:///{tmp_path / 'x.db'}", changes, _BEGIN)
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        entries = database.execute("SELECT topic, op, origin, changed_at, revision FROM retained_history ORDER BY seq")
        told = entries.fetchall()
        retained = database.execute(
            "SELECT topic, stored_at FROM retained WHERE tombstone = 0 ORDER BY topic"
        ).fetchall()
    assert [row[:4] for row in told] == [
        ("gone", "set", "baseline", _BEGIN),
        ("old", "set", "baseline", _BEGIN),
        ("gone", "clear", "publish", _BEGIN),
        ("new", "set", "publish", _BEGIN + 7),
    ]
    times = [time_of(row[4]) for row in told]
    assert times[:2] == [_BEGIN - 5, _BEGIN - 9]
    assert _BEGIN <= times[2] <= times[3] < _BEGIN + 1000  # above all that an opened database has reserved
    assert told[2][4] < told[3][4]
    assert retained == [("new", _BEGIN + 7), ("old", _BEGIN - 9)]


def test_later_changes_of_a_broker_go_on_with_the_history(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    write_past(url, [change("a", _BEGIN)], _BEGIN)
    config = default().override([], str(tmp_path), url, allow_anonymous=True, cwd=tmp_path)
    with standing_in(config) as access:
        access.call("DELETE", "/messages", {"topic": "a"})
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        assert database.execute("SELECT op FROM retained_history ORDER BY seq").fetchall() == [("set",), ("clear",)]


def test_a_change_that_cannot_be_stored_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="cannot be stored"):
        write_past(f"sqlite:///{tmp_path / 'x.db'}", [change("x" * 70_000, _BEGIN)], _BEGIN)
