"""Clients that send many requests at once, or lengths that no body has."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.call import ANYONE, Answer, Call, answer
from holdfast.admin.http import site
from tests.admin.test_site import HTTPClient

GET = b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n"


class Paths:
    """Answers each call with its path at once, or when ``waiting`` fires."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.waiting: Deferred[Answer] | None = None

    def __call__(self, call: Call) -> Deferred[Answer]:
        self.paths.append(call.path)
        waiting, self.waiting = self.waiting, None
        return waiting or succeed(answer(call.path))


class TurnByTurn:
    """A reactor whose turns are run one at a time; Twisted's clock runs in one go what needs no time."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def callLater(self, _delay: float, call: Callable[[], None]) -> object:
        self._calls.append(call)
        return call

    def turn(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()


def requests(first: int, end: int) -> bytes:
    return b"".join(GET % number for number in range(first, end))


def bodies(line: HTTPClient) -> list[str]:
    """Return the answers, in the order in which they were sent."""
    found = [json.loads(part.rpartition(b"\r\n")[2]) for part in line.transport.value().split(b"HTTP/1.1 200 OK")[1:]]
    line.transport.clear()
    return found


def test_a_turn_of_the_reactor_answers_few_requests() -> None:
    """A thousand requests in one packet delay no other client."""
    paths = Paths()
    line, reactor = HTTPClient(paths), TurnByTurn()
    line.site.turns = site.turns_of_requests(cast("Any", reactor))
    line.channel.dataReceived(requests(0, 100))
    assert len(paths.paths) == 1
    for _ in range(99):
        before = len(paths.paths)
        reactor.turn()
        assert len(paths.paths) == before + 1
    assert bodies(line) == [f"/{number}" for number in range(100)]


def test_connections_share_the_requests_of_a_turn() -> None:
    paths = Paths()
    line, reactor = HTTPClient(paths), TurnByTurn()
    line.site.turns = site.turns_of_requests(cast("Any", reactor))
    channels = [line.channel, *(line.connect()[1] for _ in range(20))]
    for channel in channels:
        channel.dataReceived(requests(0, 10))
    assert len(paths.paths) == len(channels)
    for count in range(1, 10):
        reactor.turn()
        assert len(paths.paths) == len(channels) + count * site.MOST_REQUESTS


def test_no_request_is_answered_while_its_client_takes_no_answers() -> None:
    """Else the answers would fill the memory."""
    paths = Paths()
    line = HTTPClient(paths)
    line.channel.dataReceived(requests(0, 50))
    line.channel.pauseProducing()
    line.clock.pump([0] * 100)
    assert len(paths.paths) == 1
    assert line.transport.producerState == "paused"
    line.channel.resumeProducing()
    line.clock.pump([0] * 100)
    assert bodies(line) == [f"/{number}" for number in range(50)]
    assert line.transport.producerState == "producing"


def test_a_client_that_takes_no_answers_and_sends_on_is_not_read() -> None:
    paths, paused = Paths(), []
    paths.waiting = waiting = Deferred[Answer]()
    line = HTTPClient(paths)
    line.channel.dataReceived(requests(0, 1))
    line.channel.pauseProducing()
    line.transport.pauseProducing = lambda: paused.append(True)
    line.channel.dataReceived(requests(1, 2000))
    assert paused
    waiting.callback(answer("first"))
    assert len(paths.paths) == 1


def test_requests_behind_a_body_are_answered() -> None:
    paths = Paths()
    line = HTTPClient(paths)
    post = b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    line.channel.dataReceived(post % 0 + requests(1, 3) + post % 3 + requests(4, 5))
    line.clock.pump([0] * 20)
    assert bodies(line) == ["/0", "/1", "/2", "/3", "/4"]


def test_requests_behind_a_slow_one_are_answered_in_order() -> None:
    paths = Paths()
    paths.waiting = waiting = Deferred[Answer]()
    line = HTTPClient(paths)
    line.channel.dataReceived(requests(0, 3))
    line.channel.dataReceived(requests(3, 5))
    line.clock.pump([0] * 20)
    assert paths.paths == ["/0"]
    waiting.callback(answer("slow"))
    line.clock.pump([0] * 20)
    assert bodies(line) == ["slow", "/1", "/2", "/3", "/4"]


def test_a_client_that_leaves_leaves_the_line() -> None:
    paths = Paths()
    line = HTTPClient(paths)
    line.channel.dataReceived(requests(0, 9))
    line.transport.loseConnection()
    line.channel.connectionLost(None)
    line.clock.pump([0] * 20)
    assert len(paths.paths) == 1


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_length_with_very_many_digits_is_refused(digits: int) -> None:
    """Python can neither read the longer one, nor divide the shorter one: both were unexpected errors in the log."""
    paths = Paths()
    line = HTTPClient(paths)
    line.send("POST / HTTP/1.1", f"Content-Length: {'9' * digits}")
    assert line.answered()[0] == 400
    line.channel.dataReceived(GET % 1)
    assert (line.transport.value(), paths.paths) == (b"", [])


def test_a_stranger_has_the_time_of_a_short_body_only() -> None:
    """The time of a body without an announced length is that of the longest body which its sender may send."""
    line = HTTPClient(Paths(), most_bytes=1 << 30)
    line.site.identify = lambda _channel, _head: ANYONE
    line.send("POST / HTTP/1.1", "Transfer-Encoding: chunked")
    for _ in range(4):
        line.clock.advance(10)
        line.channel.dataReceived(b"1\r\nx\r\n")
    assert line.transport.aborted
