"""The opening handshake: which requests are accepted, and what the others are told."""

from __future__ import annotations

import pytest

from holdfast.transports.websocket_opening import LONGEST_HEAD, AllowedOrigins, NotHTTP, RequestHead
from tests.transports.websocket.client import WebSocketDoor, log_lines, request

PAGE = "https://app.example"


@pytest.mark.parametrize(
    ("origins", "origin", "host", "allowed"),
    [
        ((), None, "a.example", True),  # no browser
        ((), "http://a.example", "a.example", True),
        ((), "https://a.example", "a.example", True),
        ((), "https://a.example", "a.example:443", True),
        ((), "http://a.example:9001", "a.example:9001", True),
        ((), "http://A.example:9001", "a.Example:9001", True),
        ((), "http://[::1]:9001", "[::1]:9001", True),
        ((), "http://a.example", "a.example:9001", False),
        ((), "http://b.example", "a.example", False),
        ((), "http://a.example.evil.example", "a.example", False),
        ((), "null", "a.example", False),
        ((), "null", "null", False),
        ((), "file://", "", False),
        ((), "", "", False),
        ((), "http://a.example@b.example", "b.example", False),
        ((), "http://a.example/path", "a.example", False),
        ((), "http://a.example:99999", "a.example:99999", False),
        ((), "http://a.example", "a.example@b.example", False),
        ((PAGE,), PAGE, "b.example", True),
        ((PAGE,), PAGE + ":443", "b.example", True),
        ((PAGE,), PAGE + ":8443", "b.example", False),
        ((PAGE,), "http://app.example", "b.example", False),
        ((PAGE,), "https://b.example", "b.example", False),  # the list says all
        ((PAGE,), None, "b.example", True),
        ((PAGE,), "null", "b.example", False),
        (("*",), "null", "b.example", True),
        (("*",), "https://any.example", "b.example", True),
    ],
)
def test_origins(origins: tuple[str, ...], origin: str | None, host: str, allowed: bool) -> None:
    assert AllowedOrigins(origins).allow(origin, host) is allowed


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [("mqtt", b"mqtt"), ("mqttv3.1", b"mqttv3.1"), ("mqttv3.1, mqtt", b"mqtt"), ("soap, mqtt", b"mqtt")],
)
def test_the_answer_names_the_subprotocol_and_nothing_of_the_software(offered: str, chosen: bytes) -> None:
    """The subprotocol is mqtt [MQTT311-6.0.0-4], [MQTT5-6.0.0-4], unless the client knows only the one of MQTT 3.1."""
    door = WebSocketDoor()
    answer = door.send(door.accept(), request(Sec_WebSocket_Protocol=offered))
    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Sec-WebSocket-Protocol: " + chosen + b"\r\n" in answer
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer  # the example of RFC 6455, 1.3
    assert b"Server:" not in answer
    assert b"utobahn" not in answer


