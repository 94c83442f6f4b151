"""In one turn of the reactor, all connected clients are served, few strangers, and few connections that are lost."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor

from holdfast.scheduling.reactor import MOST_LOST, MOST_STRANGERS, PatientPoller, be_patient


def test_clients_with_packets_are_served_beside_many_lost_ones() -> None:
    epoll = select.epoll()
    pairs = [socket.socketpair() for _ in range(3 * MOST_LOST)]
    poller = PatientPoller(epoll)
    try:
        for here, there in pairs:
            poller.register(here.fileno(), select.EPOLLIN)
            there.close()
        here, there = socket.socketpair()
        poller.register(here.fileno(), select.EPOLLIN)
        there.sendall(b"ping")
        ended = set()
        for _ in range(3):
            events = dict(poller.poll(0, 1000))
            assert events.pop(here.fileno()) == select.EPOLLIN
            assert len(events) == MOST_LOST
            for number in events:  # the reactor closes them
                poller.unregister(number)
            ended |= set(events)
        assert ended == {lost.fileno() for lost, _ in pairs}
        there.close()
    finally:
        for lost, _ in [*pairs, (here, there)]:
            lost.close()
        poller.close()


def test_clients_that_close_in_order_are_lost_ones_too_and_told_only_while_they_are_read() -> None:
    poller = PatientPoller(select.epoll())
    listener = socket.create_server(("127.0.0.1", 0))
    clients = [socket.create_connection(listener.getsockname()) for _ in range(MOST_LOST + 10)]
    served = [listener.accept()[0] for _ in clients]
    try:
        for one in served:
            poller.register(one.fileno(), select.EPOLLIN)
        for client in clients[1:]:
            client.close()
        clients[0].sendall(b"ping")
        for one in served:
            one.recv(1, socket.MSG_PEEK)  # waits until data or the end has come
        events = dict(poller.poll(1.0, 1000))
        assert events.pop(served[0].fileno()) == select.EPOLLIN
        assert len(events) == MOST_LOST
        assert all(event & select.EPOLLIN for event in events.values()), "the reactor reads them"
        for one in served:
            poller.modify(one.fileno(), select.EPOLLOUT)  # not read any more
        assert {event for _, event in poller.poll(1.0, 1000)} == {select.EPOLLOUT}
    finally:
        for one in [listener, *clients, *served]:
            one.close()
        poller.close()


def test_few_events_are_told_as_they_are() -> None:
    class Kernel:
        unregister = None

        def register(self, file: int, events: int) -> None: ...

        modify = register
        events = [(1000 + number, select.EPOLLHUP) for number in range(MOST_LOST)]

        def poll(self, _timeout: float, _most: int) -> list[tuple[int, int]]:
            return self.events

    assert PatientPoller(Kernel()).poll(1.0, 5) is Kernel.events


def test_the_usual_reactor_takes_the_poller_and_others_stay() -> None:
    usual: Any = EPollReactor()
    other: Any = SelectReactor()
    try:
        be_patient(usual)
        be_patient(other)
        assert isinstance(usual._poller, PatientPoller)
        reader, writer = socket.socketpair()
        heard: list[str] = []

        class Reader:
            def fileno(self) -> int:
                return reader.fileno()

            def doRead(self) -> None:
                heard.append(reader.recv(10).decode())

            def logPrefix(self) -> str:
                return "reader"

        usual.addReader(Reader())
        writer.sendall(b"a")
        usual.doPoll(1.0)
        assert heard == ["a"]
        usual.removeAll()
        reader.close()
        writer.close()
    finally:
        for reactor in (usual, other):
            reactor._uninstallHandler()
            for one in reactor._internalReaders:
                one.connectionLost(None)
        usual._poller.close()


class Room:
    """Sockets that a poller watches. The other ends are written to, or closed."""

    def __init__(self) -> None:
        self.poller = PatientPoller(select.epoll())
        self._sockets: list[socket.socket] = []

    def add(self, count: int) -> dict[int, socket.socket]:
        """Watch sockets; return the other end of each, by the number of its file."""
        others = {}
        for _ in range(count):
            here, there = socket.socketpair()
            self._sockets += here, there
            self.poller.register(here.fileno(), select.EPOLLIN)
            others[here.fileno()] = there
        return others

    def poll(self) -> list[int]:
        """Return the files that the poller tells of, strangers behind the others."""
        told = self.poller.poll(0, len(self._sockets))
        return [file for file, _ in told + self.poller.strangers()]

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        self.poller.close()


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.close()


def test_connected_clients_are_served_first_and_few_strangers_behind_them_in_turn(room: Room) -> None:
    """However many strangers have something to say, a turn is for all connected clients and 8 strangers."""
    known, strangers = room.add(20), room.add(5 * MOST_STRANGERS)
    for file in strangers:
        room.poller.let_wait(file, select.EPOLLIN)
        room.poller.let_wait(file, select.EPOLLIN)  # once more changes nothing
    for there in [*known.values(), *strangers.values()]:
        there.sendall(b"a")
    served: list[int] = []
    for _ in range(5):
        turn = room.poll()
        assert set(turn[:20]) == set(known)
        assert len(turn) == 20 + MOST_STRANGERS
        served += turn[20:]
    assert set(served) == set(strangers), "a stranger that has not been read stands behind the others"


def test_strangers_that_are_lost_are_ended_in_the_same_portions(room: Room) -> None:
    strangers = room.add(3 * MOST_STRANGERS)
    for file, there in strangers.items():
        room.poller.let_wait(file, select.EPOLLIN)
        there.close()
    ended: list[int] = []
    while turn := room.poll():
        assert len(turn) == MOST_STRANGERS
        for file in turn:  # the reactor closes them
            room.poller.unregister(file)
        ended += turn
    assert sorted(ended) == sorted(strangers)


def test_an_admitted_client_waits_no_more(room: Room) -> None:
    (admitted, there), *_ = strangers = list(room.add(3 * MOST_STRANGERS).items())
    for file, other in strangers:
        room.poller.let_wait(file, select.EPOLLIN)
        other.sendall(b"a")
    room.poller.wait_no_more(admitted, select.EPOLLIN)
    room.poller.wait_no_more(admitted, select.EPOLLIN)
    for _ in range(4):
        assert room.poll()[0] == admitted
    there.close()
    assert room.poll()[0] == admitted


def test_a_stranger_that_is_not_read_and_then_closed_leaves_nothing_behind(room: Room) -> None:
    """Its number may soon be that of another file, which is no stranger."""
    ((file, there),) = room.add(1).items()
    room.poller.let_wait(file, select.EPOLLIN)
    there.sendall(b"a")
    room.poller.modify(file, select.EPOLLOUT)
    assert room.poll() == [file]
    room.poller.unregister(file)
    assert room.poll() == []
    room.poller.register(file, select.EPOLLIN)
    strangers = room.add(3 * MOST_STRANGERS)
    for stranger, other in strangers.items():
        room.poller.let_wait(stranger, select.EPOLLIN)
        other.sendall(b"a")
    assert [turn[0] for turn in (room.poll(), room.poll(), room.poll())] == [file] * 3


def test_a_file_that_cannot_be_registered_is_no_stranger_later(room: Room) -> None:
    """The kernel may have no place for it. Its number may soon be that of another file."""
    ((file, there),) = room.add(1).items()
    room.poller.unregister(file)
    room.poller.expect(file)
    room.poller.register(file, select.EPOLLIN)
    room.poller.expect(file)
    with pytest.raises(FileExistsError):
        room.poller.register(file, select.EPOLLIN)
    room.poller._waiting_room.unregister(file)
    room.poller.register(file, select.EPOLLIN)
    there.sendall(b"a")
    for stranger, other in room.add(3 * MOST_STRANGERS).items():
        room.poller.let_wait(stranger, select.EPOLLIN)
        other.sendall(b"a")
    assert [turn[0] for turn in (room.poll(), room.poll(), room.poll())] == [file] * 3


def test_a_file_that_is_expected_waits_from_its_registration_on(room: Room) -> None:
    ((file, there),) = room.add(1).items()
    room.poller.unregister(file)
    room.poller.expect(file)
    room.poller.register(file, select.EPOLLIN)
    known = room.add(5)
    for other in [there, *known.values()]:
        other.sendall(b"a")
    assert room.poll()[-1] == file
    room.poller.wait_no_more(file, select.EPOLLIN)
    room.poller.let_wait(file, select.EPOLLIN)
    assert room.poll()[-1] == file
