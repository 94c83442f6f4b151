"""Hands the connection of a request over to another protocol: the console of the dashboard speaks MQTT over WebSocket.

How it works. The request is judged like every other one: its host, its origin and its caller. Then the channel of HTTP
lets go of the connection, and the other protocol gets it, with the head of the request as its first bytes. This happens
in a later turn of the reactor: until then the channel may still receive bytes that came with the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol
from twisted.protocols.policies import ProtocolWrapper
from twisted.web import http

from holdfast.admin.call import Caller, RefusedCall, Scope, Via, unauthorized
from holdfast.transports.acceptance import AcceptedConnection

#: makes the protocol for a connection, its caller, and the cookie of the caller's session
MakeProtocol = Callable[[AcceptedConnection, Caller, str], Protocol]
_MAY = (Scope.READ, Scope.PUBLISH)


class Upgrade:
    """Hands connections over. ``released`` stops the count of a channel's connection, and returns it."""

    def __init__(
        self,
        make: MakeProtocol,
        released: Callable[[Any], AcceptedConnection | None],
        reactor: IReactorTime,
    ) -> None:
        self._make = make
        self._released = released
        self._reactor = reactor

    def begin(self, request: Any) -> None:
        """Hand the connection of a request over soon. Raises RefusedCall."""
        if request.refused is not None:
            raise request.refused
        if request.caller.via is not Via.SESSION:
            raise unauthorized("the console needs a login at the dashboard")
        if not any(request.caller.may(scope) for scope in _MAY):
            raise RefusedCall(http.FORBIDDEN, "FORBIDDEN", "the console needs the scope read or publish")
        turn = self._reactor.callLater(0, self._hand_over, request, request.head.cookie)
        request.notifyFinish().addErrback(lambda _: turn.cancel() if turn.active() else None)

    def _hand_over(self, request: Any, cookie: str) -> None:
        channel, caller = request.channel, request.caller
        transport = channel.transport
        accepted = self._released(channel)
        if accepted is None or transport is None:  # it is closing
            return
        rest = b"".join(channel.waiting)
        channel.abandon()
        request.channel = None
        protocol: Any = self._make(accepted, caller, cookie)
        transport.unregisterProducer()
        if isinstance(transport, ProtocolWrapper):  # TLS
            transport.wrappedProtocol = protocol
        else:
            transport.protocol = protocol
        protocol.makeConnection(transport)
        transport.resumeProducing()  # HTTP may have paused it while it worked on the request
        protocol.dataReceived(_head_of(request) + rest)


def _head_of(request: Any) -> bytes:
    """Return the head of a request as it came, but for the case of the names."""
    lines = [request.method + b" " + request.uri + b" " + request.clientproto]
    for name, values in request.requestHeaders.getAllRawHeaders():
        lines += [name + b": " + value for value in values]
    return b"\r\n".join(lines) + b"\r\n\r\n"