def test_compression_is_not_agreed() -> None:
    door = WebSocketDoor()
    answer = door.send(door.accept(), request(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"Extensions" not in answer


@pytest.mark.parametrize("target", ["/", "/ws", "/mqtt", "/mqtt/", "/mqtt?token=x", "//"])
def test_any_path_is_accepted_unless_the_listener_has_one(target: str) -> None:
    """MQTT.js without a path in its URL connects to /, others to /ws or /mqtt/: as with mosquitto, all may."""
    for path, accepted in (("", True), ("/mqtt", target.partition("?")[0] == "/mqtt")):
        door = WebSocketDoor(path=path)
        answer = door.send(door.accept(), request(f"GET {target} HTTP/1.1"))
        assert answer.startswith(b"HTTP/1.1 101 " if accepted else b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(Sec_WebSocket_Protocol=None), 400),
        (request(Sec_WebSocket_Protocol="soap"), 400),
        (request(Sec_WebSocket_Protocol="MQTT"), 400),
        (request("GET / HTTP/1.1"), 404),
        (request("GET /mqtt/ HTTP/1.1"), 404),
        (request("GET //mqtt HTTP/1.1"), 404),
        (request("GET /mqtt;a HTTP/1.1"), 404),
        (request("GET http://evil.example/mqtt HTTP/1.1"), 404),
        (request(Origin="https://evil.example"), 403),
        (request(Origin="null"), 403),
        (request(Origin="https://"), 400),
        (request(Upgrade=None), 426),
        (request("GET /mqtt HTTP/1.1", Upgrade="h2c"), 400),
        (request(Connection="close"), 400),
        (request(Sec_WebSocket_Version="8"), 400),
        (request(Sec_WebSocket_Version="x"), 400),
        (request(Sec_WebSocket_Version=None), 400),
        (request(Sec_WebSocket_Key=None), 400),
        (request(Sec_WebSocket_Key="short"), 400),
        (request(Sec_WebSocket_Key="\xff" * 22 + "=="), 400),
        (request(Host=None), 400),
        (request(Host="a:b"), 400),
        (request("POST /mqtt HTTP/1.1"), 405),
        (request("HEAD / HTTP/1.1"), 405),
        (request("GET /mqtt HTTP/1.0"), 505),
        (request("GET /mqtt"), 400),
        (request("GET /mqtt#x HTTP/1.1"), 400),
        (request("GET http://[ HTTP/1.1"), 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 426),
        (b"GET /mqtt HTTP/1.1\r\n" + b"Cookie: " + b"x" * LONGEST_HEAD, 431),
        (request(Cookie="x" * LONGEST_HEAD), 431),
        (request(Cookie="x" * 9000), 431),  # of one line
        (b"GET /mqtt HTTP/1.1\nHost: a\r\n\r\n", 400),
    ],
)
def test_another_request_gets_an_answer_and_is_closed(data: bytes, status: int) -> None:
    door = WebSocketDoor()
    protocol = door.accept()
    with log_lines() as lines:
        answer = door.send(protocol, data)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert body.endswith(b"\n")
    assert b"utobahn" not in answer
    assert protocol.transport.disconnecting
    assert len(lines) == 1
    assert f"{status}," in lines[0]


def test_a_plain_request_is_told_what_this_is() -> None:
    door = WebSocketDoor()
    answer = door.send(door.accept(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"MQTT over WebSocket" in answer
    assert b"\r\nUpgrade: websocket\r\n" in answer


def test_an_answer_quotes_a_request_in_plain_characters_only() -> None:
    door = WebSocketDoor()
    answer = door.send(door.accept(), request("GET /\x7f\xe9 /mqtt HTTP/1.1"))
    assert b"GET /?? " in answer
    assert answer.isascii()
    assert answer.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize(
    ("data", "seems"),
    [
        (b"\x10\x0c\0\4MQTT", "MQTT without WebSocket"),
        (b"\x16\x03\x01", "TLS"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.9 5555 1883\r\n", "a header of the PROXY protocol"),
        (b"\0", "neither HTTP nor MQTT"),
        (b" ", "neither HTTP nor MQTT"),
        (b"get / HTTP/1.1\r\n", "neither HTTP nor MQTT"),
        (b"ABCDEFGHIJ", "neither HTTP nor MQTT"),
        (b"\r\n\r\n", "neither HTTP nor MQTT"),
    ],
)
def test_what_is_no_request_is_closed_at_once_with_one_line(data: bytes, seems: str) -> None:
    door = WebSocketDoor()
    protocol = door.accept()
    with log_lines() as lines:
        assert door.send(protocol, data) == b""
    assert protocol.transport.disconnecting
    assert len(lines) == 1
    assert seems in lines[0]
    assert door.broker.counters.protocol_errors == 1


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_request_may_arrive_in_any_pieces_with_bytes_after_it(size: int) -> None:
    head = RequestHead()
    data = request()
    whole = data + b"\x82\x80"
    found = None
    for start in range(0, len(whole), size):
        found = head.feed(whole[start : start + size])
        if found is not None:
            break
    assert found is not None
    assert found[0] == data
    assert whole.startswith(found[0] + found[1])


def test_the_beginning_of_a_method_is_not_judged_yet() -> None:
    head = RequestHead()
    assert head.feed(b"G") is None
    with pytest.raises(NotHTTP):
        head.feed(b"\0")
