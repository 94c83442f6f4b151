"""A request over HTTP: its limits, its caller, and its call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from twisted.web import http
from twisted.web.server import Request

from holdfast.admin.callers.caller import ANYONE, Caller, Scope, Via
from holdfast.admin.calls.call import Call
from holdfast.admin.calls.head import Head, head_of
from holdfast.admin.calls.problems import RefusedCall, bad_request, unauthorized

#: bytes of the longest body of a caller who may change nothing: enough for a login
STRANGERS_BODY = 1 << 16
#: bytes of the longest request target of a stranger: decoding a long one takes milliseconds
STRANGERS_TARGET = 1 << 14
_MOST_ARGUMENTS = 20


class LimitedRequest(Request):
    """A request whose caller is known before its body arrives, and whose body has a limit.

    A longer body than ``most_bytes`` is refused while it arrives, and the long target of a stranger when its head has
    arrived; then ``is_too_long``. ``refused`` is the refusal of a caller.
    """

    caller: Caller = ANYONE
    head: Head | None = None
    refused: RefusedCall | None = None
    most_bytes = STRANGERS_BODY
    _received = 0
    _target = b""
    is_too_long = False

    def gotLength(self, length: int | None) -> None:
        """Identify the caller, and refuse a body with an announced length above the limit."""
        channel: Any = self.channel
        try:
            self.head = channel.site.unwrap(head_of(self, channel.method))
            self.caller = channel.site.identify(channel, self.head)
        except RefusedCall as refused:
            self.refused = refused
        if self._may_change:
            self.most_bytes = channel.site.most_bytes(channel.method.decode("ascii", "replace"), channel.path)
        if self.refused is None and self.caller.via is Via.NOTHING and len(channel.target) > STRANGERS_TARGET:
            self._refuse(long_target(STRANGERS_TARGET))
        if length is not None and length > self.most_bytes:
            self._refuse(self._long_body())
            length = 0
        Request.gotLength(self, length)

    def handleContentChunk(self, data: bytes) -> None:
        """Receive a piece of the body."""
        self._received += len(data)
        if self._received > self.most_bytes:
            self._refuse(self._long_body())
        if not self.is_too_long:
            Request.handleContentChunk(self, data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Process the request, unless it is too long. Then its client has been told, and is ready to read it."""
        if self.is_too_long:
            self.channel.loseConnection()
        else:
            # Twisted would decode the query string before anybody is asked: call_of decodes it, within limits.
            self._target = path
            Request.requestReceived(self, command, path.partition(b"?")[0], version)

    def process(self) -> None:
        """Process the request with its whole target."""
        self.uri = self._target
        Request.process(self)

    @property
    def _may_change(self) -> bool:
        return bool(self.caller.scopes - {Scope.OPEN, Scope.READ})

    def _refuse(self, refused: RefusedCall) -> None:
        if not self.is_too_long:
            self.is_too_long = True
            channel: Any = self.channel
            channel.refuse_early(refused)

    def _long_body(self) -> RefusedCall:
        who = "" if self._may_change else " of a caller who may only read, or without an API key or a login,"
        most = f"{self.most_bytes} bytes"
        message = f"the body of this call{who} has at most {most}"
        return RefusedCall(http.REQUEST_ENTITY_TOO_LARGE, "BAD_REQUEST", message, allowed=most)


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


def long_target(most: int) -> RefusedCall:
    """Return the refusal of a request whose path and query string are too long."""
    message = f"path and query string have at most {most} bytes"
    return RefusedCall(http.REQUEST_URI_TOO_LONG, "BAD_REQUEST", message, allowed=f"{most} bytes")


def _asking_again(request: Any) -> Callable[[], bool]:
    """Return a function that tells whether the caller of a request may still make it."""
    channel, caller, head = request.channel, request.caller, request.head
    return lambda: bool(channel.site.goes_on(channel, head, caller))
