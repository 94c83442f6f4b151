"""Builds the connections of the dashboard's console: MQTT over WebSocket, at the listener of the API."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol

from holdfast.admin.callers.caller import Caller, Scope
from holdfast.admin.callers.sessions import DashboardSessions
from holdfast.peers.acceptance import AcceptedConnection
from holdfast.protocol import LayeredServerProtocol, OpenConnections
from holdfast.scheduling.periodic import PeriodicJob
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.network import INetworkConnection
from holdfast.sessions.limits import Limits
from holdfast.transports.layers import Layer
from holdfast.wire import ReasonCode

#: the path of the console, and the name of its listener in logs, which no listener of the configuration has
PATH, LISTENER = "/mqtt", "admin/mqtt"
#: seconds until a console notices that the session of its operator is over
_LOOKS = 1.0
_OVER = "the session at the dashboard is over"

ConnectOperator = Callable[[INetworkConnection, Limits, str, str, bool], Connection]


class Consoles:
    """The connections of consoles. They look whether the sessions of their operators go on, while there are any."""

    def __init__(
        self,
        connect: ConnectOperator,
        *,
        connections: OpenConnections,
        limits: Callable[[], Limits],
        clock: IReactorTime,
    ) -> None:
        self._connect = connect
        self._connections = connections
        self._limits = limits
        self._clock = clock
        self._open: dict[Connection, Callable[[], bool]] = {}
        self._job = PeriodicJob(self._look, name="ending consoles", interval=_LOOKS, clock=clock)

    def protocol(
        self, accepted: AcceptedConnection, name: str, publishes: bool, goes_on: Callable[[], bool]
    ) -> LayeredServerProtocol:
        """Return the protocol of an accepted connection, for a transport whose next byte is that of the request.

        ``name`` is the operator's. ``goes_on`` tells whether the operator's session at the dashboard does.
        """

        def build(network: INetworkConnection) -> Connection:
            connection = self._connect(network, self._limits(), LISTENER, name, publishes)
            if not self._open:
                self._job.start(_LOOKS)
            self._open[connection] = goes_on
            return connection

        return LayeredServerProtocol(build, self._connections, self._clock, accepted, self._layers)

    def of_session(
        self, sessions: DashboardSessions, accepted: AcceptedConnection, caller: Caller, cookie: str
    ) -> Protocol:
        """Return the protocol of a connection that a session of the dashboard has opened."""
        return self.protocol(accepted, str(caller), caller.may(Scope.PUBLISH), partial(sessions.lasts, cookie))

    def _layers(self) -> list[Layer]:
        # Its library is large, and not every broker has a console in use.
        from holdfast.transports.websocket.layer import WebSocketLayer
        from holdfast.transports.websocket.opening import Opening
        from holdfast.transports.websocket.origins import AllowedOrigins

        return [WebSocketLayer(Opening(PATH, AllowedOrigins()), self._limits().max_packet_size, self._clock)]

    def _look(self) -> None:
        for connection, goes_on in tuple(self._open.items()):
            if connection.is_closed:
                del self._open[connection]
            elif not goes_on():
                with connection.guard:
                    connection.close(ReasonCode.NOT_AUTHORIZED, _OVER)
        if not self._open:
            self._job.stop()
