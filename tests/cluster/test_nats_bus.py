"""The client of NATS and the bus without a server: logins, silence, slow servers, and datagrams in parts."""

from __future__ import annotations

import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, formatEvent
from twisted.python.failure import Failure

from holdfast.cluster import nats_client
from holdfast.cluster.nats import token
from holdfast.cluster.nats_bus import LARGEST, NatsBus
from holdfast.cluster.nats_settings import NatsSettings
from holdfast.cluster.sealing import Sealer
from holdfast.config.sections.cluster import NatsServer, nats_servers
from tests.logs import logged

_SECRET = b"0123456789abcdef" * 2
_INFO = b'INFO {"max_payload":1048576}\r\n'


def _lines(events: list[LogEvent]) -> str:
    return "\n".join(formatEvent(event) for event in events)


class Transport(StringTransport):
    """A transport that can be aborted, and says so to its protocol when the test wants it."""

    def __init__(self, protocol: Any) -> None:
        cast("Any", super()).__init__()
        self.protocol = protocol
        self.aborted = False
        self.tls: object = None

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass

    def abortConnection(self) -> None:
        self.aborted = True

    def startTLS(self, context: object) -> None:
        self.tls = context

    def sent(self) -> bytes:
        """Return all that was sent."""
        found: bytes = cast("Any", self).value()
        return found

    def take(self) -> bytes:
        """Return what was sent since the last call."""
        found = self.sent()
        cast("Any", self).clear()
        return found

    def lose(self) -> None:
        self.protocol.connectionLost(Failure(ConnectionDone()))


class Bench:
    """A bus of node 2, and the connections that it opens."""

    def __init__(self, bus: str = "nats://a,nats://b", node: int = 2) -> None:
        self.clock = Clock()
        self.opened: list[tuple[NatsServer, Transport]] = []
        self.refuses = False
        self.got: list[bytes] = []
        settings = NatsSettings(nats_servers(bus), "plant", _SECRET)
        self.bus = NatsBus(settings, node, 7, self.clock, connect=self._connect)
        self.bus.start(self.got.append)

    def _connect(self, server: NatsServer, factory: Any) -> Deferred[Any]:
        if self.refuses:
            return fail(ConnectionRefusedError())
        protocol = factory.buildProtocol(None)
        transport = Transport(protocol)
        self.opened.append((server, transport))
        opened: Deferred[Any] = Deferred()
        protocol.makeConnection(transport)
        opened.callback(protocol)
        return opened

    @property
    def transport(self) -> Transport:
        return self.opened[-1][1]

    def say(self, data: bytes) -> None:
        self.transport.protocol.dataReceived(data)
        self.clock.advance(0)

    def log_in(self) -> bytes:
        self.say(_INFO)
        greeting = self.transport.take()
        self.say(b"PONG\r\n")
        return greeting

    def message(self, payload: bytes) -> bytes:
        return b"MSG holdfast.plant.2 1 %d\r\n%b\r\n" % (len(payload), payload)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("bus", "expected"),
    [
        ("nats://a", []),
        ("nats://me:s%40cret@a", [b'"user":"me"', b'"pass":"s@cret"']),
        ("nats://t0ken@a", [b'"auth_token":"t0ken"']),
    ],
)
def test_it_logs_in_and_subscribes_to_its_own_subject(bus: str, expected: list[bytes]) -> None:
    """It is connected when the server has answered its PING."""
    bench = Bench(bus)
    bench.say(_INFO)
    greeting = bench.transport.take()
    assert greeting.startswith(b'CONNECT {"verbose":false,')
    assert greeting.endswith(b"\r\nSUB holdfast.plant.2 1\r\nPING\r\n")
    assert all(each in greeting for each in expected)
    assert (b'"user"' in greeting or b"auth_token" in greeting) is bool(expected)
    assert not bench.bus.is_connected
    assert not bench.bus.send(1, b"hello")
    bench.say(b"PONG\r\n")
    assert bench.bus.is_connected
    assert bench.bus.send(1, b"hello")


