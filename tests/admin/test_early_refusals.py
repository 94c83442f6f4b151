"""Requests that are refused before they have arrived as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.callers.caller import ANYONE, Caller
from holdfast.admin.calls.call import Answer, Call, answer
from holdfast.admin.http.early import LINGER
from holdfast.admin.http.request import STRANGERS_TARGET
from tests.admin.test_site import HTTPClient


def shown(call: Call) -> Deferred[Answer]:
    return succeed(answer({"path": call.path, "arguments": dict(call.arguments)}))


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ([f"GET /?topic={'x' * ((1 << 18) + 64)} HTTP/1.1"], 414),
        (["GET / HTTP/1.1", f"A: {'b' * (1 << 14)}"], 431),
        (["GET / HTTP/1.1", *[f"A{n}: {'b' * 1000}" for n in range(17)]], 431),
        (["GET / HTTP/1.1", "A: b" + "c" * (1 << 19)], 431),
        (["GET / HTTP/1.1", *["A: b"] * 200], 400),
        (["GET / HTTP/1.1", "A b: c", "D: e"], 400),
        (["GET"], 400),
        (["POST / HTTP/1.1", "Content-Length: x"], 400),
    ],
)
def test_a_head_that_cannot_be_read_is_answered(head: list[str], status: int) -> None:
    """The answer is a problem in JSON, whose length is known, not a connection that is simply closed."""
    line = HTTPClient(shown)
    found, text, body = line.ask(*head)
    assert found == status
    assert json.loads(body)["status"] == status
    assert f"Content-Length: {len(body)}" in text
    assert "Connection: close" in text


def test_a_client_that_still_sends_can_read_its_refusal() -> None:
    """A connection that is closed with unread bytes is reset, and its client may lose the answer.

    So the connection ends when the client has sent everything, or some seconds later.
    """
    line = HTTPClient(shown)
    assert line.ask("POST / HTTP/1.1", "Content-Length: 2000", "Expect: 100-continue")[0] == 413
    line.channel.dataReceived(b"x" * 1999)
    assert not line.transport.disconnecting
    line.channel.dataReceived(b"x")
    assert line.transport.disconnecting
    line = HTTPClient(shown)
    assert line.ask("BAD")[0] == 400
    for _ in range(5):
        line.channel.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
        assert line.transport.value() == b""
        assert not line.transport.aborted
        line.clock.advance(LINGER / 5)
    assert line.transport.aborted


def test_the_longest_topic_fits_into_a_query() -> None:
    """65,535 bytes, each of them percent-encoded."""
    line = HTTPClient(shown)
    status, _, body = line.ask(f"GET /?topic={'%41' * 65_535} HTTP/1.1")
    assert (status, json.loads(body)["arguments"]["topic"]) == (200, "A" * 65_535)


def test_a_stranger_sends_short_requests() -> None:
    """Long ones take time to decode."""

    def stranger(_channel: Any, _head: object) -> Caller:
        return ANYONE

    line = HTTPClient(shown)
    line.site.identify = stranger
    assert line.ask(f"GET /?topic={'x' * 8000} HTTP/1.1")[0] == 200
    assert line.ask(f"GET /?topic={'x' * STRANGERS_TARGET} HTTP/1.1")[0] == 414
