"""The HTTP client against a server in this process, and its bounds with a double."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, cast

import pytest
from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from holdfast.identity.http_client import Answer, Bounds, Busy, HTTPClient, RequestFailed, agent_of
from tests.processes import PATIENCE

BOUNDS = Bounds(timeout=PATIENCE, connections=2, queue=1, longest_answer=1000)


class Service(Resource):
    """Answers by the path of the request."""

    isLeaf = True

    def __init__(self) -> None:
        Resource.__init__(self)
        self.bodies: list[bytes] = []
        self.peers: set[Any] = set()

    def render(self, request: Request) -> bytes | int:
        assert request.content is not None
        self.bodies.append(request.content.read())
        self.peers.add(request.getClientAddress())
        request.setHeader("content-type", "Application/JSON; charset=utf-8")
        match request.path:
            case b"/long":
                return b"x" * 1001
            case b"/silent":
                return NOT_DONE_YET
            case b"/half":
                request.setHeader("content-length", "100")
                request.write(b"x")
                return NOT_DONE_YET
            case b"/cut":
                request.setHeader("content-length", "100")
                request.write(b"x")
                assert request.transport is not None
                request.transport.loseConnection()
                return NOT_DONE_YET
            case b"/moved":
                request.redirect(b"/other")
                return b""
            case b"/last":
                request.setHeader("connection", "close")
        return b"{}"


@pytest.fixture
def service() -> Iterator[tuple[Service, int]]:
    found = Service()
    port: Any = cast("Any", reactor).listenTCP(0, Site(found), interface="127.0.0.1")
    yield found, port.getHost().port
    port.stopListening()


def client(port: int, path: str = "/", bounds: Bounds = BOUNDS) -> HTTPClient:
    agent = agent_of(reactor, bounds, https=False)
    return HTTPClient(agent, reactor, f"http://127.0.0.1:{port}{path}", bounds)


@inlineCallbacks
def closed(found: HTTPClient) -> Generator[Deferred[Any], Any, None]:
    """End the connections that are kept open."""
    yield found._agent._pool.closeCachedConnections()  # type: ignore[attr-defined]
    yield deferLater(reactor, 0.01)


@inlineCallbacks
def test_a_request_and_its_answer(service: tuple[Service, int]) -> Generator[Deferred[Any], Any, None]:
    server, port = service
    asking = client(port)
    for body in (b"one", b"two", b"three"):
        answer: Answer = yield asking.request(b"POST", {"X-Name": "value"}, body)
        assert answer == Answer(200, "application/json", b"{}")
    assert server.bodies == [b"one", b"two", b"three"]
    assert len(server.peers) == 1  # the connection is kept open
    yield closed(asking)


@inlineCallbacks
def test_a_redirect_is_not_followed(service: tuple[Service, int]) -> Generator[Deferred[Any], Any, None]:
    server, port = service
    asking = client(port, "/moved")
    answer: Answer = yield asking.request(b"POST", {}, b"x")
    assert answer.status == 302
    assert len(server.bodies) == 1
    yield closed(asking)


@pytest.mark.parametrize(
    ("path", "timeout", "why"),
    [
        ("/long", PATIENCE, "more than 1000 bytes"),
        ("/silent", 0.2, "no answer within 0.2 s"),
        ("/half", 0.2, "no answer within 0.2 s"),
        ("/cut", PATIENCE, "no answer: "),
    ],
)
@inlineCallbacks
def test_an_answer_that_is_none(
    service: tuple[Service, int], path: str, timeout: float, why: str
) -> Generator[Deferred[Any], Any, None]:
    _, port = service
    asking = client(port, path, Bounds(timeout=timeout, connections=1, queue=1, longest_answer=1000))
    for _ in range(2):  # the place is free again
        with pytest.raises(RequestFailed, match=why):
            yield asking.request(b"POST", {}, b"secret body")
    yield closed(asking)


@inlineCallbacks
def test_a_server_that_is_away() -> Generator[Deferred[Any], Any, None]:
    asking = client(1)
    with pytest.raises(RequestFailed, match="no answer: ConnectionRefusedError") as error:
        yield asking.request(b"POST", {}, b"hunter2")
    assert "hunter2" not in str(error.value)


@inlineCallbacks
def test_a_server_that_closes_its_connections(service: tuple[Service, int]) -> Generator[Deferred[Any], Any, None]:
    _, port = service
    asking = client(port, "/last")
    for _ in range(3):
        answer: Answer = yield asking.request(b"GET", {})
        assert answer.status == 200
    yield closed(asking)


class Agent:
    """An agent that never answers, and notes what is cancelled."""

    def __init__(self) -> None:
        self.requests: list[Deferred[Any]] = []
        self.cancelled = 0

    def request(self, *_: object) -> Deferred[Any]:
        self.requests.append(Deferred(self._cancelled))
        return self.requests[-1]

    def _cancelled(self, _: object) -> None:
        self.cancelled += 1


def test_requests_under_way_and_in_the_line_are_bounded() -> None:
    clock, agent = Clock(), Agent()
    asking = HTTPClient(agent, clock, "http://x/", Bounds(timeout=5, connections=2, queue=3))  # type: ignore[arg-type]
    failures: list[BaseException | None] = []

    def failed(failure: Failure) -> None:
        failures.append(failure.value)

    for _ in range(10):
        asking.request(b"GET", {}).addErrback(failed)
    assert len(agent.requests) == 2
    assert [type(each) for each in failures] == [Busy] * 5
    clock.advance(5)
    assert len(failures) == 10
    assert {str(each) for each in failures[5:]} == {"no answer within 5 s"}
    assert agent.cancelled == len(agent.requests)
    asking.request(b"GET", {}).addErrback(failed)
    assert asking._under_way == 1
    clock.advance(5)
    assert asking._under_way == 0