def test_it_answers_the_server(bench: Bench) -> None:
    """A PING with a PONG."""
    bench.log_in()
    bench.say(b"PING\r\n")
    assert bench.transport.take() == b"PONG\r\n"


def test_a_server_that_does_not_answer_twice_is_down(bench: Bench) -> None:
    """The third PING is due after 3 s; then another server is tried."""
    bench.log_in()
    for _ in range(5):
        bench.clock.advance(1.0)
        assert bench.transport.take() == b"PING\r\n"
        bench.say(b"PONG\r\n")
    bench.clock.pump([1.0, 1.0])
    assert not bench.transport.aborted
    bench.clock.advance(1.0)
    assert bench.transport.aborted
    assert not bench.bus.send(1, b"hello")
    first, _ = bench.opened[-1]
    bench.transport.lose()
    bench.clock.advance(0.1)
    assert bench.opened[-1][0] != first
    assert bench.bus.losses == 1


def test_a_server_that_does_not_read_for_two_seconds_is_down(bench: Bench) -> None:
    """What has no room meanwhile is refused."""
    bench.log_in()
    connection = bench.transport.protocol
    connection.pauseProducing()
    assert bench.bus.send(1, b"x" * 1000)
    bench.clock.advance(1.0)
    bench.say(b"PONG\r\n")
    connection.resumeProducing()
    bench.clock.advance(1.0)
    bench.say(b"PONG\r\n")
    connection.pauseProducing()
    taken = 0
    while bench.bus.send(1, b"x" * 200_000):
        taken += 200_000
    assert nats_client.MOST_WAITING - 300_000 < taken <= nats_client.MOST_WAITING
    assert bench.bus.unsent == 1
    bench.clock.advance(1.0)
    bench.say(b"PONG\r\n")
    assert not bench.transport.aborted
    bench.clock.advance(1.0)
    assert bench.transport.aborted


def test_a_server_that_never_speaks_is_left() -> None:
    """After four seconds."""
    bench = Bench("nats://a")
    bench.clock.advance(3.9)
    assert not bench.transport.aborted
    with logged() as events:
        bench.clock.advance(0.2)
        bench.transport.lose()
    assert bench.transport.aborted
    assert "NATS at a:4222: no login within 4 s; the broker tries again" in _lines(events)


def test_each_server_is_tried_at_once_and_then_more_slowly() -> None:
    """With a random part, at most each 2 s; each reason is logged once."""
    bench = Bench("nats://a,nats://b,nats://c")
    tried: list[float] = []
    connect = bench.bus._client._connect

    def note(server: NatsServer, factory: Any) -> Deferred[Any]:
        tried.append(bench.clock.seconds())
        return connect(server, factory)

    bench.bus._client._connect = note
    bench.refuses = True
    with logged() as events:
        bench.transport.lose()
        bench.clock.pump([0.01] * 3000)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert tried[1] < 0.2
    assert all(0.9 < pause < 2.1 for pause in pauses[-5:])
    assert len({round(pause, 2) for pause in pauses[-8:]}) > 1
    assert _lines(events).count("Connection was refused") == 3


def test_a_server_that_ends_each_connection_is_not_tried_faster() -> None:
    """Nor is it logged more than once, until a connection has lasted for five seconds."""
    bench = Bench("nats://a")
    with logged() as events:
        for _ in range(20):
            bench.log_in()
            bench.transport.lose()
            bench.clock.pump([0.1] * 21)
        assert len(bench.opened) == 21
        assert _lines(events).count("connected to NATS at a:4222") == 1
        assert len(events) == 2
        bench.log_in()
        for _ in range(6):
            bench.clock.advance(1.0)
            bench.say(b"PONG\r\n")
        bench.transport.lose()
        bench.clock.advance(0.06)
        assert len(bench.opened) == 22
        bench.log_in()
    assert _lines(events).count("connected to NATS at a:4222") == 2


