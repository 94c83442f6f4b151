"""The rows of Session State: many are written and deleted by one statement, each by its key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.sessions.rows import EndedSessions, RowKind
from holdfast.storage import layouts
from holdfast.storage.committer import Write
from holdfast.storage.layout import Layout
from holdfast.storage.sqlite import SQLiteBulk, delete_statement
from tests.storage.doubles import fresh_file


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(fresh_file(tmp_path), isolation_level=None)
    yield connection
    connection.close()


def received(*, failures: list[str] | None = None) -> RowKind:
    told = [] if failures is None else failures
    return RowKind(layouts.session_received, 1, SQLiteBulk(), lambda: told.append("failed"))


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 1000])
def test_any_number_of_rows_is_written_and_deleted(connection: sqlite3.Connection, count: int) -> None:
    """Rows are inserted, replaced and deleted by their whole key."""
    kind = received()
    keys = [(session, identifier) for session in (1, 2) for identifier in range(1, count + 1)]
    kind.apply(connection.cursor(), [Write(kind, key, (*key, 5), 1) for key in keys])
    kind.apply(connection.cursor(), [Write(kind, key, (*key, 7), 1) for key in keys])
    assert connection.execute("SELECT count(*), min(received_at) FROM session_received").fetchone() == (2 * count, 7)
    kind.apply(connection.cursor(), [Write(kind, key, None, 1) for key in keys if key[0] == 1])
    left = connection.execute("SELECT count(*), min(session_id) FROM session_received").fetchone()
    assert left == (count, 2)


@pytest.mark.parametrize("rows", [1, 2, 256])
@pytest.mark.parametrize("table", [layouts.session_messages, layouts.session_deliveries, layouts.session_received])
def test_rows_are_deleted_by_seeking(connection: sqlite3.Connection, table: Layout, rows: int) -> None:
    """No deletion scans a table, however many rows it names."""
    key = table.key
    statement = delete_statement(table, key, rows)
    steps = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [1] * rows * len(key)).fetchall()
    assert any(f"SEARCH {table.name}" in step[3] for step in steps)
    assert not any(f"SCAN {table.name}" in step[3] for step in steps)


def test_ending_a_session_deletes_its_rows_and_no_others(connection: sqlite3.Connection) -> None:
    for session in (1, 2):
        connection.execute("INSERT INTO sessions VALUES (?, ?, NULL, 'l', 5, NULL, NULL, 1)", (session, f"c{session}"))
        row = (session, "t", 0, 0, 0, 0, *7 * (None,))
        connection.execute("INSERT INTO session_subscriptions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO session_deliveries VALUES (?, 1, 9, 1, 0, '', NULL, 0, NULL)", (session,))
        connection.execute("INSERT INTO session_received VALUES (?, 1, 1)", (session,))
    kind = EndedSessions(90, SQLiteBulk(), lambda: None)
    kind.apply(connection.cursor(), [Write(kind, (1,), (), 1)])
    for table, column in (
        ("sessions", "id"),
        ("session_subscriptions", "session_id"),
        ("session_deliveries", "session_id"),
        ("session_received", "session_id"),
    ):
        assert connection.execute(f"SELECT {column} FROM {table}").fetchall() == [(2,)]


def test_failed_writes_are_remembered_and_refused_rows_are_not() -> None:
    """FULL and UNAVAILABLE pass. A row that the database refuses would be refused again."""
    failures: list[str] = []
    kind = received(failures=failures)
    write = Write(kind, (1, 1), (1, 1, 1), 1)
    kind.failed([write], StorageFailure(FailureKind.REFUSED, ""))
    assert (kind.unwritten, failures) == ({}, [])
    kind.failed([write], StorageFailure(FailureKind.FULL, ""))
    assert (kind.unwritten, failures) == ({(1, 1): write}, ["failed"])


def test_failed_writes_of_an_ended_session_are_forgotten(connection: sqlite3.Connection) -> None:
    """Written a second later, they would bring the Session back. Failed writes of other Sessions stay."""
    kind = received()
    kind.failed(
        [Write(kind, (session, 1), (session, 1, 1), 1) for session in (1, 2)],
        StorageFailure(FailureKind.UNAVAILABLE, ""),
    )
    ended = EndedSessions(90, SQLiteBulk(), lambda: None, [kind])
    ended.committed(ended.apply(connection.cursor(), [Write(ended, (1,), (), 1)]))
    assert list(kind.unwritten) == [(2, 1)]


def test_a_failed_write_is_forgotten_once_a_newer_one_is_committed(connection: sqlite3.Connection) -> None:
    """A newer row of the same key, submitted before the older write failed, is not overwritten a second later."""
    kind = received()
    kind.failed(
        [Write(kind, (1, identifier), (1, identifier, 1), 1) for identifier in (1, 2)],
        StorageFailure(FailureKind.UNAVAILABLE, ""),
    )
    kind.committed(kind.apply(connection.cursor(), [Write(kind, (1, 1), None, 1), Write(kind, (1, 3), (1, 3, 1), 1)]))
    assert list(kind.unwritten) == [(1, 2)]
