"""Several nodes on one database: after the kill of one, no token is good on any, until that has been noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import formatEvent

from holdfast.changes.log import POSTGRES, token_now
from holdfast.changes.nodes import Epochs, OtherNodes
from holdfast.changes.recording import AppendingRecorder
from holdfast.changes.since import ChangesSince
from holdfast.changes.tokens import Token, token_of
from holdfast.core.messages import ChangeOrigin
from holdfast.retained.store.interfaces import NO_RECORDER
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.database import Durability
from holdfast.storage.driver import Cursor
from holdfast.storage.postgres import DUMPERS, PostgresCursor
from holdfast.watch.log import LastingFailure
from tests.logs import logged
from tests.postgres import administer, drop, fresh_database, synchronous, wait_for_end
from tests.retained.store.contract import NOW, clear, put, selection
from tests.retained.store.slice_topics import topics_of
from tests.storage.doubles import result_of


class Node:
    """A process that stores which topics change."""

    def __init__(self, url: str, number: int, durability: Durability = Durability.PROCESS) -> None:
        self._url, self._number = url, number
        self.clock = Clock()
        self.durable, _ = synchronous(url, number, durability=durability, clock=self.clock)
        self.recorder = recorder = AppendingRecorder(NO_RECORDER)
        self.store = SQLRetainedStore(self.durable, recorder=recorder)
        self.epochs = Epochs(self.durable, lambda: NOW, recorded=True)
        self.durable.open()
        self.since = ChangesSince(
            self.store, self.epochs, recorder, clock=self.clock, now=lambda: NOW, keep=lambda: 10**9, most=1000
        )
        self.since.startService()

    def token(self) -> Token:
        """Make a token."""
        return token_of(self._answered(self.since.token()))

    def brings_changes(self, known: Token | int) -> bool:
        """Tell whether a token or a time brings the changes since it, and not everything."""
        return self._answered(self.since.since(known)).turn is not None

    def changed(self, known: Token) -> list[str]:
        """Return what a replay since a token brings."""
        found = self._answered(self.since.since(known))
        assert found.turn is not None
        source = self.since.source(found.turn, lambda: None)
        batch = self._answered(source.read(selection("#"), "", 1000, 1000, 1 << 20, False))
        return [topic for part in batch.slices for topic in topics_of(part, 4)]

    def _answered(self, deferred: Deferred[Any]) -> Any:
        """Return the result. A read whose connection is lost is tried again after a moment."""
        for _ in range(10):
            if not deferred.called:
                self.clock.advance(0.1)
        return result_of(deferred)

    def stored(self) -> list[str]:
        """Return the topics in the table."""

        def look(cursor: Cursor) -> list[str]:
            cursor.execute("SELECT DISTINCT topic FROM retained_changes ORDER BY topic")
            return [topic for (topic,) in cursor.fetchall()]

        return list(result_of(self.store.scan(look)))

    def kill(self) -> None:
        """End without a word, and wait until the server has noticed."""
        assert self.durable.parts is not None
        connection = self.durable.parts.writer._committer._connection
        assert connection is not None
        connection.close()
        self.durable.parts.readers.close()
        self.durable.parts.scanners.close()
        wait_for_end(self._url, self._number)

    def stop(self) -> None:
        """End in order."""
        self.since.stopService()
        result_of(self.durable.close())


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database with a schema."""
    url = fresh_database()
    yield url
    drop(url)


@contextmanager
def nodes(url: str) -> Iterator[tuple[Node, Node]]:
    """Two nodes; the first one is stopped at the end."""
    one, two = Node(url, 1), Node(url, 2)
    yield one, two
    one.stop()


def test_tokens_of_a_node_are_good_on_the_others_also_after_its_orderly_end(url: str) -> None:
    with nodes(url) as (one, two):
        put(one.store, "t", b"1")
        of_one, of_two = one.token(), two.token()
        assert two.brings_changes(of_one)
        assert one.brings_changes(of_two)
        two.stop()
        assert one.brings_changes(of_two)
        one.clock.advance(10)
        assert one.brings_changes(of_two)


def test_after_a_kill_no_earlier_token_is_good_on_any_node(url: str) -> None:
    """A client may know messages that the killed node never committed. Once noticed, new tokens are good."""
    with nodes(url) as (one, two):
        put(one.store, "t", b"1")
        of_one, of_two = one.token(), two.token()
        assert one.brings_changes(NOW)
        two.kill()
        between = one.token()
        assert [one.brings_changes(known) for known in (of_one, of_two, between, NOW)] == [False] * 4
        one.clock.advance(10)
        put(one.store, "t", b"2")
        assert [one.brings_changes(known) for known in (of_one, of_two, between)] == [False] * 3
        after = one.token()
        assert one.brings_changes(after)
        again = Node(url, 2)
        assert again.since.follows_kill
        assert not again.brings_changes(after)  # its start makes them void once more
        one.clock.advance(10)
        assert again.brings_changes(again.token())
        again.stop()


def test_a_node_that_was_cut_off_goes_on_with_new_tokens(url: str) -> None:
    """Another node took it for killed, so its earlier tokens are void."""
    with nodes(url) as (one, two):
        before, epoch = two.token(), two.epochs.epoch
        two.kill()
        one.clock.advance(10)
        durable, _ = synchronous(url, 2)
        store = SQLRetainedStore(durable)
        durable.open()
        after = result_of(store.ask_writer(lambda cursor: token_now(cursor, POSTGRES, two.epochs.present(cursor))))
        assert after.epoch == two.epochs.epoch != epoch
        assert result_of(store.ask_writer(two.epochs.present)) == after.epoch
        assert [one.brings_changes(known) for known in (before, after)] == [False, True]
        result_of(store.ask_writer(two.epochs.end))
        result_of(durable.close())


