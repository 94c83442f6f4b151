"""Stored changes: what a token promises, through prunings, restarts, restored backups and concurrent transactions."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast.changes.log import (
    POSTGRES,
    SQLITE,
    begin,
    changed_topics,
    count_since,
    end,
    ended,
    excess_turn,
    is_good,
    last_token,
    prune,
    read_kept,
    time_of,
    token_now,
    turn_before,
)
from holdfast.changes.recording import AppendingRecorder, GatheringRecorder
from holdfast.changes.tokens import Token
from holdfast.retained.store.interfaces import NO_RECORDER
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.sqlite import SQLiteBulk
from tests.postgres import fresh_database, synchronous
from tests.retained.store.contract import NOW, clear, put
from tests.storage.doubles import Bench, fresh_file, result_of

A, B, C = (bytes([number] * 8) for number in (1, 2, 3))


@contextmanager
def opened(path: Path) -> Iterator[SQLRetainedStore]:
    """Open a store that records its changes."""
    bench = Bench(path)
    store = SQLRetainedStore(bench.store, recorder=GatheringRecorder(NO_RECORDER, SQLiteBulk(), most=1))
    bench.store.open()
    try:
        yield store
    finally:
        result_of(bench.store.close())


@contextmanager
def cursor_of(path: Path) -> Iterator[sqlite3.Cursor]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection.cursor()
        connection.commit()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return fresh_file(tmp_path)


def start(path: Path, epoch: bytes) -> None:
    with cursor_of(path) as cursor:
        begin(cursor, SQLITE, node=1, epoch=epoch, now=NOW)


def stop(path: Path) -> None:
    with cursor_of(path) as cursor:
        ended(cursor, SQLITE, 1)


def change(path: Path, *topics: str) -> None:
    with opened(path) as store:
        for topic in topics:
            put(store, topic, b"1")


def horizon(path: Path, epoch: bytes) -> Token:
    with cursor_of(path) as cursor:
        return token_now(cursor, SQLITE, epoch)


def good(path: Path, since: Token) -> bool:
    with cursor_of(path) as cursor:
        return is_good(cursor, SQLITE, since)


def changed(path: Path, since: Token, after: str = "", limit: int = 100) -> list[str]:
    with cursor_of(path) as cursor:
        return changed_topics(cursor, since.turn, after, limit)


def test_sets_and_clears_after_a_token_are_found_and_earlier_changes_are_not(path: Path) -> None:
    start(path, A)
    change(path, "before", "both")
    since = horizon(path, A)
    with opened(path) as store:
        put(store, "both", b"2")
        clear(store, "before")
        put(store, "after", b"1")
        put(store, "after", b"2")
    assert good(path, since)
    assert changed(path, since) == ["after", "before", "both"]
    assert changed(path, horizon(path, A)) == []


def test_an_expiry_is_found(path: Path) -> None:
    start(path, A)
    with opened(path) as store:
        put(store, "t", b"1", expires_at=NOW + 1)
        since = horizon(path, A)
        assert result_of(store.expire(NOW + 2, 10)) == ["t"]
    assert changed(path, since) == ["t"]


def test_changes_are_listed_in_parts_and_counted_up_to_a_number(path: Path) -> None:
    start(path, A)
    since = horizon(path, A)
    change(path, "c", "a", "b")
    assert changed(path, since, limit=2) == ["a", "b"]
    assert changed(path, since, "b", limit=2) == ["c"]
    with cursor_of(path) as cursor:
        assert [count_since(cursor, since.turn, most) for most in (2, 3, 4)] == [2, 3, 3]
        assert excess_turn(cursor, 3) is None
        assert excess_turn(cursor, 2) == 1


def test_a_time_gives_a_turn_before_all_later_changes(path: Path) -> None:
    """Even where a clock has stepped back. Too many changes, or a time before the mark, give none."""
    start(path, A)
    rows = [(1, "a", NOW), (2, "b", NOW + 10), (3, "c", NOW + 5), (4, "d", NOW + 20)]
    with cursor_of(path) as cursor:
        assert turn_before(cursor, NOW, 10) == 0
        cursor.executemany("INSERT INTO retained_changes (turn, topic, changed_at) VALUES (?, ?, ?)", rows)
        assert [turn_before(cursor, NOW + at, 10) for at in (-1, 0, 1, 6, 11, 21)] == [None, 0, 1, 1, 3, 4]
        assert [turn_before(cursor, NOW + 1, most) for most in (2, 3, 4)] == [None, None, 1]
        assert [time_of(cursor, turn) for turn in (0, 1, 3)] == [NOW, NOW, NOW + 5]


def test_a_token_outlasts_starts_without_changes_and_with_changes(path: Path) -> None:
    start(path, A)
    change(path, "a")
    since = horizon(path, A)
    stop(path)
    start(path, B)
    of_second = horizon(path, B)
    stop(path)
    start(path, C)
    change(path, "b")
    assert good(path, since)
    assert good(path, of_second)
    assert changed(path, since) == changed(path, of_second) == ["b"]


@pytest.mark.parametrize("stops", [False, True])
def test_after_a_killed_process_all_earlier_tokens_are_void(path: Path, stops: bool) -> None:
    """It may have sent a message that it had not committed: its clients, also those with an older token, are ahead."""
    start(path, A)
    change(path, "a")
    of_first = horizon(path, A)
    stop(path)
    start(path, B)
    of_killed = horizon(path, B)
    if stops:
        stop(path)
    start(path, C)
    assert good(path, of_first) is stops
    assert good(path, of_killed) is stops
    assert good(path, horizon(path, C))
    with cursor_of(path) as cursor:
        assert (turn_before(cursor, NOW - 1, 10) is None) or stops


def test_tokens_of_another_store_and_from_ahead_are_not_good(path: Path) -> None:
    start(path, A)
    change(path, "a")
    assert not good(path, Token(B, 1))
    assert not good(path, Token(A, 2))


def test_after_a_restored_backup_only_tokens_from_before_the_backup_are_good(path: Path, tmp_path: Path) -> None:
    """Also when the restored store has had as many changes since as were lost."""
    start(path, A)
    change(path, "a")
    before = horizon(path, A)
    stop(path)
    backup = tmp_path / "backup"
    shutil.copy(path, backup)
    start(path, C)
    change(path, "lost")
    after = horizon(path, C)
    shutil.copy(backup, path)
    start(path, B)
    assert good(path, before)
    assert not good(path, after)
    change(path, "b", "c", "d")
    assert good(path, before)
    assert not good(path, after)


def test_pruning_moves_the_mark_and_keeps_what_is_pinned_and_the_last_turn(path: Path) -> None:
    start(path, A)
    horizons = []
    for topic in "abcd":
        change(path, topic)
        horizons.append(horizon(path, A))
    late = NOW + 10**9
    with cursor_of(path) as cursor:
        assert prune(cursor, 0, 10) == 0
        assert prune(cursor, late, 1) == 1
        assert prune(cursor, late, 10, pinned=horizons[1].turn) == 1
        kept = read_kept(cursor)
        assert kept is not None
        assert kept.turn == horizons[1].turn
        assert is_good(cursor, SQLITE, horizons[1])
        assert not is_good(cursor, SQLITE, horizons[0])
        assert prune(cursor, late, 10) == 1
        assert prune(cursor, late, 10) == 0
    assert changed(path, horizons[2]) == ["d"]
    change(path, "e")
    assert changed(path, horizons[2]) == ["d", "e"]


def test_a_replay_that_never_ends_pins_no_more_than_the_most_changes(path: Path) -> None:
    """A Session whose client never comes back keeps old changes, but does not fill the disk."""
    start(path, A)
    horizons = []
    for topic in "abcdef":
        change(path, topic)
        horizons.append(horizon(path, A))
    pinned = horizons[1].turn
    with cursor_of(path) as cursor:
        assert excess_turn(cursor, 3) == horizons[2].turn
        assert prune(cursor, 0, 10, pinned, excess_turn(cursor, 3)) == 3
        assert not is_good(cursor, SQLITE, horizons[1])
        assert is_good(cursor, SQLITE, horizons[2])
        assert prune(cursor, NOW + 10**9, 10, horizons[2].turn, excess_turn(cursor, 3)) == 0
    assert changed(path, horizons[2]) == ["d", "e", "f"]


def test_no_token_is_good_from_a_time_without_recording_on(path: Path) -> None:
    start(path, A)
    since = horizon(path, A)
    with cursor_of(path) as cursor:
        end(cursor, SQLITE, 2)
    assert not good(path, since)
    change(path, "a")
    assert not good(path, horizon(path, A)), "node 2 does not record yet"
    with cursor_of(path) as cursor:
        begin(cursor, SQLITE, node=2, epoch=C, now=NOW)
    assert good(path, horizon(path, A))
    assert not good(path, since)


def test_on_postgres_a_horizon_is_below_every_transaction_that_has_not_ended() -> None:
    """What an earlier transaction commits after a later one comes after a token that was made between."""
    url = fresh_database()
    durable, _ = synchronous(url, 1)
    store = SQLRetainedStore(durable, recorder=AppendingRecorder(NO_RECORDER))
    durable.open()
    plain = url.replace("+psycopg", "")
    try:
        with psycopg.connect(plain) as slow, psycopg.connect(plain, autocommit=True) as reading:
            slow_cursor = slow.cursor()
            turn = slow_cursor.execute(POSTGRES.newest).fetchall()[0][0]
            put(store, "fast", b"1")
            horizon = reading.execute(POSTGRES.horizon).fetchall()[0][0]
            assert horizon < turn
            slow_cursor.execute("INSERT INTO retained_changes VALUES (%s, 'slow', %s)", (turn, NOW))
            slow.commit()
            after = reading.execute(POSTGRES.horizon).fetchall()[0][0]
            found = reading.execute(
                "SELECT topic FROM retained_changes WHERE turn > %s AND turn <= %s ORDER BY topic", (horizon, after)
            ).fetchall()
            assert found == [("fast",), ("slow",)]
            put(store, "late", b"1")
            assert reading.execute("SELECT topic FROM retained_changes WHERE turn > %s", (after,)).fetchall() == [
                ("late",)
            ]
            history = reading.execute(POSTGRES.history).fetchall()
            assert history == reading.execute(POSTGRES.history).fetchall()
            assert history[0][0].split("/")[0].isdigit()
    finally:
        result_of(durable.close())


def test_a_reader_that_is_no_node_finds_a_token_that_is_good(path: Path) -> None:
    """While a broker runs, and after its end: then changes of commands come again rather than not at all."""

    def token() -> Token | None:
        with cursor_of(path) as cursor:
            return last_token(cursor, SQLITE)

    assert token() is None
    start(path, A)
    change(path, "a")
    running = token()
    assert running is not None
    assert (running.epoch, changed(path, running)) == (A, [])
    change(path, "b")
    stop(path)
    change(path, "c")
    ended_then = token()
    assert ended_then is not None
    assert (ended_then.epoch, changed(path, ended_then)) == (A, ["c"])
    start(path, B)
    assert [good(path, one) for one in (running, ended_then)] == [True, True]
    assert token() == horizon(path, B)
    with cursor_of(path) as cursor:
        end(cursor, SQLITE, 2)
    assert token() is None
