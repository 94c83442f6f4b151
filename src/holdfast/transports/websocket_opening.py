"""The opening handshake of WebSocket: its request, its verdict, and the web pages that may connect."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

from attrs import frozen
from websockets.exceptions import SecurityError
from websockets.http11 import Request
from websockets.streams import StreamReader
from websockets.utils import accept_key

from holdfast.config.sections.endpoints import ANY_ORIGIN, NotAnOrigin, parse_origin

# The opening handshake: the beginning of the HTTP request, its verdict, and the answer.
#
# How it works. :class:`RequestHead` collects the request, and the library ``websockets`` parses it.
# :meth:`Opening.accept` compares it with RFC 6455 (4.2.1) and with the rules of the listener, and returns the answer
# 101. A request that is refused gets a status and a sentence that tells a person what is wrong. No extension is
# accepted: without compression, a small frame never becomes a large message.


#: Bytes of a request until its empty line. Browsers with many cookies send a few thousand.
LONGEST_HEAD = 16 * 1024

#: the names of the subprotocol: of the standard [MQTT5-6.0.0-4], and of MQTT 3.1; the first prevails
SUBPROTOCOLS = ("mqtt", "mqttv3.1")

_END = b"\r\n\r\n"
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LONGEST_METHOD = 7
_KEY_BYTES = 16
_PROXY = b"PROXY "

#: what the first byte tells of clients at the wrong port
_OTHER_PROTOCOLS = {0x10: "MQTT without WebSocket", 0x16: "TLS", ord("P"): "a header of the PROXY protocol"}

_GREETINGS = {
    405: "This is a broker for MQTT over WebSocket. It takes GET requests only.",
    426: "This is a broker for MQTT over WebSocket. Connect with an MQTT client, for example MQTT.js.",
}
_MORE_HEADERS = {405: "Allow: GET\r\n", 426: "Upgrade: websocket\r\n"}


@frozen
class Refused(Exception):
    """A request is refused with this HTTP status and explanation."""

    status: int
    explanation: str


class NotHTTP(Exception):
    """The received bytes are no HTTP request; the text tells what they seem to be."""


class RequestHead:
    """Collects the request until its empty line, which may arrive byte by byte."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Return the whole head and the bytes after it, or None until it is complete.

        Raises :class:`NotHTTP`, :class:`Refused`.
        """
        searched = max(0, len(self._data) - len(_END))
        collected = self._data = self._data + data
        method = collected[: _LONGEST_METHOD + 1].partition(b" ")[0]
        if len(method) > _LONGEST_METHOD or not _LETTERS.issuperset(method) or collected.startswith((_PROXY, b" ")):
            raise NotHTTP(_OTHER_PROTOCOLS.get(collected[0], "neither HTTP nor MQTT"))
        end = collected.find(_END, searched)
        if end < 0 and len(collected) < LONGEST_HEAD:
            return None
        end += len(_END)
        if not len(_END) <= end <= LONGEST_HEAD:
            raise Refused(431, f"the request has no end within {LONGEST_HEAD} bytes")
        return collected[:end], collected[end:]


@frozen
class Opening:
    """The rules for the requests of one listener. An empty ``path`` stands for any."""

    path: str
    origins: AllowedOrigins

    def accept(self, request: bytes) -> bytes:
        """Return the answer 101 to a whole request, up to its empty line. Raises :class:`Refused`."""
        target, headers = _parsed(request)
        key = _key_of(headers)
        offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]
        protocol = self._judge(target, headers, offered)
        return (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Protocol: {protocol}\r\nSec-WebSocket-Accept: {accept_key(key)}\r\n\r\n"
        ).encode()

    def _judge(self, target: str, headers: Mapping[str, str], offered: Sequence[str]) -> str:
        """Return the subprotocol. ``target`` is the path with its query, which is ignored."""
        if self.path and target.partition("?")[0] != self.path:
            raise Refused(404, f"MQTT is not at this path; it is at {self.path}")
        if not self.origins.allow(headers.get("origin"), headers.get("host", "")):
            raise Refused(
                403, "pages of this origin may not connect; the operator lists them in the listener's origins"
            )
        for name in SUBPROTOCOLS:
            if name in offered:
                return name
        raise Refused(400, "the request does not offer the subprotocol mqtt (Sec-WebSocket-Protocol: mqtt)")


def _parsed(request: bytes) -> tuple[str, Mapping[str, str]]:
    """Return the target and the header fields of a GET request of HTTP/1.1, their names in lower case."""
    reader = StreamReader()
    reader.feed_data(request)
    parsing = Request.parse(reader.read_line)
    try:
        next(parsing)
    except StopIteration as done:
        parsed: Request = done.value
    except SecurityError as error:
        raise Refused(431, f"the request is too large: {error}") from None
    except (ValueError, EOFError, NotImplementedError) as error:
        line = request.partition(b"\r\n")[0].decode("latin-1")
        raise Refused(400, f"the request is malformed: {error}; it begins with {line}") from None
    else:
        raise Refused(400, "the request is malformed")
    if parsed.protocol != "HTTP/1.1":
        raise Refused(505, f"the request is of {parsed.protocol}, not HTTP/1.1")
    if parsed.method != "GET":
        raise Refused(405, f"the method is {parsed.method}, not GET")
    headers = {name.lower(): ", ".join(parsed.headers.get_all(name)) for name in parsed.headers}
    _check_places(parsed.path, headers)
    return parsed.path, headers


def _check_places(target: str, headers: Mapping[str, str]) -> None:
    """Refuse a target, a host or an origin that is no such thing."""
    try:
        parts = urlsplit(target)
        host = urlsplit(f"//{_host_of(headers)}")
        _ = parts.port, host.port  # raises ValueError, too
        origin = headers.get("origin", "null")
        nowhere = origin != "null" and not origin.startswith("file:") and urlsplit(origin).hostname is None
    except ValueError as error:
        raise Refused(400, f"the request names an invalid place: {error}") from None
    if parts.fragment or "#" in target:
        raise Refused(400, "the target of the request has a fragment")
    if nowhere:
        raise Refused(400, "the Origin of the request has no host")


def _host_of(headers: Mapping[str, str]) -> str:
    if "host" not in headers:
        raise Refused(400, "the request has no Host")
    return headers["host"]


def _key_of(headers: Mapping[str, str]) -> str:
    """Return the key of an upgrade to WebSocket [RFC 6455, 4.2.1]."""
    upgrade = headers.get("upgrade")
    if upgrade is None:
        raise Refused(426, "the request does not ask for WebSocket (Upgrade: websocket)")
    if "websocket" not in _tokens(upgrade):
        raise Refused(400, f"the request asks for another protocol: {upgrade}")
    if "upgrade" not in _tokens(headers.get("connection", "")):
        raise Refused(400, "the request has no Connection: Upgrade")
    if headers.get("sec-websocket-version") != "13":
        raise Refused(400, "the request has no Sec-WebSocket-Version: 13")
    key = headers.get("sec-websocket-key", "")
    try:
        random = b64decode(key, validate=True)
    except ValueError:
        random = b""
    if len(random) != _KEY_BYTES:
        raise Refused(400, f"Sec-WebSocket-Key is not {_KEY_BYTES} bytes in base64")
    return key


def _tokens(value: str) -> list[str]:
    return [token.strip().lower() for token in value.split(",")]


def answer(refused: Refused) -> bytes:
    """Return the HTTP answer to a request that is refused. The connection is closed after it."""
    status = refused.status
    body = f"{_GREETINGS.get(status, 'This WebSocket is refused.')}\n{_shown(refused.explanation)}\n".encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{_MORE_HEADERS.get(status, '')}"
        f"Sec-WebSocket-Version: 13\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def _shown(text: str) -> str:
    """Return an explanation, which may quote the request, as one short line of plain characters."""
    return "".join(one if one.isascii() and one.isprintable() else "?" for one in text[:200])


# The web pages that may connect: the check of the Origin header.
#
# A browser tells with each WebSocket from which page it comes, and a page cannot change this. So the list keeps pages
# of strangers from using their visitors' browsers, which may be in a network that the strangers cannot reach. Clients
# that are no browsers send no Origin, or any.


class AllowedOrigins:
    """The origins that one listener allows: those of ``names``, or without names the host of the broker itself."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        names = tuple(names)
        self._any = ANY_ORIGIN in names
        self._named = frozenset(parse_origin(name) for name in names if name != ANY_ORIGIN)

    def allow(self, origin: str | None, host: str) -> bool:
        """Tell whether a page of this origin may connect, by a request with this Host header.

        None is a client without an Origin header: no browser.
        """
        if origin is None or self._any:
            return True
        try:
            scheme, name, port = parse_origin(origin)
            if self._named:
                return (scheme, name, port) in self._named
            # Host leaves the port out where it is the usual one of the scheme.
            return parse_origin(f"{scheme}://{host}")[1:] == (name, port)
        except NotAnOrigin:  # such as "null", the origin of files and of sandboxed pages
            return False
