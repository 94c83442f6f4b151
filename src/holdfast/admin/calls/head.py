"""The head of a request: its target and its sender."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from holdfast.admin.callers.caller import Caller
from holdfast.admin.calls.cookies import cookie_names
from holdfast.peers.address import Peer, peer_of

#: what proxies add to requests: the address of their client, or that they are there
_OF_PROXIES = (
    b"forwarded", b"via", b"x-forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip",
)  # fmt: skip


@frozen(kw_only=True)
class Head:
    """The parts of a head that identify the caller. A missing part is None.

    ``peer`` is the other end of the connection. It is ``proxied`` if the head has a header that proxies add.
    """

    method: str
    peer: Peer
    secure: bool = False
    #: X-Forwarded-For and X-Forwarded-Proto, which may be the client's own words
    forwarded_for: str | None = None
    forwarded_proto: str | None = None
    host: str | None = None
    #: whether the request has no Host and needs none: one of HTTP/1.0
    is_without_host: bool = False
    origin: str | None = None
    authorization: str | None = None
    cookie: str | None = None
    csrf: str | None = None
    #: Accept-Encoding and If-None-Match
    encodings: str | None = None
    etags: str | None = None
    #: Last-Event-ID: where a stream of events broke off
    last_event: str | None = None
    #: Prefer (RFC 7240)
    prefer: str | None = None

    @property
    def changes(self) -> bool:
        """Whether the call may change something."""
        return self.method not in ("GET", "HEAD", "OPTIONS")

    @property
    def prefers_job(self) -> bool:
        """Whether the caller wants a job at once rather than the result later: ``Prefer: respond-async``."""
        return "respond-async" in self._preferences

    @property
    def prefers_wait(self) -> int | None:
        """The seconds that the caller wants to wait for the answer: ``Prefer: wait=N``. None if it names none."""
        wanted = [text for each in self._preferences if (text := each.removeprefix("wait=")) != each]
        return int(wanted[0][:4]) if wanted and wanted[0].isascii() and wanted[0].isdigit() else None

    @property
    def _preferences(self) -> list[str]:
        """The preferences without their parameters, in lower case."""
        return [each.partition(";")[0].strip() for each in (self.prefer or "").lower().split(",")]


#: Returns who calls, from the transport and the head. Raises RefusedCall.
Identify = Callable[[Any, Head], Caller]
#: Tells whether a caller who was found may still make the call.
GoesOn = Callable[[Any, Head, Caller], bool]
#: Returns the head with the address of the client, which a trusted proxy tells. Raises RefusedCall.
Unwrap = Callable[[Head], Head]


def head_of(request: Any, method: bytes) -> Head:
    """Return the head of a request whose headers have arrived."""

    def header(name: bytes) -> str | None:
        values = request.requestHeaders.getRawHeaders(name)
        return values[0].decode("utf-8", "replace") if values and len(values) == 1 else None

    headers, host, secure = request.requestHeaders, header(b"host"), bool(request.isSecure())
    cookies = (request.getCookie(name.encode()) for name in cookie_names(host, secure=secure))
    cookie = next((found for found in cookies if found is not None), None)
    peer = peer_of(request.channel.transport.getPeer())
    # A client may send the header more than once; its proxy adds the last address of the last one.
    forwarded_for = b",".join(headers.getRawHeaders(b"x-forwarded-for", ()))
    return Head(
        method=method.decode("ascii", "replace"),
        peer=evolve(peer, proxied=True) if any(map(headers.hasHeader, _OF_PROXIES)) else peer,
        secure=secure,
        forwarded_for=forwarded_for.decode("ascii", "replace") or None,
        forwarded_proto=header(b"x-forwarded-proto"),
        host=host,
        is_without_host=not headers.hasHeader(b"host") and request.channel.version == b"HTTP/1.0",
        origin=header(b"origin"),
        authorization=header(b"authorization"),
        cookie=None if cookie is None else cookie.decode("utf-8", "replace"),
        csrf=header(b"x-csrf-token"),
        encodings=header(b"accept-encoding"),
        etags=header(b"if-none-match"),
        last_event=header(b"last-event-id"),
        prefer=header(b"prefer"),
    )
