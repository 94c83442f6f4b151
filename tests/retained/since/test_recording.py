"""Gathered changes: none is lost, whichever transactions fail and whenever the process is killed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.messages import ChangeOrigin, RetainedChange
from holdfast.retained.since.recording import GatheringRecorder
from holdfast.retained.since.searching import read_part
from holdfast.retained.since.stored import begin, changed_topics, read_kept
from holdfast.retained.since.turns import SQLITE
from holdfast.retained.store.recorder import NO_RECORDER, ChangedRow
from holdfast.retained.store.rows import COLUMNS, Row, row_of
from holdfast.storage.sqlite.bulk import SQLiteBulk
from tests.retained.store.contract import NOW, message
from tests.storage.doubles import fresh_file

EPOCH = bytes(8)
INSERT = f"INSERT OR REPLACE INTO retained ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
TOPICS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["commit", "commit", "fail"]), TOPICS),
        st.tuples(st.sampled_from(["kill", "token", "override", "late"]), TOPICS),
    ),
    max_size=25,
)


def changed_row(topic: str, revision: int) -> ChangedRow:
    row: Row = row_of(RetainedChange(topic, revision, NOW, message(topic, b"x", revision)))
    return ChangedRow(row, NOW, ChangeOrigin.PUBLISH)


class Process:
    """A process that changes rows, and its recorder."""

    def __init__(self, path: Path, most: int) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.cursor = self.connection.cursor()
        self.recorder = GatheringRecorder(NO_RECORDER, SQLiteBulk(), most, seconds=lambda: 0.0)
        kept = begin(self.cursor, SQLITE, node=1, epoch=EPOCH, now=NOW)
        self.recorder.searching = kept.missing_above is not None
        self.search()

    def search(self) -> None:
        """Find what the process before had gathered."""
        kept = read_kept(self.cursor)
        assert kept is not None
        if kept.missing_above is not None:
            part = read_part(self.cursor, kept.missing_above, "")
            assert part.after is None
            self.recorder.append_found(self.cursor, part.topics, NOW)
        self.recorder.searching = False
        self.recorder.append_gathered(self.cursor)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, most=st.integers(1, 8))
def test_what_changed_since_a_token_is_found(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[str]]], most: int
) -> None:
    """After any commits, failed commits, kills, changes in place and changes with old revisions."""
    path = fresh_file(tmp_path_factory.mktemp("gathered"))
    revisions = count(1000)
    process = Process(path, most)
    since, expected = 0, set[str]()
    with closing(process.connection):
        for step, topics in steps:
            cursor, recorder = process.cursor, process.recorder
            if step == "token":
                recorder.append_gathered(cursor)
                (since,) = cursor.execute("SELECT coalesce(max(turn), 0) FROM retained_changes").fetchone()
                expected = set()
                continue
            if step == "kill":
                process.connection.close()
                process = Process(path, most)
                continue
            cursor.execute("BEGIN")
            if step == "override":
                recorder.record_stored(cursor, topics, NOW, ChangeOrigin.OVERRIDE)
            else:
                # A message that has waited has an older revision than others that were committed before it.
                rows = [changed_row(topic, next(revisions) - 900 * (step == "late")) for topic in topics]
                for row, _, _ in rows:
                    cursor.execute(INSERT, row)
                recorder.record(cursor, rows)
            cursor.execute("ROLLBACK" if step == "fail" else "COMMIT")
            if step != "fail":
                expected |= set(topics)
        process.connection.close()
        process = Process(path, most)
        found = set(changed_topics(process.cursor, since, "", 100))
        assert found >= expected
        kept = read_kept(process.cursor)
        assert kept is not None
        assert kept.missing_above is None
        process.connection.close()


def test_most_commits_append_nothing(tmp_path: Path) -> None:
    """256 commits of one change write the table of changes once, and the mark twice."""
    process = Process(fresh_file(tmp_path), 256)
    statements: list[str] = []
    process.connection.set_trace_callback(statements.append)
    for revision in range(1000, 1256):
        process.recorder.record(process.cursor, [changed_row(f"t/{revision}", revision)])
    written = [statement.split()[0] for statement in statements if not statement.startswith("SELECT")]
    assert written == ["UPDATE", "INSERT", "UPDATE"]
    process.connection.close()
