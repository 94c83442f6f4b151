"""A request over HTTP: its limits, who sends it, and the call in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from twisted.web import http
from twisted.web.server import Request

from holdfast.admin.callers.caller import ANYONE, Caller, Scope
from holdfast.admin.calls.call import Call
from holdfast.admin.calls.head import Head, head_of
from holdfast.admin.calls.problems import PROBLEM, RefusedCall, bad_request, unauthorized

#: bytes of the longest body of a caller who may change nothing: enough for a login
STRANGERS_BODY = 1 << 16
_MOST_ARGUMENTS = 20


class LimitedRequest(Request):
    """A request whose caller is known before its body arrives, and whose body has a limit.

    A longer body than ``most_bytes`` is refused while it arrives. ``refused`` is the refusal of a caller.
    """

    caller: Caller = ANYONE
    head: Head | None = None
    refused: RefusedCall | None = None
    most_bytes = STRANGERS_BODY
    _received = 0
    _too_long = False

    def gotLength(self, length: int | None) -> None:
        """Find out who calls, and refuse a body whose announced length is above the limit."""
        channel: Any = self.channel
        try:
            self.head = channel.site.unwrap(head_of(self, channel.method))
            self.caller = channel.site.identify(channel, self.head)
        except RefusedCall as refused:
            self.refused = refused
        if self._may_change:
            self.most_bytes = channel.site.most_bytes
        if length is not None and length > self.most_bytes:
            self._refuse()
            length = 0
        Request.gotLength(self, length)

    def handleContentChunk(self, data: bytes) -> None:
        """Receive a piece of the body."""
        self._received += len(data)
        if self._received > self.most_bytes:
            self._refuse()
        if not self._too_long:
            Request.handleContentChunk(self, data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Process the request, unless its body is too long."""
        if not self._too_long:
            Request.requestReceived(self, command, path, version)

    @property
    def _may_change(self) -> bool:
        return bool(self.caller.scopes - {Scope.OPEN, Scope.READ})

    def _refuse(self) -> None:
        if self._too_long:
            return
        self._too_long = True
        who = "" if self._may_change else " of a caller who may only read, or without an API key or a login,"
        message = f"a body{who} has at most {self.most_bytes} bytes; send it in parts"
        body = RefusedCall(http.REQUEST_ENTITY_TOO_LARGE, "BAD_REQUEST", message).answer().body
        head = f"Connection: close\r\nContent-Type: {PROBLEM}\r\nContent-Length: {len(body)}\r\n\r\n"
        transport: Any = self.channel.transport
        transport.write(b"HTTP/1.1 413 Request Entity Too Large\r\n" + head.encode() + body)
        transport.loseConnection()


def call_of(request: Any) -> Call:
    """Return the call in a request. Raises :class:`RefusedCall`."""
    if request.refused is not None:
        raise request.refused
    if not request.uri.startswith(b"/"):
        raise bad_request("the target of a request to this API is a path, without a scheme and a host")
    try:
        path, _, query = request.uri.decode("ascii").partition("?")
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_ARGUMENTS)
    except ValueError:  # UnicodeDecodeError among them
        raise bad_request("the query string has too many arguments, or is not percent-encoded UTF-8") from None
    arguments = dict(pairs)
    if len(arguments) < len(pairs):
        raise bad_request("an argument occurs twice in the query string")
    method = request.method.decode("ascii", "replace")
    accept = request.getHeader("accept") or ""
    body, is_current = request.content.read(), _asking_again(request)
    if body and not is_current():
        raise unauthorized("the API key or the session of this call has ended while its body arrived")
    return Call(method, path, arguments, body, request.caller, accept, request.head, is_current)


def _asking_again(request: Any) -> Callable[[], bool]:
    """Return what tells whether the caller of a request may still make it."""
    channel, caller, head = request.channel, request.caller, request.head
    return lambda: bool(channel.site.goes_on(channel, head, caller))
