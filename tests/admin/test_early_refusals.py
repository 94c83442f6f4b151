"""Requests that are refused before they have arrived as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from holdfast.admin.call import ANYONE, Answer, Call, Caller, answer, unauthorized
from holdfast.admin.http.request import STRANGERS_TARGET
from holdfast.admin.http.site import LINGER_SECONDS
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
        line.clock.advance(LINGER_SECONDS / 5)
    assert line.transport.aborted


def test_the_longest_topic_fits_into_a_query() -> None:
    """65,535 bytes, each of them percent-encoded."""
    line = HTTPClient(shown)
    status, _, body = line.ask(f"GET /?topic={'%41' * 65_535} HTTP/1.1")
    assert (status, json.loads(body)["arguments"]["topic"]) == (200, "A" * 65_535)


def stranger(_channel: Any, _head: object) -> Caller:
    return ANYONE


def test_a_stranger_sends_short_requests() -> None:
    """Long ones take time to decode."""
    line = HTTPClient(shown)
    line.site.identify = stranger
    assert line.ask(f"GET /?topic={'x' * 8000} HTTP/1.1")[0] == 200
    assert line.ask(f"GET /?topic={'x' * STRANGERS_TARGET} HTTP/1.1")[0] == 414


@pytest.mark.parametrize("refused", [True, False])
def test_the_long_target_of_a_stranger_is_not_decoded(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    """It is refused when its head has arrived, before its body. A refused login is refused as ever: no sooner."""
    decoded: list[int] = []

    def decode(text: bytes | str, *_rest: object, **_more: object) -> Any:
        decoded.append(len(text))
        return {} if isinstance(text, bytes) else []

    monkeypatch.setattr("twisted.web.http.parse_qs", decode)
    monkeypatch.setattr("holdfast.admin.http.request.parse_qsl", decode)

    def unknown(_channel: Any, _head: object) -> Caller:
        raise unauthorized("this key is unknown")

    line = HTTPClient(shown)
    line.site.identify = unknown if refused else stranger
    target = f"/?topic={'%41' * 80_000}"
    status, _, _ = line.ask(f"GET {target} HTTP/1.1")
    assert status == (401 if refused else 414)
    assert line.transport.disconnecting is not refused
    line = HTTPClient(shown)
    line.site.identify = unknown if refused else stranger
    line.send(f"POST {target} HTTP/1.1", "Content-Length: 10")
    assert bool(line.transport.value()) is not refused
    assert decoded == []


def test_the_query_string_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker does it, and Twisted does not."""
    monkeypatch.setattr("twisted.web.http.parse_qs", None)
    status, _, body = HTTPClient(shown).ask("GET /a%2Fb?topic=x%2By HTTP/1.1")
    assert (status, json.loads(body)) == (200, {"path": "/a%2Fb", "arguments": {"topic": "x+y"}})
