"""Accepted transports: their time until CONNECT, the PROXY protocol, and the end of the broker."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IAddress
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory

from holdfast.core.connection_limits import ConnectionLimits, ProcessConnections, Refusal
from holdfast.identity.addresses import Peer, TrustedProxies
from holdfast.transports.acceptance import Acceptance
from holdfast.transports.protocol import SHORTEST_USER_TIMEOUT, USER_TIMEOUT, MQTTServerFactory, OpenConnections
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker


class Socket:
    """A socket that keeps its options, or refuses them if it is ``broken``."""

    def __init__(self, family: int = socket.AF_INET, broken: bool = False) -> None:
        self.family = family
        self.options: dict[int, int] = {}
        self._broken = broken

    def getsockopt(self, _level: int, option: int) -> int:
        return self.options.get(option, 7200)

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        if self._broken:
            raise OSError(92, "Protocol not available")
        self.options[option] = value


class Transport(StringTransport):
    """A TCP transport in memory. The test decides when it ends."""

    aborted = False
    dataBuffer = b""
    offset = 0
    _tempDataLen = 0

    def __init__(self, sock: Socket | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.socket = sock or Socket()

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def setTcpKeepAlive(self, enabled: bool) -> None: ...

    def abortConnection(self) -> None:
        self.aborted = True


class Unheard:
    """A Network Connection that ignores its transport."""

    def receive(self, data: bytes) -> None: ...

    def drained(self) -> None: ...

    def lost(self) -> None: ...


class Listener:
    """A factory whose transports are in memory."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.connections = OpenConnections(self.clock)
        build: Any = lambda _network: Unheard()  # noqa: E731
        acceptance = Acceptance(ConnectionLimits(), ProcessConnections(), self.clock, lambda *_: None)
        self.factory = MQTTServerFactory(build, self.connections, self.clock, acceptance)

    def accept(self) -> Any:
        protocol: Any = self.factory.buildProtocol(None)
        protocol.makeConnection(Transport())
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


# --- from accept to CONNECT

PROXY = IPv4Address("TCP", "127.0.0.1", 40000)
STRANGER = IPv4Address("TCP", "192.0.2.9", 40000)
HEADER = b"PROXY TCP4 192.0.2.1 192.0.2.9 5555 1883\r\n"
CONNECT = encode(p.Connect("c"), 4)
CONNACK = b"\x20\x02\0\0"


class Door:
    """A listener whose transports are in memory, and whose Network Connections are real."""

    def __init__(self, proxies: list[str] | None = None, **limits: Any) -> None:
        self.broker = MemoryBroker()
        self.refusals: list[tuple[Refusal, str]] = []
        self.acceptance = Acceptance(
            ConnectionLimits(**limits), ProcessConnections(), self.broker.clock, self._refused,
            None if proxies is None else TrustedProxies(proxies),
        )  # fmt: skip
        self.factory = MQTTServerFactory(
            lambda network: self.broker.connect(network, self.broker.limits, "test"),
            OpenConnections(self.broker.clock),
            self.broker.clock,
            self.acceptance,
        )

    def _refused(self, refusal: Refusal, peer: Peer) -> None:
        self.refusals.append((refusal, str(peer)))

    def accept(self, address: IAddress = PROXY) -> Any:
        protocol: Any = self.factory.buildProtocol(address)
        if protocol is not None:
            protocol.makeConnection(Transport())
        return protocol

    def send(self, protocol: Any, data: bytes) -> bytes:
        """Let the client send; return all that the broker has sent."""
        protocol.dataReceived(data)
        self.broker.settle()
        return bytes(protocol.transport.value())


@pytest.mark.parametrize("begun", [b"", b"PROXY TCP4 192.0", b"\r\n\r\n\0\r\nQUIT\n\x21", HEADER, HEADER + CONNECT[:5]])
def test_a_connection_that_does_not_finish_its_connect_is_closed_15_seconds_after_accept(begun: bytes) -> None:
    """Half a header of the PROXY protocol gets no more time than half a CONNECT."""
    door = Door(proxies=["127.0.0.1"])
    protocol = door.accept()
    door.broker.advance(10)
    door.send(protocol, begun)
    door.broker.advance(4.9)
    assert not protocol.transport.disconnecting
    door.broker.advance(0.2)
    assert protocol.transport.disconnecting
    assert door.broker.counters.connections_not_admitted_in_time == 1


def test_the_handshake_of_a_wrapper_such_as_tls_is_within_the_15_seconds() -> None:
    """Twisted's wrappers begin the wrapped protocol before they read anything."""

    class Handshake(ProtocolWrapper):
        def dataReceived(self, data: bytes) -> None:
            """Wait for the rest of a handshake that never comes."""

    door = Door()
    wrapping: Any = WrappingFactory(door.factory)
    wrapping.protocol = Handshake
    protocol = wrapping.buildProtocol(STRANGER)
    transport = Transport()
    protocol.makeConnection(transport)
    door.broker.advance(10)
    protocol.dataReceived(b"\x16\x03\x01")
    door.broker.advance(5.1)
    assert transport.disconnecting


