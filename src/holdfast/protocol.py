"""Between Twisted's transports and Network Connections: translates, decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IAddress, IDelayedCall, IPullProducer, IReactorTime
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection as TCPTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.outbox import INetworkConnection

#: seconds a peer has to take the last bytes before the connection is aborted
CLOSING_TIME = 5.0


@implementer(INetworkConnection, IPullProducer)
class MQTTServerProtocol(Protocol):
    """One accepted transport.

    It registers itself as a *pull* producer, since that is the one notification Twisted gives each time a transport
    has sent everything: the broker then knows exactly what is still in this process.
    """

    def __init__(self, build: Callable[[INetworkConnection], Connection], clock: IReactorTime) -> None:
        self._build = build
        self._clock = clock
        self._connection: Connection | None = None
        self._direct: TCPTransport | None = None
        self._closing: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Begin a Network Connection."""
        transport = self._open_transport()
        if isinstance(transport, TCPTransport) and not transport.TLS:
            self._direct = transport
        if isinstance(transport.getHost(), (IPv4Address, IPv6Address)):
            transport.setTcpNoDelay(True)
            transport.setTcpKeepAlive(True)
        self._connection = self._build(self)
        transport.registerProducer(self, False)

    def _open_transport(self) -> TCPTransport:
        """Return the transport; TLS and other wrappers offer the same methods as a TCP connection."""
        return cast("TCPTransport", self.transport)

    def dataReceived(self, data: bytes) -> None:
        """Hand bytes on."""
        assert self._connection is not None
        self._connection.receive(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Hand the end on."""
        self._direct = None
        if self._closing is not None and self._closing.active():
            self._closing.cancel()
        if self._connection is not None:
            self._connection.lost()

    # IPullProducer

    def resumeProducing(self) -> None:
        """The transport has sent everything it was given."""
        if self._connection is not None:
            self._connection.drained()

    def stopProducing(self) -> None:
        """The transport is gone; connectionLost says the rest."""

    # INetworkConnection

    def write(self, data: bytes) -> bool:
        """Send bytes; plain TCP takes them at once where it can, a reactor turn earlier than Twisted's own write."""
        direct = self._direct
        while direct is not None:
            sent = direct.writeSomeData(data)
            if sent == len(data):
                return True
            if not isinstance(sent, int) or sent == 0:  # full; or broken, which the transport finds out by itself
                break
            data = data[sent:]
        self._open_transport().write(data)
        return False

    def close(self, data: bytes) -> None:
        """Send these last bytes and close."""
        transport = self._open_transport()
        self._direct = None
        transport.unregisterProducer()
        if data:
            transport.write(data)
        transport.loseConnection()
        self._closing = self._clock.callLater(CLOSING_TIME, transport.abortConnection)

    def abort(self) -> None:
        """Close at once."""
        self._open_transport().abortConnection()

    def pause(self) -> None:
        """Stop reading."""
        self._open_transport().pauseProducing()

    def resume(self) -> None:
        """Read again."""
        self._open_transport().resumeProducing()


class MQTTServerFactory(Factory):
    """Makes a protocol for each connection one listener accepts."""

    noisy = False

    def __init__(self, build: Callable[[INetworkConnection], Connection], clock: IReactorTime) -> None:
        self._build = build
        self._clock = clock

    def buildProtocol(self, addr: IAddress | None) -> MQTTServerProtocol:
        """Return a new protocol."""
        return MQTTServerProtocol(self._build, self._clock)
