"""Of connections that are lost together, few are ended in one turn of the reactor."""

from __future__ import annotations

import select
import socket
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor

from holdfast.scheduling.patient_poller import MOST_LOST, MOST_STRANGERS, PatientPoller, be_patient


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
        events = [(number, select.EPOLLHUP) for number in range(MOST_LOST)]

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