def test_stopping_during_the_login(bench: Bench) -> None:
    """The connection ends, whatever the server still says."""
    bench.say(_INFO)
    done: list[None] = []
    bench.bus.stop().addCallback(done.append)
    bench.say(b"PONG\r\n")
    assert not bench.bus.is_connected
    bench.clock.advance(1.0)
    assert bench.transport.aborted
    bench.transport.lose()
    assert done == [None]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"-ERR 'Authorization Violation'\r\n", "the server says: Authorization Violation"),
        (b"HTTP/1.0 400\r\n", "no line of NATS"),
        (b'INFO {"max_payload":100}\r\n', "max_payload of the server is 100; allow 1024 or more"),
    ],
)
def test_what_a_server_refuses_is_told(bench: Bench, said: bytes, why: str) -> None:
    """With the server, and the reason."""
    with logged() as events:
        bench.say(said)
        assert bench.transport.aborted
        bench.transport.lose()
    assert why in _lines(events)
    assert bench.opened[-1][0].host in _lines(events)


def test_a_missing_permission_is_told(bench: Bench) -> None:
    """The connection stays."""
    bench.log_in()
    with logged() as events:
        bench.say(b"-ERR 'Permissions Violation for Publish to \"holdfast.plant.1\"'\r\n" * 3)
    assert _lines(events).count("allow the login to publish and to subscribe to holdfast.plant.>") == 1
    assert bench.bus.is_connected


def test_a_password_is_not_sent_without_the_tls_that_was_wanted() -> None:
    """Neither to a server without TLS, nor to one that sends more than INFO before TLS."""
    for said in (_INFO, b'INFO {"tls_required":true}\r\nPING\r\n'):
        bench = Bench("tls://me:secret@a")
        bench.say(said)
        assert bench.transport.aborted
        assert bench.transport.sent() == b""
    bench = Bench("tls://me:secret@a")
    bench.say(b'INFO {"tls_available":true}\r\n')
    assert bench.transport.tls is not None


def test_it_learns_other_servers(bench: Bench) -> None:
    """A bounded number; those that cannot be servers are left out, and IP addresses where certificates have names."""
    urls = ["10.0.0.3:4222", "a:4222", "[::1]:4333", "nonsense", ":1", "x:0", "x:99999999"]
    bench.say(b'INFO {"connect_urls":%b}\r\n' % str(urls).replace("'", '"').encode())
    assert sorted(map(str, bench.bus._client._servers)) == ["10.0.0.3:4222", "[::1]:4333", "a:4222", "b:4222"]
    bench.say(b'INFO {"connect_urls":[%b]}\r\n' % b",".join(b'"n%d:1"' % number for number in range(100)))
    assert len(bench.bus._client._servers) == 34
    secure = Bench("tls://a")
    secure.say(b'INFO {"tls_required":true,"connect_urls":["10.0.0.3:4222","c:4222"]}\r\n')
    assert sorted(map(str, secure.bus._client._servers)) == ["a:4222", "c:4222"]


def test_a_server_that_leaves_is_left(bench: Bench) -> None:
    """Before it stops."""
    bench.log_in()
    bench.say(b'INFO {"ldm":true}\r\n')
    assert bench.transport.aborted


def test_stopping_closes_the_connection(bench: Bench) -> None:
    """After what was sent; and no server is tried any more."""
    bench.log_in()
    done: list[None] = []
    bench.bus.stop().addCallback(done.append)
    assert bench.transport.disconnecting
    assert done == []
    bench.transport.lose()
    assert done == [None]
    bench.clock.pump([1.0] * 10)
    assert len(bench.opened) == 1


def _carried(sender: Bench, receiver: Bench) -> None:
    """Let a server carry what the sender has sent."""
    for _ in range(100):
        sender.clock.advance(0)
    sent = sender.transport.take()
    while sent:
        line, _, sent = sent.partition(b"\r\n")
        word, subject, size = line.split()
        assert (word, subject) == (b"PUB", b"holdfast.plant.2")
        payload, sent = sent[: int(size)], sent[int(size) + 2 :]
        receiver.say(receiver.message(payload))
    for _ in range(100):
        receiver.clock.advance(0)


