"""The count of open connections, which the broker awaits when it stops."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from holdfast.protocol import MQTTServerFactory, OpenConnections


class Transport(StringTransport):
    """A TCP transport in memory. The test decides when it ends."""

    aborted = False

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def setTcpKeepAlive(self, enabled: bool) -> None: ...

    def abortConnection(self) -> None:
        self.aborted = True


class Unheard:
    """A Network Connection that ignores its transport."""

    def drained(self) -> None: ...

    def lost(self) -> None: ...


class Listener:
    """A factory whose transports are in memory."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.connections = OpenConnections(self.clock)
        build: Any = lambda _network: Unheard()  # noqa: E731
        self.factory = MQTTServerFactory(build, self.connections, self.clock)

    def accept(self) -> Any:
        protocol = self.factory.buildProtocol(None)
        protocol.makeConnection(Transport())  # type: ignore[no-untyped-call]
        return protocol

    def stop(self) -> list[None]:
        """Await the end of all connections for at most 2 seconds; return the results."""
        results: list[None] = []
        self.connections.all_closed(2.0).addCallback(results.append)
        return results


def test_without_connections_it_does_not_wait() -> None:
    assert Listener().stop() == [None]


def test_it_waits_until_the_last_connection_is_closed() -> None:
    listener = Listener()
    first, second, gone = listener.accept(), listener.accept(), listener.accept()
    gone.connectionLost()
    first.close(b"last")
    second.close(b"last")
    results = listener.stop()
    first.connectionLost()
    assert results == []
    second.connectionLost()
    assert results == [None]
    assert not listener.clock.getDelayedCalls()


def test_a_client_that_takes_nothing_is_awaited_for_a_limited_time() -> None:
    listener = Listener()
    slow = listener.accept()
    slow.close(b"last")
    results = listener.stop()
    listener.clock.advance(1.9)
    assert results == []
    listener.clock.advance(0.2)
    assert results == [None]
    slow.connectionLost()


def test_connections_without_a_client_are_aborted() -> None:
    listener = Listener()
    silent, closing = listener.accept(), listener.accept()
    closing.close(b"last")
    listener.stop()
    assert silent.transport.aborted
    assert not closing.transport.aborted


class Socket:
    """A socket that keeps its options."""

    def __init__(self, family: int) -> None:
        self.family = family
        self.options: dict[int, int] = {}

    def getsockopt(self, _level: int, option: int) -> int:
        return self.options.get(option, 7200)

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        self.options[option] = value


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
def test_the_system_watches_a_peer_that_is_not_read(family: int) -> None:
    """Otherwise the connection of a peer that is gone would live as long as the pause."""
    protocol = Listener().accept()
    protocol.transport.socket = Socket(family)
    protocol.transport.registerProducer = lambda *_: None
    protocol.pause()
    idle = protocol.transport.socket.options.get(socket.TCP_KEEPIDLE)
    assert idle == (None if family == socket.AF_UNIX else 60)
    assert protocol.transport.producerState == "paused"
    protocol.resume()
    assert set(protocol.transport.socket.options.values()) <= {7200}
    assert protocol.transport.producerState == "producing"
