"""The API over HTTP: turns requests into calls and answers into responses, and limits requests and connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from holdfast.admin.call import (
    HEADERS_TOO_LARGE,
    PROBLEM,
    Answer,
    Call,
    Caller,
    GoesOn,
    Head,
    Identify,
    RefusedCall,
    Unwrap,
    bad_request,
    title_of,
)
from holdfast.admin.callers import UNKNOWN, operator_at
from holdfast.admin.http.answers import AnswerProducer
from holdfast.admin.http.request import LimitedRequest, call_of, long_target
from holdfast.admin.http.upgrade import Upgrade
from holdfast.scheduling.fair_line import GoOn, Turns, turns_of_calls
from holdfast.scheduling.twisted_internals import OpenHTTPChannel

#: seconds a connection may be idle
_TIMEOUT = 60
#: seconds in which the head of a request must arrive, and in which the whole request must, beside its body
_PATIENCE = 30.0
#: bytes of a body in a second: who sends it more slowly is disconnected
_SLOWEST = 16_384
_MOST_CONNECTIONS = 64
_MOST_HEADERS = 100
#: bytes of all headers of a request together
_HEADERS_BYTES = 1 << 14
#: bytes of the longest request target: the longest topic, with each byte percent-encoded, fits
_TARGET_BYTES = 1 << 18
#: digits of the longest length of a body
_MOST_DIGITS = 18

Answering = Callable[[Call], Deferred[Answer]]

#: returns the most bytes of a body, from the method and the path of its call
MostBytes = Callable[[str, str], int]

#: headers of every answer that has no other of the same name
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class APIResource(Resource):
    """The resource of every path. ``answering`` fails only if it is cancelled."""

    isLeaf = True

    def __init__(self, answering: Answering, reactor: IReactorTime) -> None:
        Resource.__init__(self)
        self._answering = answering
        self._reactor = reactor

    def render(self, request: Any) -> int:
        """Answer a request, now or later."""
        upgrade = request.channel.site.upgrades.get(request.uri.partition(b"?")[0])
        is_current: Callable[[], bool] = _allowed
        try:
            if upgrade is not None and request.method == b"GET":
                upgrade.begin(request)
                return NOT_DONE_YET
            call = call_of(request)
        except RefusedCall as refused:
            answering = succeed(refused.answer())
        else:
            is_current = call.is_current
            answering = self._answering(call)
        request.notifyFinish().addErrback(lambda _: answering.cancel())
        answering.addCallback(self._in_time)
        answering.addCallbacks(self._respond, _cancelled, callbackArgs=(request, is_current))
        return NOT_DONE_YET

    def _in_time(self, answer: Answer) -> Answer | Deferred[Answer]:
        return deferLater(self._reactor, answer.delay, lambda: answer) if answer.delay else answer

    def _respond(self, answer: Answer, request: Any, is_current: Callable[[], bool]) -> None:
        request.setResponseCode(answer.status, title_of(answer.status).encode())
        request.responseHeaders.removeHeader(b"server")
        for name, value in _HEADERS:
            request.setHeader(name, value)
        for given, text in answer.headers:
            request.setHeader(given.encode(), text.encode())
        if answer.status in (http.NO_CONTENT, http.NOT_MODIFIED):
            request.finish()
            return
        request.setHeader(b"content-type", answer.content_type.encode())
        if answer.more is not None:
            if request.method != b"HEAD":
                AnswerProducer(request, self._reactor, answer.more, answer.stopped, is_current)
                return
            if answer.stopped is not None:
                answer.stopped()
        else:
            request.setHeader(b"content-length", b"%d" % len(answer.body))
        request.write(answer.body)  # nothing, if the method is HEAD
        request.finish()


class CountedChannel(OpenHTTPChannel):
    """A connection that its site counts. Requests that arrive too slowly end it."""

    maxHeaders = _MOST_HEADERS
    MAX_LENGTH = _TARGET_BYTES + 64  # with method and version
    totalHeadersSize = MAX_LENGTH + _HEADERS_BYTES

    site: APISite
    transport: Any
    operator: Caller = UNKNOWN
    _deadline: IDelayedCall | None = None
    _refused = False

    @property
    def path(self) -> str:
        """The path of the request whose headers have arrived, still percent-encoded."""
        return self.target.partition(b"?")[0].decode("ascii", "replace")

    def connectionMade(self) -> None:
        """Accept the connection, unless there are too many already."""
        http.HTTPChannel.connectionMade(self)
        self.operator = operator_at(self.transport)
        connections = self.site.connections
        if len(connections) >= self.site.most_connections:
            self.transport.abortConnection()
        connections.add(self)
        self._expect_end(_PATIENCE)

    def dataReceived(self, data: bytes) -> None:
        """Take bytes of a request. The first ones start its timer."""
        if self._refused:
            return
        if self._deadline is None and not self.is_answering:
            self._expect_end(_PATIENCE)
        http.HTTPChannel.dataReceived(self, data)

    def lineReceived(self, line: bytes) -> None:
        """Take the request line or a line of the headers, which have a limit together."""
        if self._refused:
            return
        if self.target and self.head_size + len(line) - len(self.target) > _HEADERS_BYTES:
            self.refuse_head(_too_many_headers())
        else:
            http.HTTPChannel.lineReceived(self, line)

    def lineLengthExceeded(self, line: bytes) -> None:
        """Refuse a line that is too long."""
        self.refuse_head(_too_many_headers() if self.target else long_target(_TARGET_BYTES))

    def refuse_head(self, refused: RefusedCall) -> None:
        """Refuse a request with an unreadable head. Later bytes of the client are not read."""
        if not self._refused:
            self._refused = True
            self.clearLineBuffer()  # type: ignore[no-untyped-call]
            self.refuse_early(refused)

    def refuse_early(self, refused: RefusedCall) -> None:
        """Write the refusal of a request that has not arrived as a whole. The connection ends soon."""
        self.transport.write(bytes_of(refused))
        self._expect_end(LINGER_SECONDS)

    def answer_bad_request(self) -> None:
        """Refuse it: Twisted's own answer has neither a body nor a length."""
        self.refuse_head(bad_request("this is not a request of HTTP/1.1"))

    def wants_body(self) -> bool:
        """Tell whether the body is not too long."""
        return not self.requests[-1].is_too_long

    def headerReceived(self, line: bytes) -> bool:
        """Take a header. A length with very many digits is answered as other bad lengths are."""
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and len(value.strip()) > _MOST_DIGITS:
            line = name + b": too long"
        return bool(http.HTTPChannel.headerReceived(self, line))

    def allHeadersReceived(self) -> None:
        """Allow the body the time for its length."""
        http.HTTPChannel.allHeadersReceived(self)
        request: LimitedRequest = self.requests[-1]
        self.site.head_arrived(self, request.caller)
        if not request.is_too_long:  # else the connection ends soon
            most = request.most_bytes
            self._expect_end(_PATIENCE + (most if self.length is None else min(self.length, most)) / _SLOWEST)

    def rawDataReceived(self, data: bytes) -> None:
        """Take bytes of a body, or of requests after the one that is being answered."""
        http.HTTPChannel.rawDataReceived(self, data)
        if self.is_answering and self.has_too_much:
            self.stop_reading()  # Twisted does not while the client takes nothing
        elif self.waiting and not self.is_answering:  # the answer was there at once
            self._wait_for_turn()

    def allContentReceived(self) -> None:
        """Begin to answer. The answer may take its time."""
        self._expect_end(None)
        self.site.requested(self)
        http.HTTPChannel.allContentReceived(self)

    def requestDone(self, request: Any) -> None:
        """Finish a request. Requests that came meanwhile wait for their turn, and until the client takes answers."""
        waits = bool(self.persistent and self.has_waiting)
        self.paused = waits
        self.site.answered(self)
        http.HTTPChannel.requestDone(self, request)
        if waits:
            self._wait_for_turn()

    def resumeProducing(self) -> None:
        """Go on: the client has taken all sent bytes."""
        http.HTTPChannel.resumeProducing(self)
        if self.paused:
            self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        self.paused = True
        self.stop_reading()
        if not self.is_blocked:
            self.site.turns.enter(self, self._take_turn)

    def _take_turn(self) -> None:
        """Work on the next request."""
        if self.is_blocked:
            return  # resumeProducing goes on
        self.paused = False
        self.take_waiting()
        self.dataReceived(b"")
        if not self.paused and not self.is_blocked and not self.has_too_much:
            self.read_again()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]  # Twisted always gives the reason
        """Forget the connection."""
        self._expect_end(None)
        self.site.turns.leave(self, self._take_turn)
        self.site.connections.discard(self)
        self.site.lost(self)
        http.HTTPChannel.connectionLost(self, reason)

    def abandon(self) -> None:
        """Let go of the transport, which another protocol takes over."""
        self._expect_end(None)
        self.setTimeout(None)  # type: ignore[no-untyped-call]
        self.site.connections.discard(self)
        self.requests.clear()
        self.transport = None

    def _expect_end(self, seconds: float | None) -> None:
        """Expect the end of the head or of the request within some seconds; None: whenever it comes."""
        deadline, self._deadline = self._deadline, None
        if deadline is not None and deadline.active():
            deadline.cancel()
        if seconds is not None:
            self._deadline = self.site.reactor.callLater(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._deadline = None
        self.transport.abortConnection()


class APISite(Site):
    """A site of the API. It limits the number of connections; ``most_bytes`` limits bodies.

    ``identify`` returns the caller of a request; by default, the local user behind the control socket. ``goes_on``
    tells whether that caller may still make the call. ``unwrap`` finds the client behind a proxy.
    """

    noisy = False
    protocol = CountedChannel  # type: ignore[assignment]  # without the wrapper that chooses between HTTP/1.1 and HTTP/2

    def __init__(
        self,
        answering: Answering,
        most_bytes: MostBytes,
        reactor: Any,
        identify: Identify | None = None,
        most_connections: int = _MOST_CONNECTIONS,
        *,
        goes_on: GoesOn | None = None,
        unwrap: Unwrap | None = None,
    ) -> None:
        resource = APIResource(answering, reactor)
        Site.__init__(
            self,
            resource,
            requestFactory=LimitedRequest,
            timeout=_TIMEOUT,
            reactor=reactor,
            parsePOSTFormSubmission=False,
        )  # fmt: skip
        self.displayTracebacks = False
        self.reactor: IReactorTime = reactor
        self.most_bytes = most_bytes
        self.most_connections = most_connections
        self.identify = identify or _local
        self.goes_on = goes_on or _always
        self.unwrap = unwrap or _as_it_is
        self.connections: set[CountedChannel] = set()
        self.turns = turns_of_requests(reactor)
        #: by path, what hands connections over to other protocols
        self.upgrades: dict[bytes, Upgrade] = {}

    def log(self, request: Any) -> None:
        """Log nothing. Twisted would log every request."""

    def requested(self, channel: CountedChannel) -> None:
        """Note that a whole request has arrived."""

    def head_arrived(self, channel: CountedChannel, caller: Caller) -> None:
        """Note who makes a request."""

    def proven(self, channel: CountedChannel) -> None:
        """Note that a call has proven who makes it while it was being answered."""

    def answered(self, channel: CountedChannel) -> None:
        """Note that a request is over."""

    def lost(self, channel: CountedChannel) -> None:
        """Note the end of a connection."""

    def abort(self) -> None:
        """Abort all connections, and the calls that they wait for."""
        for channel in tuple(self.connections):
            channel.transport.abortConnection()


def _too_many_headers() -> RefusedCall:
    most = f"{_HEADERS_BYTES} bytes"
    return RefusedCall(HEADERS_TOO_LARGE, "BAD_REQUEST", f"the headers have at most {most} together", allowed=most)


def longest_body(max_payload_size: int) -> int:
    """Return a limit for bodies, in bytes, that allows a message with the largest payload (0: MQTT's largest)."""
    return (16 << 20) + 2 * (max_payload_size or 1 << 28)


def _local(channel: Any, _head: Head) -> Caller:
    """Return the user at the other end of the control socket."""
    operator: Caller = channel.operator
    return operator


def _allowed() -> bool:
    """Let a refusal be sent."""
    return True


def _always(_channel: Any, _head: Head, _caller: Caller) -> bool:
    """Let local users go on."""
    return True


def _as_it_is(head: Head) -> Head:
    """Return the peer itself: no proxy is trusted."""
    return head


def _cancelled(failure: Failure) -> None:
    failure.trap(CancelledError)


# Refusals of requests that have not arrived as a whole: their answers are written to the connection itself.
#
# A connection that is closed while its client still sends is reset, and a reset can destroy the answer before the
# client has read it. So the answer says that the connection ends. What still arrives is dropped for a few seconds.


#: seconds in which a client may still send after its refusal
LINGER_SECONDS = 5.0


def bytes_of(refused: RefusedCall) -> bytes:
    """Return the whole answer that refuses a request, as HTTP/1.1 has it."""
    body = refused.answer().body
    lines = (
        f"HTTP/1.1 {refused.status} {title_of(refused.status)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        f"Content-Type: {PROBLEM}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


#: requests of one turn of the reactor; each takes some tenths of a millisecond
MOST_REQUESTS = 8


def turns_of_requests(reactor: IReactorTime) -> Turns[GoOn]:
    """Return one line for all connections whose clients send many requests without waiting for answers (pipelining).

    64 KiB that arrive at one moment may have two thousand requests in them. Twisted would answer all of them before it
    does anything else. In this line each later request waits for its turn.
    """
    return turns_of_calls(reactor, most=MOST_REQUESTS)