@given(st.lists(st.integers(0, 5000), max_size=8))
def test_datagrams_arrive_whole_and_in_order(sizes: list[int]) -> None:
    """Whatever a server takes at once."""
    sender, receiver = Bench(node=1), Bench()
    receiver.log_in()
    sender.say(b'INFO {"max_payload":1024}\r\n')
    sender.transport.take()
    sender.say(b"PONG\r\n")
    datagrams = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert all(sender.bus.send(2, datagram) for datagram in datagrams)
    _carried(sender, receiver)
    assert receiver.got == datagrams


def test_a_large_datagram_takes_several_turns(bench: Bench) -> None:
    """Small ones behind it keep their place; more than the bus takes is refused."""
    sender = Bench(node=1)
    bench.log_in()
    sender.log_in()
    large = bytes(range(256)) * 20_000
    assert sender.bus.send(2, large)
    assert sender.bus.send(2, b"small")
    assert len(sender.transport.sent()) < 2_000_000
    _carried(sender, bench)
    assert bench.got == [large, b"small"]
    assert not sender.bus.send(2, b"x" * (LARGEST + 1))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)), max_size=20))
def test_parts_in_any_order_make_no_other_datagram(parts: list[tuple[int, int, int]]) -> None:
    """Neither do parts whose sizes do not fit; nothing raises."""
    receiver = Bench()
    receiver.log_in()
    sealer = Sealer(_SECRET, "plant", 1, 7)
    for datagram, number, size in parts:
        head = b"\x01" + b"".join(value.to_bytes(4, "big") for value in (datagram, number, size))
        receiver.say(receiver.message(sealer.seal(2, head + bytes([datagram]) * 3)))
    assert all(each == bytes([each[0]]) * len(each) and len(each) % 3 == 0 for each in receiver.got)
    receiver.got.clear()
    receiver.say(receiver.message(sealer.seal(2, b"\x01short")))
    receiver.say(receiver.message(sealer.seal(2, b"\0whole")))
    assert receiver.got == [b"whole"]


def test_what_is_not_of_a_member_is_counted(bench: Bench) -> None:
    """And dropped, as are those of another cluster."""
    bench.log_in()
    bench.say(bench.message(b"anything"))
    bench.say(bench.message(Sealer(_SECRET, "other", 1, 7).seal(2, b"\0hello")))
    sealed = bench.message(Sealer(_SECRET, "plant", 1, 7).seal(2, b"\0hello"))
    bench.say(sealed * 2)
    assert bench.got == [b"hello"]
    assert bench.bus.refused == {"unknown": 2, "old": 0, "repeated": 1, "too_large": 0, "incomplete": 0}


def test_a_flood_stops_reading_for_a_while(bench: Bench) -> None:
    """Its bytes are bounded; all of it is opened in the end, and no PONG is missed meanwhile."""
    bench.log_in()
    sealer = Sealer(_SECRET, "plant", 1, 7)
    for _ in range(12):
        bench.transport.protocol.dataReceived(bench.message(sealer.seal(2, b"\0" + b"x" * 200_000)))
    assert bench.transport.producerState == "paused"
    for _ in range(100):
        bench.clock.advance(0)
    assert bench.transport.producerState == "producing"
    assert len(bench.got) == 12


def test_a_failure_with_one_datagram_does_not_keep_the_others(bench: Bench, logged_failures: list[LogEvent]) -> None:
    """It is logged."""
    bench.log_in()
    got: list[bytes] = []

    def take(datagram: bytes) -> None:
        if datagram == b"bad":
            raise ZeroDivisionError
        got.append(datagram)

    bench.bus._received = take
    sealer = Sealer(_SECRET, "plant", 1, 7)
    with logged() as events:
        for datagram in (b"bad", b"good"):
            bench.say(bench.message(sealer.seal(2, b"\0" + datagram)))
    assert got == [b"good"]
    assert "could not be taken" in _lines(events)
    logged_failures.clear()


def test_a_cluster_of_any_name_has_subjects() -> None:
    """Its name is one part of them."""
    assert token("plant.2 *") == "plant=2E2=20=2A"
