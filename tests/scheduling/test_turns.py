"""One turn of the reactor: all connected clients are read, then each gets what is due to it in one piece."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionDone
from twisted.internet.main import CONNECTION_DONE
from twisted.logger import LogEvent

from holdfast.scheduling.reactor import Turns, be_patient, turns_of

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")


class Watched:
    """A socket that a reactor reads in its own way, or directly."""

    def __init__(self, reactor: Any, heard: list[str], name: str, on_read: Callable[[], None]) -> None:
        self.here, self.there = socket.socketpair()
        self.here.setblocking(False)
        self.name = name
        self.ends: list[object] = []
        self._on_read = on_read
        self._reactor = reactor
        self._heard = heard
        reactor.addReader(self)

    def fileno(self) -> int:
        return self.here.fileno()

    def logPrefix(self) -> str:
        return self.name

    def doRead(self) -> Exception | None:
        data = self.here.recv(100)
        self._on_read()
        self._heard.append(f"{self.name} {data.decode()}")
        return None if data else CONNECTION_DONE

    def read(self) -> Exception | None:
        return self.doRead()

    def readConnectionLost(self, reason: object) -> None:
        self.connectionLost(reason)

    def connectionLost(self, reason: Any) -> None:
        self.ends.append(reason.value)
        self._reactor.removeReader(self)


class Sending:
    """What is to be sent after all are read."""

    def __init__(self, heard: list[str]) -> None:
        self.due: list[Callable[[], None]] = []
        self.rests = False
        self._heard = heard

    def run(self) -> None:
        due, self.due = self.due, []
        self._heard.append(f"{len(due)} sent")
        for send in due:
            send()
        self.rests = bool(self.due)


class World:
    def __init__(self) -> None:
        self.reactor: Any = EPollReactor()
        be_patient(self.reactor)
        turns = turns_of(self.reactor)
        assert turns is not None
        self.turns: Turns = turns
        self.heard: list[str] = []
        self.sending = Sending(self.heard)
        turns.endings.append(self.sending)
        self.sockets: list[Watched] = []
        self.causes = False  # whether something is to be sent because of each that is read

    def add(self, name: str, direct: bool = False) -> Watched:
        made = Watched(self.reactor, self.heard, name, self._read)
        self.sockets.append(made)
        if direct:
            self.turns.readers[made.fileno()] = made
        return made

    def _read(self) -> None:
        if self.causes:
            self.sending.due.append(nothing)

    def turn(self) -> list[str]:
        """Take a turn that would wait for ever if nothing were due; return what happened."""
        before = len(self.heard)
        self.reactor.doIteration(None)
        return self.heard[before:]

    def close(self) -> None:
        self.reactor.removeAll()
        self.reactor._uninstallHandler()
        for one in self.reactor._internalReaders:
            one.connectionLost(None)
        for one in self.sockets:
            one.here.close()
            one.there.close()
        self.reactor._poller.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def nothing() -> None:
    """Send nothing."""


def test_what_is_to_be_sent_is_sent_once_when_all_are_read(world: World) -> None:
    for number in range(20):
        one = world.add(str(number), direct=number % 2 == 0)
        one.there.sendall(b"a")
    world.causes = True
    happened = world.turn()
    assert happened[-1] == "20 sent"
    assert sorted(happened[:-1]) == sorted(f"{number} a" for number in range(20))


def test_what_timed_calls_cause_is_sent_before_the_reactor_waits(world: World) -> None:
    one = world.add("one")
    world.sending.due.append(lambda: one.there.sendall(b"a"))
    assert world.turn() == ["1 sent", "one a"]


def test_a_reactor_that_ends_does_not_wait(world: World) -> None:
    """Then it calls for a turn with False, and no timed call may be left that would wake it."""
    world.sending.due.append(nothing)
    world.reactor.doIteration(False)
    assert world.heard == ["1 sent"]


def test_what_sending_causes_is_sent_in_the_next_turn_which_does_not_wait(world: World) -> None:
    """A replay sends a page in each turn, and everybody is read between two of them."""
    one = world.add("one")

    def send() -> None:
        world.sending.due.append(send)
        one.there.sendall(b"a")

    world.sending.due.append(send)
    assert world.turn() == ["1 sent", "one a", "1 sent"]
    for _ in range(3):
        assert world.turn() == ["one a", "1 sent"]


def test_strangers_are_read_when_the_others_have_been_sent_to(world: World) -> None:
    client, stranger = world.add("client", direct=True), world.add("stranger", direct=True)
    world.reactor._poller.let_wait(stranger.fileno(), select.EPOLLIN)
    for one in (stranger, client):
        one.there.sendall(b"a")
    world.causes = True
    assert world.turn() == ["client a", "1 sent", "stranger a", "1 sent"]


def test_what_sending_leaves_waits_for_the_clients_also_while_strangers_knock(world: World) -> None:
    client, stranger = world.add("client", direct=True), world.add("stranger", direct=True)
    world.reactor._poller.let_wait(stranger.fileno(), select.EPOLLIN)

    def send() -> None:
        world.sending.due.append(send)
        for one in (stranger, client):
            one.there.sendall(b"a")

    world.sending.due.append(send)
    assert world.turn() == ["1 sent", "client a", "1 sent", "stranger aa"]
    turns = [world.turn() for _ in range(4)]
    assert all([one for one in turn if one.endswith("sent")] == ["1 sent"] for turn in turns)
    assert any(one.startswith("stranger") for turn in turns for one in turn)


@pytest.mark.parametrize("direct", [True, False])
def test_the_end_of_a_connection_is_noticed(world: World, direct: bool) -> None:
    one = world.add("one", direct)
    one.there.shutdown(socket.SHUT_WR)
    world.turn()
    assert list(map(type, one.ends)) == [ConnectionDone]


def test_an_error_while_one_is_read_ends_that_one_only(world: World, logged_failures: list[LogEvent]) -> None:
    bad, good = world.add("bad"), world.add("good", direct=True)
    error = ValueError("unexpected")

    def fails() -> None:
        raise error

    bad.read = fails  # type: ignore[method-assign]
    world.turns.readers[bad.fileno()] = bad
    for one in (bad, good):
        one.there.sendall(b"a")
    assert world.turn() == ["good a"]
    assert bad.ends == [error]
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_one_that_is_ended_while_another_is_read_is_not_read_any_more(world: World) -> None:
    first, second = world.add("first"), world.add("second")

    def ends(other: Watched) -> Callable[[], None]:
        def read() -> None:
            world.heard.append("read")
            world.reactor.removeReader(other)

        return read

    first.doRead = ends(second)  # type: ignore[method-assign]
    second.doRead = ends(first)  # type: ignore[method-assign]
    for one in (first, second):
        one.there.sendall(b"a")
    assert world.turn() == ["read"]
