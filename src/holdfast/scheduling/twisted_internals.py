"""The insides of Twisted that the broker needs, where a class of Twisted has to be opened for them.

Twisted may change a private name in any release. So a test for each name says what to do when an upgrade breaks it
(``tests/scheduling/test_twisted_internals.py``), and the package asks for a tested range of Twisted (``setup.cfg``).

What is used, and why the public interface is not enough:

- the poller of the epoll reactor, the files that it waits for, and how it serves and ends one: strangers wait behind
  admitted clients, and packets wait until all clients of a turn are read
  (:mod:`holdfast.scheduling.reactor`); the order within a turn has no interface;
- the head of a request, before an HTTP channel makes the request: a body is refused before it arrives;
- the received bytes that an HTTP channel keeps: pipelined requests take turns, and a protocol that takes over a
  connection gets the rest;
- the producer of an HTTP channel, and whether the client takes nothing: reading stops while too much waits;
- two answers that an HTTP channel gives by itself: to a bad request it has no length, and it asks for bodies that are
  refused;
- the engine of a TLS protocol, and the end of its handshake: handshakes take turns, and a renewed certificate counts at
  once;
- the error of a request that was not sent: the request is sent again on a new connection.

Some names are read where they are needed, and tested there: how much a transport has not sent yet
(``transports/protocol.py``), the observers and the file of the log (``watch/log_output.py``, a room below this one),
how many connections one turn accepts (``transports/listening.py``), and the transport of a port
(``scheduling/reactor.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.protocols.tls import TLSMemoryBIOProtocol
from twisted.python import log
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web._newclient import RequestNotSent

__all__ = [
    "OpenHTTPChannel",
    "OpenTLSProtocol",
    "RequestNotSent",
    "disconnect",
    "poller_of",
    "reads",
    "serve",
    "use_poller",
    "use_turn",
    "waker_of",
    "watched",
    "writes",
]

# The reactor.


def poller_of(reactor: object) -> Any:
    """Return the object that a reactor with epoll waits with; None for another reactor."""
    return getattr(reactor, "_poller", None)


def use_poller(reactor: Any, poller: object) -> None:
    """Let a reactor with epoll wait with another object."""
    reactor._poller = poller


def reads(reactor: Any, file: int) -> bool:
    """Tell whether a reactor with epoll waits for bytes of a file."""
    return file in reactor._reads


def writes(reactor: Any, file: int) -> bool:
    """Tell whether a reactor with epoll waits until a file takes bytes."""
    return file in reactor._writes


def watched(reactor: Any) -> dict[int, Any]:
    """Return the readers and writers of a reactor with epoll, by the numbers of their files."""
    found: dict[int, Any] = reactor._selectables
    return found


def waker_of(reactor: Any) -> Any:
    """Return the pipe through which other threads wake a reactor with epoll."""
    return reactor.waker


def use_turn(reactor: Any, take: Callable[[float | None], None]) -> None:
    """Let a reactor with epoll take its turns by this function. It gets the seconds to wait, None for ever."""
    reactor.doIteration = reactor.doPoll = take


def before_timed_calls(reactor: Any, check: Callable[[], None]) -> None:
    """Let a reactor call this function before its timed calls and the calls from threads, in each turn."""
    run = reactor.runUntilCurrent

    def checked() -> None:
        check()
        run()

    reactor.runUntilCurrent = checked


def serve(reactor: Any, selectable: Any, file: int, event: int) -> None:
    """Let a reactor with epoll read, write or end one file, as its own turns do."""
    log.callWithLogger(selectable, reactor._doReadOrWrite, selectable, file, event)


def disconnect(reactor: Any, selectable: Any, why: Exception) -> None:
    """Let a reactor with epoll end a connection that could not be read."""
    log.callWithLogger(selectable, reactor._disconnectSelectable, selectable, why, True)


# HTTP.


class OpenHTTPChannel(http.HTTPChannel):
    """An HTTP channel whose state can be asked for."""

    @property
    def method(self) -> bytes:
        """The method of the request whose headers have arrived."""
        method: bytes = self._command
        return method

    @property
    def target(self) -> bytes:
        """The path and the query string of the request whose headers have arrived, b"" before the request line."""
        target: bytes = getattr(self, "_path", b"")
        return target

    @property
    def version(self) -> bytes:
        """The version of HTTP of the request whose headers have arrived."""
        version: bytes = self._version
        return version

    @property
    def head_size(self) -> int:
        """The bytes of the request line and of the headers so far."""
        size: int = self._receivedHeaderSize
        return size

    @property
    def is_answering(self) -> bool:
        """Whether a request is being answered: later ones wait."""
        answering: bool = self._handlingRequest
        return answering

    @property
    def is_blocked(self) -> bool:
        """Whether the client takes no bytes now."""
        blocked: bool = self._waitingForTransport
        return blocked

    @property
    def waiting(self) -> list[bytes]:
        """The bytes of later requests."""
        waiting: list[bytes] = self._dataBuffer
        return waiting

    @property
    def has_waiting(self) -> bool:
        """Whether there are bytes of later requests, or of the present line."""
        return bool(self._buffer or self._dataBuffer)

    @property
    def has_too_much(self) -> bool:
        """Whether so many bytes of later requests wait that Twisted would stop reading."""
        return sum(map(len, self._dataBuffer)) > self._optimisticEagerReadSize

    def take_waiting(self) -> None:
        """Make the bytes of later requests the next bytes to parse."""
        self._buffer = b"".join([*self._dataBuffer, self._buffer])
        self._dataBuffer = []

    def stop_reading(self) -> None:
        """Read no more bytes of the client."""
        self._networkProducer.pauseProducing()

    def read_again(self) -> None:
        """Read bytes of the client again."""
        self._networkProducer.resumeProducing()

    def answer_bad_request(self) -> None:
        """Answer what is no request of HTTP/1.1, and end the connection."""
        super()._respondToBadRequestAndDisconnect()  # type: ignore[no-untyped-call]

    def wants_body(self) -> bool:
        """Tell whether a client that asks before it sends a body may send it."""
        return True

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.answer_bad_request()

    def _send100Continue(self) -> None:
        if self.wants_body():
            super()._send100Continue()  # type: ignore[no-untyped-call]


# TLS.


class OpenTLSProtocol(TLSMemoryBIOProtocol):
    """TLS of one connection, whose engine can be replaced before the handshake."""

    @property
    def is_open(self) -> bool:
        """Whether the handshake is over."""
        done: bool = self._handshakeDone
        return done

    @property
    def engine(self) -> Any:
        """OpenSSL's connection."""
        return self._tlsConnection

    @engine.setter
    def engine(self, engine: object) -> None:
        self._tlsConnection: Any = engine

    def end(self, reason: Failure | None) -> None:
        """End the connection, with a failure or without one."""
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call]

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        self.end(reason)
