"""The bus in a real Postgres: the order of one origin, outages of the server, and the bounds of memory and rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import active_count, current_thread
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest

from holdfast.cluster import postgres_bus
from holdfast.cluster.postgres_bus import PostgresBus
from holdfast.storage.database import Durability
from holdfast.storage.maintenance import database_at
from holdfast.storage.postgres import PostgresDatabase
from tests.postgres import administer, drop, fresh_database, own_server, own_url, synchronous

#: seconds that a test waits at most for one call from a thread
PATIENCE = 4.0


@pytest.fixture
def url() -> Iterator[str]:
    """A database with a current schema."""
    made = fresh_database()
    yield made
    drop(made)


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, or nothing."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


class HandReactor:
    """A reactor whose turns the test runs. Its thread pool works at once."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self.later: deque[Callable[[], Any]] = deque()

    def callFromThread(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Keep a call for a turn."""
        self.calls.put(lambda: call(*arguments))

    def callLater(self, _seconds: float, call: Callable[[], Any]) -> None:
        """Keep a call for the next turn."""
        self.later.append(call)

    def getThreadPool(self) -> HandReactor:
        """Return the thread pool."""
        return self

    def callInThreadWithCallback(self, told: Callable[[bool, Any], None], work: Callable[[], Any]) -> None:
        """Do the work now."""
        told(True, work())

    def turn(self) -> None:
        """Make one call, or wait for one from a thread."""
        call = self.later.popleft() if self.later else self.calls.get(timeout=PATIENCE)
        call()


class End:
    """One end of the bus, with the datagrams that it got."""

    def __init__(self, url: str, node: int) -> None:
        database = database_at(url, Durability.FULL, node)
        assert isinstance(database, PostgresDatabase)
        self.reactor = HandReactor()
        self.bus = PostgresBus(database, node, self.reactor)
        self.got: list[bytes] = []

    def wait_for(self, number: int) -> list[bytes]:
        """Return the datagrams when there are so many."""
        while len(self.got) < number:
            self.reactor.turn()
        return self.got

    def stop(self) -> None:
        """Stop, and wait until both threads have ended."""
        stopped = self.bus.stop()
        while not stopped.called:
            self.reactor.turn()


@contextmanager
def ends(url: str, *nodes: int) -> Iterator[list[End]]:
    """Start the ends of these nodes."""
    made = [End(url, node) for node in nodes]
    for end in made:
        end.bus.start(end.got.append)
    try:
        yield made
    finally:
        for end in made:
            end.bus._over.set()  # so that all end together
        for end in made:
            end.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait until a thread has come so far."""
    end = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < end
        sleep(0.01)


def has_sent(end: End) -> bool:
    """Tell whether an end has tried to store all of its datagrams, with success or without."""
    return not end.bus._waiting


def connections(url: str) -> list[tuple[Any, ...]]:
    """Return the connections to this database, but the one that asks."""
    return ask(url, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")


def test_each_node_gets_its_datagrams_in_the_order_of_each_origin(url: str) -> None:
    """Once each, as they were sent; also empty ones, and those from a node to itself."""
    with ends(url, 1, 2, 3) as (one, two, three):
        for turn in range(1200):
            assert one.bus.send(2, b"1:%d" % turn)
            assert three.bus.send(2, b"3:%d" % turn)
        one.bus.send(3, bytes(range(256)) * 2000)
        one.bus.send(3, b"")
        one.bus.send(1, b"to itself")
        got = two.wait_for(2400)
        for origin in (b"1", b"3"):
            assert [each for each in got if each[:1] == origin] == [b"%s:%d" % (origin, turn) for turn in range(1200)]
        assert three.wait_for(2) == [bytes(range(256)) * 2000, b""]
        assert one.wait_for(1) == [b"to itself"]
        assert ask(url, "SELECT count(*) FROM cluster_runs") == [(0,)]


def test_what_was_sent_before_the_target_has_started_arrives(url: str) -> None:
    """It is stored, and nobody wakes the target."""
    with ends(url, 1) as (one,):
        one.bus.send(2, b"early")
        one.bus.send(1, b"is stored")
        one.wait_for(1)
        with ends(url, 2) as (two,):
            assert two.wait_for(1) == [b"early"]


def test_both_ends_go_on_when_their_connections_are_cut(url: str) -> None:
    """Each opens another one. A datagram that was sent when the connection was lost may be missing."""
    with ends(url, 1, 2) as (one, two):
        one.bus.send(2, b"before")
        two.bus.send(1, b"before")
        assert (one.wait_for(1), two.wait_for(1)) == ([b"before"], [b"before"])
        for (pid,) in connections(url):
            administer(f"SELECT pg_terminate_backend({pid}, 4000)")
        for origin, node in ((one, 2), (two, 1)):
            origin.bus.send(node, b"lost, or not")
            until(partial(has_sent, origin))
            origin.bus.send(node, b"after")
        for target in (one, two):
            while target.got[-1] != b"after":
                target.reactor.turn()
            assert target.got in ([b"before", b"after"], [b"before", b"lost, or not", b"after"])


def test_both_ends_go_on_when_the_server_was_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile datagrams wait in memory. At most those of the first try are missing, and no order changes."""
    tries: list[tuple[PostgresDatabase, str]] = []
    opened = PostgresDatabase.open_connection

    def open_connection(database: PostgresDatabase) -> psycopg.Connection[Any]:
        tries.append((database, current_thread().name))
        return opened(database)

    monkeypatch.setattr(PostgresDatabase, "open_connection", open_connection)
    with own_server(tmp_path) as server:
        url = own_url(server)
        store, _ = synchronous(url)
        store.open()
        store.close()
        with ends(url, 1, 2) as (one, two):
            one.bus.send(2, b"before")
            two.wait_for(1)
            server.stop()
            tries.clear()
            assert one.bus.send(2, b"lost, or not")
            until(lambda: (one.bus._database, "holdfast-bus-sending") in tries)
            numbers = [b"%d" % turn for turn in range(100)]
            for number in numbers:
                assert one.bus.send(2, number)
            server.start()
            got = two.wait_for(101)
            if b"lost, or not" in got:
                got = two.wait_for(102)
            assert got in ([b"before", *numbers], [b"before", b"lost, or not", *numbers])


def test_an_error_of_the_receiver_holds_up_no_later_datagram(url: str, logged_failures: list[Any]) -> None:
    """It is logged. Else the node would hear nobody any more."""
    with ends(url, 1) as (one,):
        end = End(url, 2)

        def receive(datagram: bytes) -> None:
            if datagram == b"bad":
                raise ValueError("a mistake")
            end.got.append(datagram)

        for datagram in (b"a", b"bad", b"b", b"c", b"d", b"e", b"f"):
            one.bus.send(2, datagram)
        end.bus.start(receive)
        try:
            assert end.wait_for(6) == [b"a", b"b", b"c", b"d", b"e", b"f"]
            one.bus.send(2, b"later")
            end.wait_for(7)
        finally:
            end.stop()
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_no_more_than_the_bound_waits_in_memory(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the database is away. The datagram that finds no room is refused; one that fits is taken."""
    monkeypatch.setattr(postgres_bus, "_MOST_WAITING", 10_000)
    end = End(url, 1)
    assert [end.bus.send(2, bytes(3000)) for _ in range(4)] == [True, True, True, False]
    assert [end.bus.send(2, bytes(1000)), end.bus.send(3, b"x")] == [True, False]
    end.bus.start(end.got.append)
    try:
        until(lambda: end.bus.send(1, b"room again"))
        assert end.wait_for(1) == [b"room again"]
    finally:
        end.stop()
    assert ask(url, "SELECT count(*), sum(length(data)) FROM cluster_runs") == [(4, 10_000)]


def test_a_node_that_takes_nothing_has_no_more_rows_than_the_bound(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of datagrams that came faster than the looks. Others go on, and so does the node when it takes its rows."""
    for name, value in (("_MOST_STORED", 64_000), ("_AT_ONCE", 1000), ("_UNSEEN", 8000)):
        monkeypatch.setattr(postgres_bus, name, value)
    one = End(url, 1)
    for _ in range(200):
        assert one.bus.send(2, bytes(1000))
    one.bus.send(1, b"to itself")
    one.bus.start(one.got.append)
    try:
        assert one.wait_for(1) == [b"to itself"]
        ((stored,),) = ask(url, "SELECT sum(length(data)) FROM cluster_runs WHERE target = 2")
        assert 64_000 < stored <= 64_000 + 8000 + 3 * 1000
        assert not one.bus.send(2, b"refused")
        monkeypatch.setattr(postgres_bus, "_LOOKS", 0.0)
        with ends(url, 2) as (two,):
            two.wait_for(stored // 1000)
            until(lambda: one.bus.send(2, b"room again"))
            assert two.wait_for(stored // 1000 + 1)[-1] == b"room again"
    finally:
        one.stop()


def test_a_node_that_is_busy_leaves_the_rest_in_the_database(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There the bound of its rows counts them. It takes the rest in order, and stops with or without it."""
    monkeypatch.setattr(postgres_bus, "_TAKEN", 10)
    monkeypatch.setattr(postgres_bus, "_MOST_ARRIVED", 5000)
    sent = [b"%03d" % turn + bytes(97) for turn in range(500)]
    threads = active_count()
    with ends(url, 1, 2) as (one, two):
        for datagram in sent:
            one.bus.send(2, datagram)
        until(lambda: has_sent(one) and two.bus._unhandled > 5000)
        assert ask(url, "SELECT count(*) FROM cluster_runs") >= [(440,)]
        assert two.wait_for(500) == sent
        for datagram in sent:
            one.bus.send(2, datagram)
        until(lambda: has_sent(one) and two.bus._unhandled > 5000)
    assert active_count() == threads


def test_a_stopped_bus_has_no_threads_and_hands_nothing_over(url: str) -> None:
    """The store closes next, and its connections are closed too."""
    before = active_count()
    with ends(url, 1, 2) as (one, two):
        one.bus.send(2, b"a")
        two.wait_for(1)
        two.stop()
        one.bus.send(2, b"b")
        one.bus.send(1, b"is stored")
        one.wait_for(1)
    assert two.got == [b"a"]
    assert active_count() == before
    assert connections(url) == []
    End(url, 3).stop()  # it has never started