def cut_off(url: str) -> None:
    """End all connections, as a restart of the server does."""
    administer(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        f" WHERE datname = '{make_url(url).database}' AND pid <> pg_backend_pid()"
    )


def test_after_a_restart_of_the_server_no_running_node_is_said_to_have_ended(url: str) -> None:
    """The first one that is back finds the others missing until their next look. A killed one is told."""
    with nodes(url) as (one, two), logged(OtherNodes, LastingFailure) as lines:
        for _ in range(2):
            cut_off(url)
            for _ in range(2):  # the first look finds that the connection is lost
                one.clock.advance(10)
            for _ in range(6):
                two.clock.advance(10)
                one.clock.advance(10)
        assert [formatEvent(line) for line in lines if "ended without" in (formatEvent(line) or "")] == []
        two.kill()
        lines.clear()
        for _ in range(6):
            one.clock.advance(10)
        (line,) = lines
        assert (formatEvent(line) or "").startswith("nodes 2 have ended without a stop")


def test_a_node_that_is_alone_gathers_changes_and_appends_them_for_each_token(url: str) -> None:
    """So a transaction costs nothing more, and what a token knows does not come again."""
    one = Node(url, 1)
    put(one.store, "a", b"1")
    assert one.stored() == ["a"]
    one.clock.advance(10)
    put(one.store, "b", b"1")
    assert one.stored() == ["a"]
    first = one.token()
    assert one.stored() == ["a", "b"]
    put(one.store, "c", b"1")
    clear(one.store, "a")
    assert one.changed(first) == ["a", "c"]
    second = one.token()
    assert one.changed(second) == []
    put(one.store, "d", b"1")
    one.clock.advance(10)
    assert one.stored() == ["a", "b", "c", "d"]
    assert one.changed(second) == ["d"]
    one.stop()
    again = Node(url, 1)
    assert again.changed(second) == ["d"]
    again.stop()


def test_a_node_stops_gathering_when_another_one_comes(url: str) -> None:
    """Until then, the new one brings everything."""
    one = Node(url, 1)
    one.clock.advance(10)
    put(one.store, "a", b"1")
    known = one.token()
    put(one.store, "b", b"1")
    two = Node(url, 2)
    two.clock.advance(10)
    put(two.store, "c", b"1")
    assert not two.brings_changes(known)
    assert one.changed(known) == ["b", "c"]
    put(one.store, "d", b"1")
    one.clock.advance(10)
    put(one.store, "e", b"1")
    assert two.changed(known) == one.changed(known) == ["b", "c", "d", "e"]
    two.stop()
    one.clock.advance(10)
    put(one.store, "f", b"1")
    assert "f" not in one.stored()
    assert one.changed(known) == ["b", "c", "d", "e", "f"]
    one.stop()


def test_while_no_commit_succeeds_little_is_gathered_and_then_tokens_are_void(url: str) -> None:
    """However many topics the failed transactions had."""
    one = Node(url, 1)
    one.clock.advance(10)
    known = one.token()
    with cursor_of(url) as (connection, cursor):
        for number in range(40):
            one.recorder.record_stored(cursor, [f"{number}/{n}" for n in range(1000)], NOW, ChangeOrigin.PUBLISH)
            connection.rollback()
            assert len(one.recorder._gathered) <= 16 * 1024
    assert one.recorder.has_gathered
    assert not one.brings_changes(known)
    known = one.token()
    put(one.store, "t", b"1")
    assert one.changed(known) == ["t"]
    one.clock.advance(20)
    assert not one.recorder.has_gathered
    one.stop()


@contextmanager
def cursor_of(url: str) -> Iterator[tuple[psycopg.Connection[Any], Cursor]]:
    """Give a connection like the writer's, and its cursor."""
    with closing(psycopg.connect(url.replace("+psycopg", ""), cursor_factory=PostgresCursor)) as connection:
        for array, dumper in DUMPERS:
            connection.adapters.register_dumper(array, dumper)
        yield connection, connection.cursor()


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_failed_transaction_has_appended_is_appended_again(url: str, fails: bool) -> None:
    """Whether it was committed is looked up in the next transaction."""
    recorder = AppendingRecorder(NO_RECORDER)
    recorder.alone = True
    durable, _ = synchronous(url, 1)
    durable.open()
    with cursor_of(url) as (connection, cursor):
        recorder.record_stored(cursor, ["a", "b"], NOW, ChangeOrigin.PUBLISH)
        recorder.append_gathered(cursor)
        recorder.append_gathered(cursor)
        recorder.record_stored(cursor, ["c"], NOW, ChangeOrigin.PUBLISH)
        connection.rollback() if fails else connection.commit()
        assert recorder.has_gathered
        recorder.append_gathered(cursor)
        connection.commit()
        cursor.execute("SELECT topic FROM retained_changes ORDER BY topic")
        assert [topic for (topic,) in cursor.fetchall()] == ["a", "b", "c"]
        connection.commit()
        recorder.append_gathered(cursor)
        assert not recorder.has_gathered
    result_of(durable.close())