def test_an_untrusted_proxy_is_closed_before_a_byte_is_read() -> None:
    door = Door(proxies=["127.0.0.1"])
    assert door.accept(STRANGER) is None
    assert door.refusals == [(Refusal.UNTRUSTED_PROXY, "192.0.2.9:40000")]


@pytest.mark.parametrize("cut", [1, 20, len(HEADER) - 1, len(HEADER)])
def test_the_client_of_a_proxy_is_served_after_the_header(cut: int) -> None:
    door = Door(proxies=["127.0.0.1"])
    protocol = door.accept()
    data = HEADER + CONNECT
    assert door.send(protocol, data[:cut]) == b""
    assert door.send(protocol, data[cut:]) == CONNACK
    assert door.acceptance.by_group == {"192.0.2.1": 1}
    assert not door.acceptance.half_open


@pytest.mark.parametrize("data", [CONNECT, b"PROXY NONSENSE\r\n" + CONNECT, b"GET / HTTP/1.1\r\n"])
def test_a_proxy_without_a_valid_header_is_aborted(data: bytes) -> None:
    door = Door(proxies=["127.0.0.1"])
    protocol = door.accept()
    assert door.send(protocol, data) == b""
    assert protocol.transport.aborted
    assert door.refusals == [(Refusal.BAD_PROXY_HEADER, "127.0.0.1:40000")]


def test_a_client_of_a_proxy_over_the_limits_is_aborted_before_its_connect_is_read() -> None:
    door = Door(proxies=["127.0.0.1"], max_connections_per_address=1)
    assert door.send(door.accept(), HEADER + CONNECT) == CONNACK
    second = door.accept()
    assert door.send(second, HEADER + CONNECT) == b""
    assert second.transport.aborted
    assert door.refusals == [(Refusal.CONNECTIONS_PER_ADDRESS, "192.0.2.1:5555")]
    assert door.broker.counters.connects == 1


def test_a_connection_over_the_limits_is_closed_at_once() -> None:
    door = Door(max_connections=1)
    first = door.accept(STRANGER)
    assert first is not None
    assert door.accept(STRANGER) is None
    first.connectionLost()
    assert door.accept(STRANGER) is not None


def test_a_connection_is_half_open_until_its_connect_is_accepted_or_it_ends() -> None:
    door = Door(max_half_open_per_address=1)
    first = door.accept(STRANGER)
    assert door.accept(STRANGER) is None
    assert door.send(first, CONNECT) == CONNACK
    second = door.accept(STRANGER)
    assert second is not None
    second.connectionLost()
    assert door.accept(STRANGER) is not None


# --- the kernel's patience


def user_timeout(sock: Socket) -> int | None:
    """Return the user timeout of a socket, in milliseconds."""
    return sock.options.get(socket.TCP_USER_TIMEOUT)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has the option")
@pytest.mark.parametrize(
    ("keep_alive", "seconds"), [(0, USER_TIMEOUT), (100, 150.0), (5, SHORTEST_USER_TIMEOUT), (65535, 98302.5)]
)
def test_the_kernel_gives_up_a_lost_client_when_the_broker_would(keep_alive: int, seconds: float) -> None:
    door = Door()
    sock = Socket(socket.AF_INET)
    protocol: Any = door.factory.buildProtocol(STRANGER)
    protocol.makeConnection(Transport(sock))
    assert user_timeout(sock) == USER_TIMEOUT * 1000
    protocol.dataReceived(encode(p.Connect("c", keep_alive=keep_alive), 4))
    door.broker.settle()
    assert user_timeout(sock) == seconds * 1000


@pytest.mark.parametrize("sock", [Socket(socket.AF_UNIX), Socket(socket.AF_INET, broken=True)])
def test_sockets_without_a_user_timeout_are_served_without_it(sock: Socket) -> None:
    door = Door()
    protocol: Any = door.factory.buildProtocol(STRANGER)
    protocol.makeConnection(Transport(sock))
    protocol.dataReceived(encode(p.Connect("c", keep_alive=100), 4))
    door.broker.settle()
    assert door.broker.registry.connection_count == 1
    assert user_timeout(sock) is None


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has the option")
def test_the_socket_below_a_wrapper_gets_the_user_timeout_too() -> None:
    door = Door()
    sock = Socket(socket.AF_INET)
    wrapping: Any = WrappingFactory(door.factory)
    wrapping.buildProtocol(STRANGER).makeConnection(Transport(sock))
    assert user_timeout(sock) == USER_TIMEOUT * 1000
