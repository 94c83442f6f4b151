"""The API over HTTP: limits of requests and connections, and the sending of answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent
from twisted.python.failure import Failure
from twisted.web.server import Site

from holdfast.admin.call import ANYONE, NDJSON, Answer, Call, Caller, Head, Scope, answer, unauthorized
from holdfast.admin.callers import UNKNOWN
from holdfast.admin.http.answers import STALLED_SECONDS
from holdfast.admin.http.site import APISite, longest_body
from tests.admin.doubles import Desk

PATH = "/api/v5/mqtt/retainer"


class Transport(StringTransport):
    """A transport in memory that can be aborted."""

    aborted = False

    def abortConnection(self) -> None:
        self.aborted = True
        StringTransport.loseConnection(self)

    def setTcpNoDelay(self, enabled: bool) -> None:
        pass


class HTTPClient:
    """One connection to a site."""

    def __init__(self, answering: Callable[[Call], Deferred[Answer]], most_bytes: int = 1000) -> None:
        self.clock = Clock()
        self.site = APISite(answering, lambda _method, _path: most_bytes, self.clock)
        self.transport, self.channel = self.connect()

    def connect(self) -> tuple[Any, Any]:
        transport: Any = Transport()  # type: ignore[no-untyped-call]
        channel: Any = Site.buildProtocol(self.site, None)
        channel.makeConnection(transport)
        return transport, channel

    def send(self, *lines: str, body: bytes = b"") -> None:
        host = () if any(each.startswith("Host:") for each in lines) else ("Host: x",)
        head = "".join(f"{each}\r\n" for each in (*lines, *host, ""))
        self.channel.dataReceived(head.encode("latin-1") + body)

    def ask(self, *lines: str, body: bytes = b"") -> tuple[int, str, bytes]:
        """Send a request; return status, head and body of its answer."""
        self.send(*lines, body=body)
        return self.answered()

    def answered(self) -> tuple[int, str, bytes]:
        head, _, body = self.transport.value().partition(b"\r\n\r\n")
        self.transport.clear()
        return int(head.split()[1]), head.decode(), body


def desk_line(desk: Desk) -> HTTPClient:
    return HTTPClient(desk.table.answer)


def test_a_call() -> None:
    """Topics travel percent-encoded; several calls share a connection."""
    desk = Desk()
    desk.retain("a/+b".replace("+", " "))
    line = desk_line(desk)
    for uri in (f"{PATH}/message/a%2F%20b", f"{PATH}/message/a/%20b"):
        status, head, body = line.ask(f"GET {uri} HTTP/1.1")
        assert status == 200
        assert "Content-Type: application/json" in head
        assert json.loads(body)["topic"] == "a/ b"
    body = b'{"topic": "n", "payload": "x"}'
    assert line.ask(f"POST {PATH}/messages HTTP/1.1", f"Content-Length: {len(body)}", body=body)[0] == 204
    assert desk.topics() == ["a/ b", "n"]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/", 404),
        (PATH + "/messages?limit=%ff", 400),
        (PATH + "/messages?" + "&".join(f"a{n}=1" for n in range(30)), 400),
        (PATH + "/messages?limit=1&limit=2", 400),
        (PATH + "/message/%ff", 400),
        (PATH + "/message/%00", 400),
    ],
)
def test_bad_requests_get_an_answer_in_json(target: str, status: int) -> None:
    found, _, body = desk_line(Desk()).ask(f"GET {target} HTTP/1.1")
    assert found == status
    assert json.loads(body)["status"] == status


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_long_is_refused_while_it_comes_in(announced: bool) -> None:
    calls: list[Call] = []
    line = HTTPClient(lambda call: succeed(calls.append(call) or answer({})))  # type: ignore[func-returns-value]
    if announced:
        line.send("POST / HTTP/1.1", "Content-Length: 1001")
    else:
        line.send("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=b"3e9\r\n" + b"x" * 1001 + b"\r\n")
    status, _, body = line.answered()
    assert status == 413
    assert json.loads(body)["message"] == "the body of this call has at most 1000 bytes"
    line.channel.dataReceived(b"x" * 1001 if announced else b"0\r\n\r\n")
    assert line.transport.disconnecting
    assert calls == []


def test_a_body_within_the_limit_arrives() -> None:
    calls: list[Call] = []
    line = HTTPClient(lambda call: succeed(calls.append(call) or answer({})))  # type: ignore[func-returns-value]
    assert line.ask("POST / HTTP/1.1", "Content-Length: 1000", body=b"x" * 1000)[0] == 200
    assert [(call.method, call.path, call.body, call.caller) for call in calls] == [("POST", "/", b"x" * 1000, UNKNOWN)]
    assert longest_body(1 << 20) == 18 << 20
    assert longest_body(0) > 2 << 28


def test_connections_are_limited_in_number() -> None:
    line = desk_line(Desk())
    others = [line.connect()[0] for _ in range(64)]
    assert [transport.aborted for transport in others] == [False] * 63 + [True]


def test_a_client_that_sends_nothing_is_disconnected() -> None:
    line = desk_line(Desk())
    line.clock.advance(61)
    assert line.transport.disconnecting


def test_a_request_that_arrives_drop_by_drop_is_ended() -> None:
    """Bytes in between do not prolong the time of the head."""
    line = desk_line(Desk())
    line.channel.dataReceived(b"GET / HTTP/1.1\r\n")
    for _ in range(4):
        line.clock.advance(10)
        line.channel.dataReceived(b"A: b\r\n")
    assert line.transport.aborted


def test_a_body_that_arrives_too_slowly_is_ended() -> None:
    line = HTTPClient(lambda _: succeed(answer({})), most_bytes=1 << 20)
    line.send("POST / HTTP/1.1", f"Content-Length: {1 << 20}")
    for _ in range(9):
        line.clock.advance(10)
        line.channel.dataReceived(b"x")
    assert not line.transport.aborted
    line.clock.advance(10)
    assert line.transport.aborted


def test_an_answer_may_take_longer_than_a_request() -> None:
    waiting: Deferred[Answer] = Deferred()
    answers = [succeed(answer({})), waiting]
    line = HTTPClient(lambda _: answers.pop())
    line.send("GET / HTTP/1.1")
    line.clock.advance(1000)
    waiting.callback(answer({"late": True}))
    assert b'"late": true' in line.answered()[2]
    line.send("GET / HTTP/1.1")  # the connection goes on, and has its time again
    assert line.answered()[0] == 200


def test_head_has_the_headers_of_get_and_no_body() -> None:
    line = HTTPClient(lambda _: succeed(answer({"a": 1})))
    status, head, body = line.ask("HEAD / HTTP/1.1")
    assert (status, body) == (200, b"")
    assert "Content-Length: 9" in head


def test_every_answer_forbids_browsers_to_guess_frame_or_keep_it() -> None:
    line = HTTPClient(lambda _: succeed(answer({})))
    _, head, _ = line.ask("GET / HTTP/1.1")
    for header in ("X-Content-Type-Options: nosniff", "Cache-Control: no-store", "X-Frame-Options: DENY",
                   "Referrer-Policy: no-referrer", "Content-Security-Policy: default-src 'none'"):  # fmt: skip
        assert header in head
    assert "Server:" not in head


def test_callers_without_rights_send_short_bodies_only() -> None:
    """A stranger costs no more memory than a login needs."""
    line = HTTPClient(lambda _: succeed(answer({})), most_bytes=1 << 20)
    line.site.identify = lambda _channel, _head: ANYONE
    line.send("POST / HTTP/1.1", f"Content-Length: {(1 << 16) + 1}")
    status, _, body = line.answered()
    assert status == 413
    assert "without an API key" in json.loads(body)["message"]


@pytest.mark.parametrize("delay", [0.0, 4.0])
def test_a_caller_who_is_refused_reaches_no_handler(delay: float) -> None:
    """The answer to a wrong key may wait."""
    calls: list[Call] = []
    line = HTTPClient(lambda call: succeed(calls.append(call) or answer({})))  # type: ignore[func-returns-value]

    def refuse(_channel: object, _head: object) -> Caller:
        raise unauthorized("no", delay)

    line.site.identify = refuse
    line.send("GET / HTTP/1.1")
    line.clock.advance(delay)
    assert line.answered()[0] == 401
    assert calls == []


def stream(pieces: list[Any]) -> Callable[[Call], Deferred[Answer]]:
    """Answer with these pieces, each when its Deferred fires."""

    def more() -> Deferred[bytes]:
        piece = pieces.pop(0)
        return piece if isinstance(piece, Deferred) else succeed(piece)

    return lambda _: succeed(Answer(content_type=NDJSON, more=more))


def test_a_long_answer_goes_out_piece_by_piece() -> None:
    """The next piece is fetched only when the client has received the last one."""
    pieces: list[Any] = [b"one\n", b"two\n", b"three\n", b""]
    line = HTTPClient(stream(pieces))
    line.send("GET / HTTP/1.1")
    assert len(pieces) == 3
    producer: Any = line.transport.producer
    producer.pauseProducing()
    line.clock.pump([0, 0, 0])
    assert len(pieces) == 3
    producer.resumeProducing()
    line.clock.pump([0] * 4)
    assert pieces == []
    status, head, body = line.answered()
    assert (status, "application/x-ndjson" in head) == (200, True)
    assert body == b"4\r\none\n\r\n4\r\ntwo\n\r\n6\r\nthree\n\r\n0\r\n\r\n"


def test_nothing_is_fetched_twice() -> None:
    """Also if the client resumes while a piece is being fetched."""
    first: Deferred[bytes] = Deferred()
    pieces: list[Any] = [first, b"two", b""]
    line = HTTPClient(stream(pieces))
    line.send("GET / HTTP/1.1")
    producer: Any = line.transport.producer
    producer.pauseProducing()
    producer.resumeProducing()
    assert len(pieces) == 2
    first.callback(b"one")
    line.clock.pump([0] * 4)
    assert line.answered()[2] == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


def test_an_answer_that_breaks_off_has_no_end() -> None:
    """So the client knows that the answer is incomplete."""
    broken: Deferred[bytes] = Deferred()
    line = HTTPClient(stream([b"one", broken]))
    line.send("GET / HTTP/1.1")
    line.clock.advance(0)
    broken.errback(ValueError("gone"))
    assert line.transport.aborted
    assert b"0\r\n\r\n" not in line.transport.value()


def watched(pieces: list[Any], over: list[bool]) -> Callable[[Call], Deferred[Answer]]:
    """Answer with these pieces, and note the end."""

    def more() -> Deferred[bytes]:
        piece = pieces.pop(0)
        return piece if isinstance(piece, Deferred) else succeed(piece)

    return lambda _: succeed(Answer(more=more, stopped=lambda: over.append(True)))


def test_the_source_of_an_answer_is_told_once_that_it_is_over() -> None:
    """When it is complete, and when the client goes while it is read slowly or waited for."""
    over: list[bool] = []
    line = HTTPClient(watched([b"one", b""], over))
    line.send("GET / HTTP/1.1")
    line.clock.pump([0, 0])
    assert over == [True]
    for waits in (True, False):
        over.clear()
        line = HTTPClient(watched([Deferred() if waits else b"one", Deferred()], over))
        line.send("GET / HTTP/1.1")
        if not waits:
            line.transport.producer.pauseProducing()
        line.channel.connectionLost(Failure(ConnectionLost()))
        assert over == [True]
    over.clear()
    line = HTTPClient(watched([b"one", b""], over))
    line.send("HEAD / HTTP/1.1")
    assert over == [True]


def test_a_client_that_takes_nothing_is_disconnected() -> None:
    over: list[bool] = []
    line = HTTPClient(watched([b"one", b"two"], over))
    line.send("GET / HTTP/1.1")
    line.transport.producer.pauseProducing()
    line.clock.advance(STALLED_SECONDS + 1)
    assert line.transport.aborted
    assert over == [True]


def test_events_have_no_time_limit() -> None:
    """A client that takes every piece stays, however seldom they come."""
    second: Deferred[bytes] = Deferred()
    line = HTTPClient(watched([b"one", second, Deferred()], []))
    line.send("GET / HTTP/1.1")
    line.clock.advance(5000)
    second.callback(b"two")
    assert line.answered()[2] == b"3\r\none\r\n3\r\ntwo\r\n"
    assert not line.transport.disconnecting


@pytest.mark.parametrize("slow", [False, True])
def test_a_long_answer_breaks_off_within_a_second_of_its_callers_end(slow: bool) -> None:
    """One whose key is revoked gets no more of it: not of an export, nor of events that may never come."""
    over: list[bool] = []
    line = HTTPClient(watched([b"one", Deferred()], over))
    current = True
    line.site.goes_on = lambda _channel, _head, _caller: current
    line.send("GET / HTTP/1.1")
    if slow:
        line.transport.producer.pauseProducing()
    line.clock.pump([0.2] * 12)
    assert not line.transport.aborted
    current = False
    line.clock.pump([0.1] * 10)
    assert (line.transport.aborted, over) == (True, [True])
    assert not line.transport.value().endswith(b"0\r\n\r\n")
    sent = line.transport.value()
    line.clock.pump([1] * 3)
    assert line.transport.value() == sent


def test_a_caller_whose_key_ends_while_a_body_arrives_changes_nothing() -> None:
    calls: list[Call] = []
    line = HTTPClient(lambda call: succeed(calls.append(call) or answer({})))  # type: ignore[func-returns-value]
    line.site.goes_on = lambda _channel, _head, _caller: False
    line.send("PUT / HTTP/1.1", "Content-Length: 2", body=b"{}")
    assert line.answered()[0] == 401
    assert calls == []


@pytest.mark.parametrize("target", ["http://127.0.0.1/", "evil.example:80", "@127.0.0.1/"])
def test_the_target_of_a_request_is_a_path(target: str) -> None:
    """One with a host could say another host than the header that is checked."""
    calls: list[Call] = []
    line = HTTPClient(lambda call: succeed(calls.append(call) or answer({})))  # type: ignore[func-returns-value]
    assert line.ask(f"GET {target} HTTP/1.1")[0] == 400
    assert calls == []


@pytest.mark.parametrize("streaming", [True, False])
def test_the_call_of_a_client_that_leaves_is_cancelled(streaming: bool, logged_failures: list[LogEvent]) -> None:
    cancelled: list[object] = []
    waiting: Deferred[Any] = Deferred(cancelled.append)
    line = HTTPClient(stream([waiting]) if streaming else lambda _: waiting)
    line.send("GET / HTTP/1.1")
    line.site.abort()
    assert line.transport.aborted
    line.channel.connectionLost(Failure(ConnectionLost()))
    assert cancelled == [waiting]
    assert logged_failures == []
    assert len(line.site.connections) == 0


def test_the_answer_to_a_wrong_login_waits() -> None:
    line = HTTPClient(lambda _: succeed(Answer(401, delay=3.0)))
    line.send("POST / HTTP/1.1")
    line.clock.advance(2.9)
    assert line.transport.value() == b""
    line.clock.advance(0.1)
    assert line.answered()[0] == 401


def test_callers_who_may_only_read_send_short_bodies_only() -> None:
    line = HTTPClient(lambda _: succeed(answer({})), most_bytes=1 << 20)
    line.site.identify = lambda _channel, _head: Caller(scopes=frozenset({Scope.READ}))
    line.send("POST / HTTP/1.1", f"Content-Length: {(1 << 16) + 1}")
    assert line.answered()[0] == 413


@pytest.mark.parametrize(
    ("lines", "without"),
    [
        (("GET /readyz HTTP/1.0",), True),
        (("GET /readyz HTTP/1.0", "Host: x"), False),
        (("GET /readyz HTTP/1.0", "Host: x", "Host: y"), False),
        (("GET /readyz HTTP/1.1",), False),
    ],
)
def test_only_http_1_0_needs_no_host(lines: tuple[str, ...], without: bool) -> None:
    """The check of a load balancer leaves it out. With HTTP/1.1, each request has one (RFC 9112, 3.2)."""
    heads: list[Head] = []

    def identify(_channel: Any, head: Head) -> Caller:
        heads.append(head)
        return ANYONE

    client = HTTPClient(lambda _: succeed(Answer()))
    client.site.identify = identify
    client.channel.dataReceived("".join(f"{each}\r\n" for each in (*lines, "")).encode())
    assert [head.is_without_host for head in heads] == [without]
