"""What the head of a request says: where it wants to go, and who sends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen

from holdfast.admin.callers.caller import Caller
from holdfast.peers.address import Peer, peer_of

#: the cookie of a dashboard's session
COOKIE = "holdfast"


@frozen(kw_only=True)
class Head:
    """The parts of a head that tell who calls. Each is None if it is not there."""

    method: str
    peer: Peer
    secure: bool = False
    host: str | None = None
    origin: str | None = None
    authorization: str | None = None
    cookie: str | None = None
    csrf: str | None = None
    #: Accept-Encoding and If-None-Match
    encodings: str | None = None
    etags: str | None = None
    #: Last-Event-ID: where a stream of events broke off
    last_event: str | None = None

    @property
    def changes(self) -> bool:
        """Whether the call may change something."""
        return self.method not in ("GET", "HEAD", "OPTIONS")


#: Returns who calls, from the transport and the head. Raises RefusedCall.
Identify = Callable[[Any, Head], Caller]


def head_of(request: Any, method: bytes) -> Head:
    """Return the head of a request whose headers have arrived."""

    def header(name: bytes) -> str | None:
        values = request.requestHeaders.getRawHeaders(name)
        return values[0].decode("utf-8", "replace") if values and len(values) == 1 else None

    cookie = request.getCookie(COOKIE.encode())
    return Head(
        method=method.decode("ascii", "replace"),
        peer=peer_of(request.channel.transport.getPeer()),
        secure=bool(request.isSecure()),
        host=header(b"host"),
        origin=header(b"origin"),
        authorization=header(b"authorization"),
        cookie=None if cookie is None else cookie.decode("utf-8", "replace"),
        csrf=header(b"x-csrf-token"),
        encodings=header(b"accept-encoding"),
        etags=header(b"if-none-match"),
        last_event=header(b"last-event-id"),
    )
