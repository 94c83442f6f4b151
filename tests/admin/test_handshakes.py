"""Handshakes of the API take turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from OpenSSL import SSL
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from holdfast.admin.http.handshakes import TLSOfAPI, TurnsFactory
from holdfast.identity.addresses import Peer
from holdfast.transports.tls import explain, not_tls
from tests.certificates import SERVER, Authority


class _Echo(Protocol):
    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class _Connection:
    """A client of the factory, and the two ends of its connection."""

    def __init__(self, factory: TurnsFactory) -> None:
        self.protocol: Any = factory.buildProtocol(None)
        self.transport = StringTransport()
        self.protocol.makeConnection(self.transport)
        self.client = SSL.Connection(SSL.Context(SSL.TLS_METHOD), None)
        self.client.set_connect_state()
        self.shakes_hands()

    def shakes_hands(self) -> bool:
        """Do what the client can do now; return whether its handshake is over."""
        if self.transport.value():
            self.client.bio_write(self.transport.value())
            self.transport.clear()
        try:
            self.client.do_handshake()
        except SSL.WantReadError:
            return False
        return True

    def sends(self) -> None:
        self.protocol.dataReceived(self.client.bio_read(65536))


@pytest.fixture
def line() -> list[Any]:
    return []


@pytest.fixture
def made() -> list[SSL.Connection]:
    """OpenSSL's parts of the connections."""
    return []


@pytest.fixture
def failures() -> list[str]:
    """The causes of the handshakes that have failed."""
    return []


@pytest.fixture
def connect(
    tmp_path: Path, line: list[Any], made: list[SSL.Connection], failures: list[str]
) -> Callable[[], _Connection]:
    certificate, key = Authority().issue("broker", ["localhost"], SERVER).write(tmp_path, "broker")
    context = SSL.Context(SSL.TLS_METHOD)
    context.use_certificate_chain_file(str(certificate))
    context.use_privatekey_file(str(key))

    def make() -> SSL.Connection:
        made.append(SSL.Connection(context))
        made[-1].set_accept_state()
        return made[-1]

    def failed(_peer: Peer, cause: str) -> None:
        failures.append(cause)

    tls = TLSOfAPI(maker=lambda: make, line_up=line.append, not_tls=not_tls, explain=explain, failed=failed)
    factory = TurnsFactory(tls, Factory.forProtocol(_Echo))
    return lambda: _Connection(factory)


def test_a_handshake_waits_for_its_turn_and_its_client_is_not_read_meanwhile(
    connect: Callable[[], _Connection], line: list[Any]
) -> None:
    """A flood of handshakes costs nothing but places in the line: no step is taken outside of a turn."""
    flood = [connect() for _ in range(5)]
    for each in flood:
        each.sends()
    assert line == [each.protocol.step for each in flood]
    assert all(each.transport.value() == b"" for each in flood)
    assert all(each.transport.producerState == "paused" for each in flood)
    line.pop(0)()
    assert [each.transport.value() != b"" for each in flood] == [True, False, False, False, False]
    assert flood[0].transport.producerState == "producing"


def test_bytes_pass_without_turns_after_the_handshake(connect: Callable[[], _Connection], line: list[Any]) -> None:
    """Bytes in pieces during the handshake take one place in the line; later bytes take none."""
    connection = connect()
    hello = connection.client.bio_read(65536)
    connection.protocol.dataReceived(hello[:50])
    connection.protocol.dataReceived(hello[50:])
    assert len(line) == 1
    line.pop()()
    assert connection.shakes_hands()
    connection.client.send(b"first")
    connection.sends()
    line.pop()()
    connection.client.bio_write(connection.transport.value())
    assert connection.client.recv(100) == b"first"
    connection.transport.clear()
    connection.client.send(b"second")
    connection.sends()
    assert line == []
    connection.client.bio_write(connection.transport.value())
    assert connection.client.recv(100) == b"second"


def test_a_connection_that_is_lost_in_the_line_takes_no_step(
    connect: Callable[[], _Connection], line: list[Any]
) -> None:
    """A client that goes away while its handshake waits costs no signature, and breaks no turn."""
    connection = connect()
    connection.sends()
    connection.protocol.connectionLost(Failure(ConnectionLost()))
    connection.transport.clear()
    line.pop()()
    assert connection.transport.value() == b""
    assert connection.transport.producerState == "paused"


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks a protocol of plain text, such as HTTP"),
        (b"\x10\x0c\x00\x04MQTT", "it speaks MQTT without TLS"),
        (b"\x16\x03\x01\x00\x05" + bytes(200), None),
    ],
)
def test_bytes_that_are_not_tls_end_the_connection(
    connect: Callable[[], _Connection], line: list[Any], failures: list[str], first: bytes, cause: str | None
) -> None:
    """Plain HTTP at a port with TLS ends the connection with one cause for the log, and no error in others' turns."""
    connection = connect()
    connection.protocol.dataReceived(first)
    line.pop()()
    assert connection.transport.disconnecting or connection.transport.disconnected
    assert len(failures) == 1
    assert cause in (None, failures[0])
    connection.protocol.connectionLost(Failure(ConnectionLost()))
    assert len(failures) == 1


def test_silent_connections_cost_no_memory_of_openssl(
    connect: Callable[[], _Connection], line: list[Any], made: list[SSL.Connection], failures: list[str]
) -> None:
    """OpenSSL's part is made at the first byte; a connection that ends before is no failed handshake."""
    silent, speaking = connect(), connect()
    assert made == []
    silent.protocol.abortConnection()
    silent.protocol.connectionLost(Failure(ConnectionLost()))
    speaking.sends()
    line.pop()()
    assert len(made) == 1
    assert failures == []
