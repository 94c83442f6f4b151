"""The API over HTTP: turns requests into calls and answers into responses, and limits requests and connections."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any
from urllib.parse import parse_qsl

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IPushProducer, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site
from zope.interface import implementer

from holdfast.admin.callers.caller import Caller
from holdfast.admin.callers.operators import UNKNOWN, operator_at
from holdfast.admin.calls.call import Answer, Call
from holdfast.admin.calls.problems import PROBLEM, RefusedCall, bad_request

#: seconds a connection may be idle, or take to send a request
_TIMEOUT = 60
_MOST_CONNECTIONS = 64
_MOST_ARGUMENTS = 20


class _State(Enum):
    READY = "may fetch the next piece"
    PAUSED = "waits until the client has received the pieces written so far"
    OVER = "finished or broken off, or the client is gone"


Answering = Callable[[Call], Deferred[Answer]]


class SizeLimitedRequest(Request):
    """A request whose body has a limit. A longer body is refused while it arrives."""

    most_bytes = 1 << 24
    _received = 0
    _refused = False

    def gotLength(self, length: int | None) -> None:
        """Refuse a body whose announced length is above the limit."""
        if length is not None and length > self.most_bytes:
            self._refuse()
            length = 0
        Request.gotLength(self, length)

    def handleContentChunk(self, data: bytes) -> None:
        """Receive a piece of the body."""
        self._received += len(data)
        if self._received > self.most_bytes:
            self._refuse()
        if not self._refused:
            Request.handleContentChunk(self, data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Process the request, unless it was refused."""
        if not self._refused:
            Request.requestReceived(self, command, path, version)

    def _refuse(self) -> None:
        if self._refused:
            return
        self._refused = True
        message = f"a body has at most {self.most_bytes} bytes; send it in parts"
        body = RefusedCall(http.REQUEST_ENTITY_TOO_LARGE, "BAD_REQUEST", message).answer().body
        head = f"Connection: close\r\nContent-Type: {PROBLEM}\r\nContent-Length: {len(body)}\r\n\r\n"
        transport: Any = self.channel.transport
        transport.write(b"HTTP/1.1 413 Request Entity Too Large\r\n" + head.encode() + body)
        transport.loseConnection()


@implementer(IPushProducer)
class AnswerProducer:
    """Writes a long answer piece by piece. It fetches a piece only when the client has received the last one."""

    _log = Logger()

    def __init__(self, request: Any, reactor: IReactorTime, more: Callable[[], Deferred[bytes]]) -> None:
        self._request = request
        self._reactor = reactor
        self._more = more
        self._state = _State.READY
        self._fetching: Deferred[None] | None = None
        request.notifyFinish().addErrback(lambda _: self.stopProducing())
        request.registerProducer(self, True)
        self._fetch()

    def pauseProducing(self) -> None:
        """Fetch no more pieces, because the client is slow."""
        if self._state is _State.READY:
            self._state = _State.PAUSED

    def resumeProducing(self) -> None:
        """Fetch the next piece."""
        if self._state is _State.PAUSED:
            self._state = _State.READY
            self._fetch()

    def stopProducing(self) -> None:
        """Stop, because the client is gone."""
        self._state = _State.OVER
        if self._fetching is not None:
            self._fetching.cancel()

    def _fetch(self) -> None:
        if self._state is _State.READY and self._fetching is None:
            fetching = self._fetching = self._more().addCallbacks(self._write, self._fail)
            if fetching.called:  # it answered at once, so _write ran before the assignment above
                self._fetching = None

    def _write(self, piece: bytes) -> None:
        self._fetching = None
        if self._state is _State.OVER:
            return
        if piece:
            self._request.write(piece)
            self._reactor.callLater(0, self._fetch)  # later, so that other connections have their turn
            return
        self._state = _State.OVER
        self._request.unregisterProducer()
        self._request.finish()

    def _fail(self, failure: Failure) -> None:
        """End the connection. The missing end mark tells the client that the answer is incomplete."""
        self._fetching = None
        if self._state is _State.OVER:
            failure.trap(CancelledError)
            return
        self._state = _State.OVER
        self._log.error("an answer broke off: {error}", error=failure.getErrorMessage())
        self._request.channel.transport.abortConnection()


