"""The private names of Twisted: one test for each, which says what to do when an upgrade breaks it.

Mend a name in ``scheduling/twisted_internals.py``, the one module that knows it, or keep the older Twisted: lower the
upper bound in ``setup.cfg``.
"""

from __future__ import annotations

import select
import socket
from typing import Any

import pytest
from OpenSSL import SSL
from twisted.internet import reactor
from twisted.internet.error import ConnectionDone
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.web import client, http

from holdfast.scheduling.twisted_internals import (
    OpenHTTPChannel,
    OpenTLSProtocol,
    RequestNotSent,
    disconnect,
    poller_of,
    reads,
    serve,
    use_turn,
    waker_of,
    watched,
    writes,
)

REQUEST = b"GET /a?b HTTP/1.1\r\nHost: x\r\nX: y\r\n\r\n"


class Request(http.Request):
    """A request that nobody answers before :meth:`finish`."""

    def process(self) -> None:
        """Answer later."""


class Channel(OpenHTTPChannel):
    """A channel that notes what it was asked."""

    requestFactory = Request

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bad = 0
        self.head: tuple[bytes, bytes, bytes] | None = None
        self.invites = True

    def answer_bad_request(self) -> None:
        """Count, and answer as Twisted does."""
        self.bad += 1
        super().answer_bad_request()

    def wants_body(self) -> bool:
        """Answer as the test says."""
        return self.invites

    def allHeadersReceived(self) -> None:
        """Note the head."""
        self.head = self.method, self.target, self.version
        http.HTTPChannel.allHeadersReceived(self)


@pytest.fixture
def channel() -> Channel:
    made: Any = Channel()
    made.timeOut = None
    made.makeConnection(StringTransport())
    return made  # type: ignore[no-any-return]


def sent(channel: Channel) -> bytes:
    transport: Any = channel.transport
    return bytes(transport.io.getvalue())


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")
def test_the_poller_of_the_reactor() -> None:
    """Without ``_poller``, strangers are served before admitted clients. Look for the object that the reactor polls."""
    assert hasattr(poller_of(reactor), "poll")
    assert poller_of(object()) is None


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")
def test_the_files_that_the_reactor_waits_for() -> None:
    """``_reads`` and ``_writes`` have numbers of files. Without them, a stranger's events get lost when it waits."""
    from twisted.internet.epollreactor import EPollReactor

    own = EPollReactor()
    port = own.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
    try:
        assert reads(own, port.fileno())
        assert not writes(own, port.fileno())
    finally:
        port.stopListening()
        own.runUntilCurrent()


