"""Clients that connect at once are admitted few in each turn of the reactor, and connected ones are served between."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from holdfast.core.connection_limits import ConnectionLimits, ProcessConnections
from holdfast.scheduling.reactor import MOST_STRANGERS, be_patient
from holdfast.transports.acceptance import Acceptance
from holdfast.transports.listening import MOST_ACCEPTS, Listener, Listening
from holdfast.transports.protocol import MQTTServerFactory, OpenConnections
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.processes import PATIENCE

CONNACK = b"\x20\x02\0\0"
PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"


class Door:
    """A listener of a reactor whose turns are the test's, and the clients that connect to it."""

    def __init__(self) -> None:
        self.reactor: Any = EPollReactor()
        be_patient(self.reactor)
        self.broker = MemoryBroker()
        self.acceptance = Acceptance(ConnectionLimits(), ProcessConnections(), self.broker.clock, lambda *_: None)
        factory = MQTTServerFactory(
            lambda network: self.broker.connect(network, self.broker.limits, "test"),
            OpenConnections(self.broker.clock),
            self.broker.clock,
            self.acceptance,
        )
        endpoint = "tcp:0:interface=127.0.0.1:backlog=100"
        (line,) = Listening(self.reactor, [Listener("door", endpoint, endpoint, factory, strangers=True)]).open()
        self._address = ("127.0.0.1", int(line.rsplit(":", 1)[1]))
        self._clients: list[socket.socket] = []

    def come(self, number: int) -> socket.socket:
        """Let a client connect and send CONNECT at once."""
        client = socket.create_connection(self._address, timeout=PATIENCE)
        client.setblocking(False)
        client.sendall(encode(p.Connect(f"c{number}"), 4))
        self._clients.append(client)
        return client

    def turn(self) -> None:
        self.reactor.doPoll(0)
        self.broker.settle()

    def close(self) -> None:
        for one in [*self.reactor.removeAll(), *self.reactor._internalReaders]:
            one.connectionLost(Failure(ConnectionDone()))
        for client in self._clients:
            client.close()
        self.reactor._uninstallHandler()
        self.reactor._poller.close()


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.close()


def answers(client: socket.socket) -> bytes:
    """Return what the broker has sent to the client."""
    try:
        return client.recv(100)
    except BlockingIOError:
        return b""


def test_each_turn_admits_few_of_the_clients_that_connect_at_once_and_answers_a_connected_one(door: Door) -> None:
    pinging = door.come(0)
    while answers(pinging) != CONNACK:
        door.turn()
    waiting = {door.come(number) for number in range(1, 60)}
    turns = 0
    while waiting:
        turns += 1
        pinging.sendall(PINGREQ)
        before = door.acceptance.open
        door.turn()
        assert answers(pinging) == PINGRESP
        assert door.acceptance.open - before <= MOST_ACCEPTS
        admitted = {client for client in waiting if answers(client) == CONNACK}
        assert len(admitted) <= MOST_STRANGERS
        waiting -= admitted
    assert turns >= 60 // MOST_STRANGERS


def test_an_admitted_client_is_served_before_those_that_are_not(door: Door) -> None:
    """Connections that never send a whole CONNECT do not hold up the others."""
    client = door.come(0)
    while answers(client) != CONNACK:
        door.turn()
    halves = [door.come(number) for number in range(1, 40)]
    while door.acceptance.open < 40:
        door.turn()
    for half in halves:
        half.sendall(PINGREQ)
    client.sendall(PINGREQ)
    door.turn()
    assert answers(client) == PINGRESP


class Counted:
    """An ``epoll`` object that notes its changes."""

    def __init__(self, epoll: Any, name: str, changes: list[str]) -> None:
        self._epoll = epoll
        self._name = name
        self._changes = changes

    def register(self, file: int, events: int) -> None:
        self._changes.append(f"register {self._name}")
        self._epoll.register(file, events)

    def modify(self, file: int, events: int) -> None:
        self._changes.append(f"modify {self._name}")
        self._epoll.modify(file, events)

    def unregister(self, file: int) -> None:
        self._changes.append(f"unregister {self._name}")
        self._epoll.unregister(file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)


def test_a_client_costs_the_kernel_three_changes_until_it_is_admitted(door: Door) -> None:
    """Its socket waits from the first moment on, and is moved once."""
    changes: list[str] = []
    poller = door.reactor._poller
    poller._epoll = Counted(poller._epoll, "clients", changes)
    poller._waiting_room = Counted(poller._waiting_room, "strangers", changes)
    client = door.come(0)
    while door.acceptance.open < 1:
        door.turn()
    assert changes == ["register strangers"]
    while answers(client) != CONNACK:
        door.turn()
    assert changes == ["register strangers", "unregister strangers", "register clients"]
