"""A client for one HTTP server, with everything bounded: connections, requests that wait, time, and the answer's size.

How it works. At most ``connections`` requests are under way; each uses a connection that is kept open, or a new one.
More requests wait in a line of at most ``queue``; one more fails at once with Busy. The time-out of a request includes
its time in the line. Redirects are not followed, cookies are not kept, and proxies of the environment are not asked.

A server may close a connection that is kept open at the moment at which the next request is sent on it. Such a request
is sent once more, on a new connection: it asks a question and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone, ResponseFailed, ResponseNeverReceived
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IPolicyForHTTPS, IResponse
from zope.interface import implementer

from holdfast.scheduling.twisted_internals import RequestNotSent
from holdfast.scheduling.waiting import as_deferred

#: seconds that an unused connection is kept
_KEPT = 60.0


class RequestFailed(Exception):
    """The server has not answered as it should. The text is a clause for the log, and has nothing of the request."""


class Busy(RequestFailed):
    """Too many requests wait already. This one was not sent."""


@frozen
class Answer:
    """The status, the media type (without parameters) and the body of an answer."""

    status: int
    media_type: str
    body: bytes = field(repr=False)


@frozen(kw_only=True)
class Bounds:
    """The limits of a client: seconds, connections, waiting requests, and bytes of an answer."""

    timeout: float = 5.0
    connections: int = 8
    queue: int = 200
    longest_answer: int = 65536


class HTTPClient:
    """Sends requests to one URL. ``agent`` sends a single request (:func:`agent_of`)."""

    def __init__(self, agent: IAgent, clock: IReactorTime, url: str, bounds: Bounds) -> None:
        self._agent = agent
        self._clock = clock
        self._url = url.encode("ascii")
        self._bounds = bounds
        self._under_way = 0
        self._line: deque[Deferred[None]] = deque()

    def request(self, method: bytes, headers: Mapping[str, str], body: bytes | None = None) -> Deferred[Answer]:
        """Send a request; fires with the answer of any status, or fails with RequestFailed."""
        if self._under_way >= self._bounds.connections and len(self._line) >= self._bounds.queue:
            failed: Deferred[Answer] = Deferred()
            failed.errback(Busy("too many requests wait for the service"))
            return failed
        answer = self._turn(method, headers, body)
        answer.addTimeout(self._bounds.timeout, self._clock, self._timed_out)
        return answer.addErrback(_explained)

    @as_deferred
    async def _turn(self, method: bytes, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Wait for a place, then send the request."""
        if self._under_way >= self._bounds.connections:
            place: Deferred[None] = Deferred(self._line.remove)
            self._line.append(place)
            await place
        else:
            self._under_way += 1
        try:
            answer: Answer = await self._send(method, headers, body, again=True)
            return answer
        finally:
            if self._line:  # the place goes to the next one
                self._line.popleft().callback(None)
            else:
                self._under_way -= 1

    async def _send(self, method: bytes, headers: Mapping[str, str], body: bytes | None, again: bool) -> Answer:
        sent = Headers({name: [value] for name, value in headers.items()})
        producer = None if body is None else _Body(body)
        try:
            response: IResponse = await self._agent.request(method, self._url, sent, producer)
        except (RequestNotSent, ResponseNeverReceived) as error:
            if not again or not _was_closed(error):
                raise
            answer: Answer = await self._send(method, headers, body, again=False)
            return answer
        content: bytes = await _content(response, self._bounds.longest_answer)
        kind = response.headers.getRawHeaders("content-type", [""])[-1]
        return Answer(response.code, kind.partition(";")[0].strip().lower(), content)

    def _timed_out(self, _answer: object, seconds: float) -> Failure:
        return Failure(RequestFailed(f"no answer within {seconds:g} s"))


def agent_of(reactor: Any, bounds: Bounds, *, https: bool, ca: Path | None = None) -> IAgent:
    """Return what sends single requests, with connections that are kept open.

    ``ca`` names a file with the only certification authorities that are trusted, None for those of the system. Raises
    OSError or ValueError if the file cannot be used.
    """
    pool = HTTPConnectionPool(reactor, persistent=True)
    pool.maxPersistentPerHost = bounds.connections
    cast("Any", pool).cachedConnectionTimeout = _KEPT
    pool.retryAutomatically = False  # the client does it
    cast("Any", pool)._factory.noisy = False
    policy = {"contextFactory": _policy(ca)} if https else {}
    agent: IAgent = Agent(reactor, pool=pool, connectTimeout=bounds.timeout, **policy)
    return agent


def _policy(ca: Path | None) -> IPolicyForHTTPS:
    """Return the check of the server's certificate and its name."""
    from twisted.internet.ssl import Certificate, trustRootFromCertificates  # OpenSSL, for https only
    from twisted.web.client import BrowserLikePolicyForHTTPS

    if ca is None:
        return BrowserLikePolicyForHTTPS()
    end = b"-----END CERTIFICATE-----"
    parts = ca.read_bytes().split(end)[:-1]
    if not parts:
        raise ValueError("there is no certificate in PEM (-----BEGIN CERTIFICATE-----)")
    try:
        authorities = [Certificate.loadPEM(part + end) for part in parts]
    except Exception:  # noqa: BLE001 - pyOpenSSL has its own error
        raise ValueError("a certificate is damaged") from None
    return BrowserLikePolicyForHTTPS(trustRoot=trustRootFromCertificates(authorities))


def _was_closed(error: RequestNotSent | ResponseNeverReceived) -> bool:
    reasons = getattr(error, "reasons", [])
    return isinstance(error, RequestNotSent) or any(
        reason.check(ConnectionDone, ConnectionLost) is not None for reason in reasons
    )


def _explained(failure: Failure) -> Failure:
    if failure.check(RequestFailed):
        return failure
    return Failure(RequestFailed(f"no answer: {_cause(failure.value)}"))


def _cause(error: BaseException | None) -> str:
    """Return the innermost reason, without the text of the request."""
    while isinstance(error, ResponseFailed) and error.reasons:
        error = cast("Failure", error.reasons[0]).value
    text = str(error).strip().rstrip(".")
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def _content(response: IResponse, longest: int) -> Deferred[bytes]:
    """Read the body of an answer. Fails with RequestFailed beyond so many bytes."""
    body = _BodyReader(longest)
    response.deliverBody(body)
    return body.done


class _BodyReader(Protocol):
    """Collects a body up to a limit. Cancelling ``done`` ends the connection."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._size = 0
        self._parts: list[bytes] = []
        self.done: Deferred[bytes] = Deferred(lambda _: self._abort())

    def dataReceived(self, data: bytes) -> None:
        """Take a part of the body."""
        self._size += len(data)
        if self._size <= self._longest:
            self._parts.append(data)
        elif not self.done.called:
            self._abort()
            self.done.errback(RequestFailed(f"the answer has more than {self._longest} bytes"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Take the end of the body. An answer of unknown length ends with its connection."""
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._parts))
        else:
            self.done.errback(reason)

    def _abort(self) -> None:
        proxy = cast("Any", self.transport)
        transport = getattr(proxy, "_producer", proxy)  # a response has a proxy that can close, but not abort
        if transport is not None:
            transport.abortConnection()


@implementer(IBodyProducer)
class _Body:
    """A short body, written at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: Any) -> Deferred[None]:
        consumer.write(self._body)
        written: Deferred[None] = Deferred()
        written.callback(None)
        return written

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def stopProducing(self) -> None: ...