class Ear:
    """Something that a reactor reads, until it is lost."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.reads = 0
        self.lost: list[object] = []

    def fileno(self) -> int:
        return self._file

    def logPrefix(self) -> str:
        return "ear"

    def doRead(self) -> None:
        self.reads += 1

    def readConnectionLost(self, reason: Failure) -> None:
        self.lost.append(reason.value)

    connectionLost = readConnectionLost


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="this system has no epoll")
def test_the_turn_of_the_reactor_and_how_it_serves_and_ends_what_it_waits_for() -> None:
    """``doPoll`` and ``doIteration`` are one turn; the other names are what it does in it.

    Without them clients of one turn get a piece for each message: look at ``doPoll``.
    """
    from twisted.internet.epollreactor import EPollReactor

    assert EPollReactor.doIteration is EPollReactor.doPoll
    own: Any = EPollReactor()
    here, there = socket.socketpair()
    ear = Ear(here.fileno())
    try:
        own.addReader(ear)
        assert watched(own)[here.fileno()] is ear
        serve(own, ear, here.fileno(), select.EPOLLIN)
        assert ear.reads == 1
        disconnect(own, ear, CONNECTION_DONE)
        assert list(map(type, ear.lost)) == [ConnectionDone]
        assert here.fileno() not in watched(own)
        woken = waker_of(own)
        own.wakeUp()
        assert select.select([woken], [], [], 0)[0]
        assert woken.doRead() is None
        assert not select.select([woken], [], [], 0)[0]
        turns: list[float | None] = []
        use_turn(own, turns.append)
        own.iterate(0)
        assert turns == [0]
    finally:
        own.removeAll()
        here.close()
        there.close()


def test_the_head_of_a_request(channel: Channel) -> None:
    """``_command``, ``_path``, ``_version``: without them the API cannot refuse a body before it arrives."""
    assert channel.target == b""
    channel.dataReceived(REQUEST)  # type: ignore[no-untyped-call]
    assert channel.head == (b"GET", b"/a?b", b"HTTP/1.1")


def test_the_size_of_a_head(channel: Channel) -> None:
    """``_receivedHeaderSize``: without it, headers have no limit together."""
    channel.dataReceived(REQUEST[:-2])  # type: ignore[no-untyped-call]
    assert channel.head_size >= len(b"GET /a?b HTTP/1.1" + b"Host: x" + b"X: y")


def test_whether_a_request_is_being_answered_and_later_bytes_wait(channel: Channel) -> None:
    """``_handlingRequest``, ``_dataBuffer``, ``_buffer``: without them, pipelined requests take no turns."""
    assert not channel.is_answering
    channel.dataReceived(REQUEST)  # type: ignore[no-untyped-call]
    assert channel.is_answering
    channel.dataReceived(REQUEST)
    assert channel.has_waiting
    assert b"".join(channel.waiting) == REQUEST
    channel.take_waiting()
    assert not channel.waiting
    assert channel._buffer == REQUEST


def test_when_too_much_waits(channel: Channel) -> None:
    """``_optimisticEagerReadSize``: without it, a client that reads nothing fills the memory with requests."""
    channel.dataReceived(REQUEST)  # type: ignore[no-untyped-call]
    assert not channel.has_too_much
    channel.dataReceived(b"x" * (1 << 16))  # type: ignore[no-untyped-call]
    assert channel.has_too_much


def test_reading_stops_and_goes_on(channel: Channel) -> None:
    """``_networkProducer``: without it, a client is read although too much of it waits."""
    transport: Any = channel.transport
    channel.stop_reading()
    assert transport.producerState == "paused"
    channel.read_again()
    assert transport.producerState == "producing"


def test_whether_the_client_takes_nothing(channel: Channel) -> None:
    """``_waitingForTransport``: without it, answers pile up for a client that reads nothing."""
    assert not channel.is_blocked
    channel.pauseProducing()  # type: ignore[no-untyped-call]
    assert channel.is_blocked
    channel.resumeProducing()
    assert not channel.is_blocked


def test_the_answer_to_a_bad_request(channel: Channel) -> None:
    """``_respondToBadRequestAndDisconnect``: without it, a bad request gets an answer without a body or a length."""
    channel.dataReceived(b"nonsense\r\n\r\n")  # type: ignore[no-untyped-call]
    assert channel.bad == 1
    assert sent(channel).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("invites", [True, False])
def test_the_invitation_to_send_a_body(channel: Channel, invites: bool) -> None:
    """``_send100Continue``: without it, clients send bodies that are refused."""
    channel.invites = invites
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    channel.dataReceived(head)  # type: ignore[no-untyped-call]
    assert (b"100 Continue" in sent(channel)) is invites


class TLS(OpenTLSProtocol):
    """TLS that notes its end."""

    ends: tuple[Failure | None, ...] = ()

    def end(self, reason: Failure | None) -> None:
        """Note it."""
        self.ends = (*self.ends, reason)
        super().end(reason)


def test_the_engine_and_the_end_of_tls() -> None:
    """``_tlsConnection``, ``_handshakeDone``, ``_tlsShutdownFinished``: without them, handshakes take no turns.

    A handshake with nonsense fails, and its end has the failure.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    factory = TLSMemoryBIOFactory(CertificateOptions(), False, Factory.forProtocol(Protocol))
    make: Any = TLS
    protocol = make(factory, Protocol())
    protocol.makeConnection(StringTransport())
    assert not protocol.is_open
    before = protocol.engine
    assert isinstance(before, SSL.Connection)
    protocol.engine = another = SSL.Connection(context, None)
    another.set_accept_state()
    assert protocol.engine is another
    protocol.dataReceived(b"GET / HTTP/1.1\r\n\r\n")
    assert len(protocol.ends) == 1
    assert protocol.ends[0] is not None
    assert protocol.ends[0].check(SSL.Error)


def test_the_error_of_a_request_that_was_not_sent() -> None:
    """``twisted.web._newclient.RequestNotSent``: without it, a question to a service fails once after each pause."""
    assert issubclass(RequestNotSent, Exception)
    assert RequestNotSent.__module__ == client.ResponseNeverReceived.__module__