class APIResource(Resource):
    """The resource of every path. ``answering`` fails only if it is cancelled."""

    isLeaf = True

    def __init__(self, answering: Answering, reactor: IReactorTime) -> None:
        Resource.__init__(self)
        self._answering = answering
        self._reactor = reactor

    def render(self, request: Any) -> int:
        """Answer a request, now or later."""
        try:
            call = call_of(request)
        except RefusedCall as refused:
            self._respond(refused.answer(), request)
            return NOT_DONE_YET
        answering = self._answering(call)
        request.notifyFinish().addErrback(lambda _: answering.cancel())
        answering.addCallbacks(self._respond, _cancelled, callbackArgs=(request,))
        return NOT_DONE_YET

    def _respond(self, answer: Answer, request: Any) -> None:
        request.setResponseCode(answer.status)
        for name, value in answer.headers:
            request.setHeader(name.encode(), value.encode())
        if answer.status == http.NO_CONTENT:
            request.finish()
            return
        request.setHeader(b"content-type", answer.content_type.encode())
        if answer.more is not None:
            AnswerProducer(request, self._reactor, answer.more)
            return
        request.setHeader(b"content-length", b"%d" % len(answer.body))
        request.write(answer.body)
        request.finish()


class CountedChannel(http.HTTPChannel):
    """A connection that its site counts."""

    site: APISite
    transport: Any
    caller: Caller = UNKNOWN

    def connectionMade(self) -> None:
        """Accept the connection, unless there are too many already."""
        http.HTTPChannel.connectionMade(self)
        self.caller = operator_at(self.transport)
        connections = self.site.connections
        if len(connections) >= _MOST_CONNECTIONS:
            self.transport.abortConnection()
        connections.add(self)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]  # Twisted always gives the reason
        """Forget the connection."""
        self.site.connections.discard(self)
        http.HTTPChannel.connectionLost(self, reason)


class APISite(Site):
    """The site of the API. It limits the number of connections; ``most_bytes`` limits the body of a request."""

    noisy = False
    protocol = CountedChannel  # type: ignore[assignment]  # without the wrapper that chooses between HTTP/1.1 and HTTP/2

    def __init__(self, answering: Answering, most_bytes: int, reactor: Any) -> None:
        limited = type("SizeLimitedRequest", (SizeLimitedRequest,), {"most_bytes": most_bytes})
        resource = APIResource(answering, reactor)
        Site.__init__(self, resource, requestFactory=limited, timeout=_TIMEOUT, reactor=reactor)
        self.displayTracebacks = False
        self.connections: set[CountedChannel] = set()

    def log(self, request: Any) -> None:
        """Log nothing, where Twisted logs every request."""

    def abort(self) -> None:
        """Abort all connections, and the calls that they wait for."""
        for channel in tuple(self.connections):
            channel.transport.abortConnection()


def longest_body(max_payload_size: int) -> int:
    """Return a limit for bodies, in bytes, that allows a message with the largest payload (0: MQTT's largest)."""
    return (16 << 20) + 2 * (max_payload_size or 1 << 28)


def call_of(request: Any) -> Call:
    """Return the call in a request. Raises :class:`RefusedCall`."""
    try:
        path, _, query = request.uri.decode("ascii").partition("?")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_ARGUMENTS)
    except ValueError:  # UnicodeDecodeError among them
        raise bad_request("the query string has too many arguments, or is not percent-encoded UTF-8") from None
    arguments = dict(pairs)
    if len(arguments) < len(pairs):
        raise bad_request("an argument occurs twice in the query string")
    method = request.method.decode("ascii", "replace")
    return Call(method, path, arguments, request.content.read(), request.channel.caller)


def _cancelled(failure: Failure) -> None:
    failure.trap(CancelledError)
