"""Gathered changes: none is lost, whichever transactions fail, and a kill makes tokens void."""

from __future__ import annotations

import sqlite3
from collections.abc import Hashable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.changes.log import SQLITE, begin, changed_topics, ended, is_good, token_now
from holdfast.changes.recording import AppendingRecorder, GatheringRecorder
from holdfast.changes.tokens import Token
from holdfast.core.messages import ChangeOrigin, RetainedChange
from holdfast.retained.store.interfaces import NO_RECORDER, ChangedRow, Recorder
from holdfast.retained.store.rows import row_of
from holdfast.storage.driver import Cursor
from holdfast.storage.sqlite import SQLiteBulk
from tests.retained.store.contract import NOW, message
from tests.storage.doubles import fresh_file

TOPICS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.tuples(st.sampled_from(["commit", "commit", "fail", "token", "override", "stop", "kill"]), TOPICS), max_size=25
)


def changed_row(topic: str) -> ChangedRow:
    return ChangedRow(row_of(RetainedChange(topic, 1, NOW, message(topic, b"x", 1))), NOW, ChangeOrigin.PUBLISH)


class Noting:
    """A recorder that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def key_of(self, topic: str, revision: int) -> Hashable:
        return topic, revision

    def record(self, _cursor: Cursor, changes: Sequence[ChangedRow]) -> None:
        self.told.append(("changed", list(changes)))

    def record_stored(self, _cursor: Cursor, topics: Sequence[str], changed_at: int, origin: ChangeOrigin) -> None:
        self.told.append(("stored", (list(topics), changed_at, origin)))

    def record_expired(self, _cursor: Cursor, topics: Sequence[str], now: int, revision: int) -> None:
        self.told.append(("expired", (list(topics), now, revision)))


@pytest.mark.parametrize("kind", ["gathering", "appending"])
def test_the_history_is_told_of_every_change(kind: str, tmp_path: Path) -> None:
    """Both recorders of changed topics hand everything on to the recorder behind them, as it came."""
    inner = Noting()
    with closing(sqlite3.connect(fresh_file(tmp_path))) as connection:
        recorder: Recorder
        if kind == "gathering":
            recorder = GatheringRecorder(inner, SQLiteBulk(), 100, seconds=lambda: 0.0)
        else:
            recorder = alone = AppendingRecorder(inner, 100, seconds=lambda: 0.0)
            alone.alone = True
        cursor, rows = connection.cursor(), [changed_row(topic) for topic in "abc"]
        recorder.record(cursor, rows)
        recorder.record_stored(cursor, ["d", "e"], NOW, ChangeOrigin.OVERRIDE)
        recorder.record_expired(cursor, ["f", "g"], NOW, 7)
    assert recorder.key_of("a", 1) == ("a", 1)
    assert inner.told == [
        ("changed", rows), ("stored", (["d", "e"], NOW, ChangeOrigin.OVERRIDE)), ("expired", (["f", "g"], NOW, 7)),
    ]  # fmt: skip


class Process:
    """A process that records changes."""

    def __init__(self, path: Path, most: int) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.cursor = self.connection.cursor()  # each transaction has one of its own
        self.recorder = GatheringRecorder(NO_RECORDER, SQLiteBulk(), most, seconds=lambda: 0.0)
        self.epoch = id(self).to_bytes(8, "big")
        begin(self.cursor, SQLITE, node=1, epoch=self.epoch, now=NOW)

    def token(self) -> Token:
        """Return a token as the broker makes it."""
        self.recorder.append_gathered(self.connection.cursor())
        return token_now(self.cursor, SQLITE, self.epoch)

    def change(self, topics: list[str], commits: bool = True, *, override: bool = False) -> None:
        """Record changes in one transaction, each by itself: kinds of writes record one after the other."""
        cursor = self.connection.cursor()
        cursor.execute("BEGIN")
        for topic in topics:
            if override:
                self.recorder.record_stored(cursor, [topic], NOW, ChangeOrigin.OVERRIDE)
            else:
                self.recorder.record(cursor, [changed_row(topic)])
        cursor.execute("COMMIT" if commits else "ROLLBACK")

    def stop(self) -> None:
        """End in order."""
        self.recorder.append_gathered(self.connection.cursor())
        ended(self.cursor, SQLITE, 1)
        self.connection.close()


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, most=st.integers(1, 8))
def test_what_changed_since_a_token_is_found(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[str]]], most: int
) -> None:
    """After any commits, failed commits and stops. After a kill the token is not good."""
    path = fresh_file(tmp_path_factory.mktemp("gathered"))
    processes = [Process(path, most)]
    since, expected, was_killed = processes[0].token(), set[str](), False
    for step, topics in steps:
        process = processes[-1]
        if step == "token":
            since, expected, was_killed = process.token(), set(), False
        elif step in ("stop", "kill"):
            if step == "stop":
                process.stop()
            was_killed |= step == "kill"
            process.connection.close()
            processes.append(Process(path, most))
        else:
            process.change(topics, step != "fail", override=step == "override")
            if step != "fail":
                expected |= set(topics)
    with closing(processes[-1].connection):
        cursor = processes[-1].connection.cursor()
        processes[-1].recorder.append_gathered(cursor)
        assert is_good(cursor, SQLITE, since) is not was_killed
        if not was_killed:
            assert set(changed_topics(cursor, since.turn, "", 100)) >= expected


def test_most_commits_append_nothing(tmp_path: Path) -> None:
    """256 commits of one change write the table of changes once."""
    process = Process(fresh_file(tmp_path), 256)
    statements: list[str] = []
    process.connection.set_trace_callback(statements.append)
    for number in range(256):
        process.change([f"t/{number}"])
    words = [statement.split()[0] for statement in statements]
    assert [word for word in words if word not in ("SELECT", "BEGIN", "COMMIT")] == ["INSERT"]
    process.connection.close()


def test_a_full_disk_costs_no_memory(tmp_path: Path) -> None:
    """While every commit fails, a client that publishes new topics all the time does not fill the memory."""
    process = Process(fresh_file(tmp_path), 8)
    since = process.token()
    process.change(["kept"])
    for number in range(100):
        process.change([f"t/{number}", f"u/{number}"], commits=False)
    assert len(process.recorder._gathered) <= 10
    process.change(["after"])
    process.recorder.append_gathered(process.connection.cursor())
    assert {"kept", "after"} <= set(changed_topics(process.cursor, since.turn, "", 100))
    process.connection.close()
