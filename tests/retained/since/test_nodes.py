"""Several nodes on one database: after the kill of one, no token is good on any, until that has been noticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from twisted.internet.task import Clock

from holdfast.retained.since.horizon import Horizon, horizon_of
from holdfast.retained.since.recording import AppendingRecorder
from holdfast.retained.since.since import ChangesSince, Epochs
from holdfast.retained.since.stored import horizon_now
from holdfast.retained.since.turns import POSTGRES
from holdfast.retained.store.recorder import NO_RECORDER
from holdfast.retained.store.sql import SQLRetainedStore
from tests.postgres import drop, fresh_database, synchronous
from tests.retained.store.contract import NOW, put
from tests.storage.doubles import result_of


class Node:
    """A process that stores which topics change."""

    def __init__(self, url: str, number: int) -> None:
        self.clock = Clock()
        self.durable, _ = synchronous(url, number)
        recorder = AppendingRecorder(NO_RECORDER)
        self.store = SQLRetainedStore(self.durable, recorder=recorder)
        self.epochs = Epochs(self.durable, lambda: NOW, recorded=True)
        self.durable.open()
        self.since = ChangesSince(
            self.store, self.epochs, recorder, clock=self.clock, now=lambda: NOW, keep=lambda: 10**9, most=1000
        )
        self.since.startService()

    def token(self) -> Horizon:
        """Make a token."""
        return horizon_of(result_of(self.since.token()))

    def brings_changes(self, known: Horizon) -> bool:
        """Tell whether a token brings the changes since it, and not everything."""
        return result_of(self.since.since(known)).turn is not None

    def kill(self) -> None:
        """End without a word."""
        assert self.durable.parts is not None
        connection = self.durable.parts.writer._committer._connection
        assert connection is not None
        connection.close()
        self.durable.parts.readers.close()
        self.durable.parts.scanners.close()

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
        two.kill()
        between = one.token()
        assert [one.brings_changes(known) for known in (of_one, of_two, between)] == [False] * 3
        one.clock.advance(10)
        put(one.store, "t", b"2")
        assert [one.brings_changes(known) for known in (of_one, of_two, between)] == [False] * 3
        after = one.token()
        assert one.brings_changes(after)
        again = Node(url, 2)
        assert again.since.follows_kill
        assert not again.brings_changes(after)  # its start makes them void once more
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
        after = result_of(store.ask_writer(lambda cursor: horizon_now(cursor, POSTGRES, two.epochs.present(cursor))))
        assert after.epoch == two.epochs.epoch != epoch
        assert result_of(store.ask_writer(two.epochs.present)) == after.epoch
        assert [one.brings_changes(known) for known in (before, after)] == [False, True]
        result_of(store.ask_writer(two.epochs.end))
        result_of(durable.close())
