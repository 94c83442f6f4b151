"""Connects sockets with Network Connections. This is the only code that touches a client's socket.

A connection begins when it is accepted: ``connectionMade`` makes the Network Connection, whose ``idle_timeout`` counts
from then on. Whatever comes before CONNECT is within this time: the header of the PROXY protocol, and the handshakes of
TLS and WebSocket, which are layers above the socket (:mod:`holdfast.transports.layers`).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IDelayedCall, IPullProducer, IReactorTime
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.tcp import Connection as TCPTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.identity.addresses import Peer, peer_of
from holdfast.identity.interfaces import PeerCertificate
from holdfast.scheduling.reactor import Reader, let_wait, turns_of, wait_no_more
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.transports.acceptance import Acceptance, AcceptedConnection
from holdfast.transports.layers import Above, LayeredNetwork, MakeLayers, stack
from holdfast.transports.proxy_header import InvalidProxyHeader, ProxyHeader
from holdfast.wire import ReasonCode

#: seconds that a client has to receive the last bytes; then the connection is aborted
CLOSING_TIME = 5.0

#: How the system asks a peer that is not read whether it still exists: after a minute without a segment, every 15
#: seconds, for as long as the user timeout, or eight times without one. Systems without an option use their own value.
_Probes = tuple[tuple[int, int], ...]
_PROBES: _Probes = tuple(
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 8))
    if hasattr(socket, name)
)

#: Seconds that sent bytes may wait for the peer's TCP, if no Keep Alive tells how long silence may last. Linux gives up
#: a lost peer after this time anyway, but waits for ever for a peer that is there and takes nothing.
USER_TIMEOUT = 900.0

#: the shortest of these times: on a bad network, TCP needs some tries
SHORTEST_USER_TIMEOUT = 30.0

#: the most bytes that are read at once
_READ_SIZE = 64 * 1024

_TCP_FAMILIES = (socket.AF_INET, socket.AF_INET6)

#: of connections that Twisted reads in its own way; nothing is ever added
_NO_READERS: dict[int, Reader] = {}

#: None where the platform lacks the option
_TCP_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)


def _ignore(_data: bytes) -> None:
    """Receive nothing: the transport is gone."""


class OpenConnections:
    """The open connections of all listeners."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._open: set[MQTTServerProtocol] = set()
        self._all_closed: Deferred[None] | None = None

    def add(self, protocol: MQTTServerProtocol) -> None:
        """Count a connection that was accepted."""
        self._open.add(protocol)

    def remove(self, protocol: MQTTServerProtocol) -> None:
        """Stop counting a connection, because it is lost."""
        self._open.discard(protocol)
        if not self._open and self._all_closed is not None:
            self._all_closed.callback(None)

    def abort_of(self, acceptance: Acceptance) -> None:
        """Abort the connections of one listener that are not closing: their clients have not sent CONNECT."""
        for protocol in tuple(self._open):
            if protocol.accepted.acceptance is acceptance and not protocol.is_closing:
                protocol.abort()

    def all_closed(self, seconds: float) -> Deferred[None]:
        """Fire when no connection is open, or after ``seconds``.

        Connections that are not closing are aborted: their clients have not sent CONNECT, so no packet is due to them.
        """
        for protocol in tuple(self._open):
            if not protocol.is_closing:
                protocol.abort()
        if not self._open:
            return succeed(None)
        closed = self._all_closed = Deferred()
        timeout = self._clock.callLater(seconds, closed.callback, None)

        def fired(_: None) -> None:
            self._all_closed = None
            if timeout.active():
                timeout.cancel()

        return closed.addCallback(fired)


@implementer(INetworkConnection, IPullProducer)
class MQTTServerProtocol(Protocol):
    """One accepted transport.

    It registers itself as a *pull* producer, because Twisted then calls ``resumeProducing`` each time the transport has
    sent everything. So the broker knows exactly which bytes are still in this process.
    """

    #: plain TCP has none
    certificate: PeerCertificate | None = None

    def __init__(
        self,
        build: Callable[[INetworkConnection], Connection],
        connections: OpenConnections,
        clock: IReactorTime,
        accepted: AcceptedConnection,
    ) -> None:
        self._build = build
        self._connections = connections
        self._clock = clock
        self.accepted = accepted
        self._header = ProxyHeader() if accepted.awaits_header else None
        self._receive: Callable[[bytes], None] = self._receive_header if accepted.awaits_header else _ignore
        self._connection: Connection | None = None
        self._above: Above | None = None  #: the Network Connection, or the lowest layer below it
        self._send: Callable[[bytes], int] | None = None  # of the socket, if it is plain TCP
        self._readers: dict[int, Reader] = _NO_READERS
        self._file = -1  #: its place there
        self._closing: IDelayedCall | None = None
        self._usual_probes: _Probes = ()
        self._is_tcp = False
        self._is_stranger = True  #: CONNECT is not accepted yet

    def connectionMade(self) -> None:
        """Create the Network Connection."""
        transport = self._open_transport()
        if isinstance(transport, TCPTransport) and not transport.TLS:
            self._send = transport.socket.send
            turns = turns_of(transport.reactor)
            if turns is not None:
                self._readers = turns.readers
                self._file = transport.fileno()
                self._readers[self._file] = self
        self.accepted.opened()
        self._connections.add(self)
        self._is_tcp = transport.socket.family in _TCP_FAMILIES
        if self._is_tcp:
            transport.setTcpNoDelay(True)
            transport.setTcpKeepAlive(True)
            self._set_user_timeout(USER_TIMEOUT)
        self._connection, self._above = self._begin()
        if not self.accepted.awaits_header:
            self._receive = self._above.receive
        transport.registerProducer(self, False)

    def _begin(self) -> tuple[Connection, Above]:
        """Return a new Network Connection, and the receiver of the socket's bytes."""
        connection = self._build(self)
        return connection, connection

    def _open_transport(self) -> TCPTransport:
        """Return the transport; TLS and other wrappers offer the same methods as a TCP connection."""
        return cast("TCPTransport", self.transport)

    def read(self) -> Exception | None:
        """Read the socket once; return why the connection is over, None if it is not. As Twisted's own ``doRead``."""
        try:
            data = self._open_transport().socket.recv(_READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self._receive(data)
        return None

    def dataReceived(self, data: bytes) -> None:
        """Pass received bytes to the Network Connection, after the header of the PROXY protocol if there is one."""
        self._receive(data)

    def _receive_header(self, data: bytes) -> None:
        header, above = self._header, self._above
        assert header is not None
        assert above is not None
        try:
            rest = header.feed(data)
        except InvalidProxyHeader:
            self.accepted.misnamed()
            self.abort()
            return
        if rest is None:
            return
        self._header = None
        if not self.accepted.named(header.client):
            self.abort()
            return
        self._receive = above.receive
        if rest:
            self._receive(rest)

    @property
    def is_closing(self) -> bool:
        """Whether the broker has asked the transport to close."""
        return self._closing is not None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the Network Connection that its transport is gone."""
        self._send = None
        if self._readers.get(self._file) is self:
            del self._readers[self._file]
        self.accepted.closed()
        if self._closing is not None and self._closing.active():
            self._closing.cancel()
        try:
            if self._above is not None:
                self._above.lost()
        finally:
            self._connections.remove(self)
            # Each refers to the other. The garbage collector runs rarely here: they would stay in memory for long.
            self._connection = self._above = None
            self._receive = _ignore

    # IPullProducer

    def resumeProducing(self) -> None:
        """Tell the Network Connection that the transport has sent everything."""
        if self._above is not None:
            self._above.drained()

    def stopProducing(self) -> None:
        """Do nothing: connectionLost follows."""

    # INetworkConnection

    @property
    def peer(self) -> Peer:
        """The client's address."""
        return self.accepted.peer

    def write(self, data: bytes) -> bool:
        """Send bytes; return whether the transport has sent all of them.

        Plain TCP sends them at once, as far as the socket has room: Twisted's own write would wait for the next reactor
        turn. This method calls the socket itself, since every message to every client comes this way, and each call in
        between costs a tenth of the send.
        """
        if self._send is not None:
            try:
                sent = self._send(data)
            except OSError:  # the socket is full, or broken: then the transport notices it
                sent = 0
            if sent == len(data):
                return True
            data = data[sent:]
        self._open_transport().write(data)
        return False

    def close(self, data: bytes, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        """Send these last bytes and close."""
        transport = self._open_transport()
        self._send = None
        transport.unregisterProducer()
        if data:
            transport.write(data)
        transport.loseConnection()
        self.closing()

    def closing(self) -> None:
        """Begin the time that the client has to take the last bytes."""
        if self._closing is None:
            self._closing = self._clock.callLater(CLOSING_TIME, self._open_transport().abortConnection)

    def abort(self) -> None:
        """Close at once."""
        self._open_transport().abortConnection()

    def unsent(self) -> int:
        """Return how many of the written bytes have not left this process."""
        transport = self._open_transport()
        return len(transport.dataBuffer) - transport.offset + transport._tempDataLen

    def admitted(self, silence: float) -> None:
        """Note that CONNECT was accepted. Its Keep Alive ends the connection after ``silence`` seconds; 0 for never."""
        self.accepted.admitted()
        self._is_stranger = False
        wait_no_more(self.transport)
        if silence:
            self._set_user_timeout(max(silence, SHORTEST_USER_TIMEOUT))

    def _set_user_timeout(self, seconds: float) -> None:
        """Let the kernel end the connection if the peer takes none of the bytes sent for this time (Linux only)."""
        if _TCP_USER_TIMEOUT is None or not self._is_tcp:
            return
        try:
            self._open_transport().socket.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, int(seconds * 1000))
        except OSError:  # kernels without the option (gVisor, for one) keep their own time
            return

    def pause(self) -> None:
        """Stop reading.

        The end of a connection that is not read would not be noticed, so the system probes its peer meanwhile.
        """
        self._open_transport().pauseProducing()
        with suppress(OSError):  # a broken connection is noticed by the transport
            self._usual_probes = self._set_probes(_PROBES)

    def resume(self) -> None:
        """Read again."""
        with suppress(OSError):
            self._set_probes(self._usual_probes)
        self._read_again()

    def _read_again(self) -> None:
        transport = self._open_transport()
        transport.resumeProducing()
        if self._is_stranger:
            let_wait(transport)

    def _set_probes(self, probes: _Probes) -> _Probes:
        """Set how the system probes the peer; return the settings until now. Sockets that are not TCP have none."""
        connection = self._open_transport().socket
        if connection.family not in _TCP_FAMILIES:
            return ()
        usual = tuple((option, connection.getsockopt(socket.IPPROTO_TCP, option)) for option, _ in probes)
        for option, value in probes:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        return usual


class LayeredServerProtocol(MQTTServerProtocol):
    """One accepted transport with layers between the socket and the Network Connection."""

    def __init__(
        self,
        build: Callable[[INetworkConnection], Connection],
        connections: OpenConnections,
        clock: IReactorTime,
        accepted: AcceptedConnection,
        make_layers: MakeLayers,
    ) -> None:
        super().__init__(build, connections, clock, accepted)
        self._make_layers = make_layers
        self._paused = False  #: by the Network Connection
        self._held = False  #: by a layer

    def _begin(self) -> tuple[Connection, Above]:
        layers = self._make_layers()
        top = stack(layers, self)
        connection = self._build(LayeredNetwork(self, top))
        top.above = connection
        return connection, layers[0]

    # Below: the socket under the lowest layer

    def write(self, data: bytes) -> bool:
        """Send bytes after all earlier ones: layers send bytes of their own, even while others wait."""
        if self.unsent():
            self.write_later(data)
            return False
        return super().write(data)

    def write_later(self, data: bytes) -> None:
        """Send bytes in a later turn of the reactor."""
        self._open_transport().write(data)

    def fail(self, cause: str, explanation: str) -> None:
        """Log why the connection ends, and close it."""
        if self._connection is None:
            return
        self._connection.break_off(cause, explanation)
        if not self.is_closing:  # the Network Connection was over before
            self.close(b"")

    def closing(self) -> None:
        """Begin the time that the client has for the end, and read its last bytes."""
        super().closing()
        if self._paused:
            self.resume()

    def hold_reading(self) -> None:
        """Read no more."""
        self._held = True
        self._open_transport().pauseProducing()

    def go_on_reading(self) -> None:
        """Read again, unless the Network Connection does not want it."""
        self._held = False
        if not self._paused:
            self._read_again()

    def pause(self) -> None:
        """Stop reading."""
        self._paused = True
        super().pause()

    def resume(self) -> None:
        """Read again, unless a layer holds."""
        self._paused = False
        super().resume()
        if self._held:
            self._open_transport().pauseProducing()


class MQTTServerFactory(Factory):
    """Makes a protocol for each connection that one listener accepts.

    ``make_layers`` makes the layers of each connection; None for plain MQTT.
    """

    noisy = False

    def __init__(
        self,
        build: Callable[[INetworkConnection], Connection],
        connections: OpenConnections,
        clock: IReactorTime,
        acceptance: Acceptance,
        make_layers: MakeLayers | None = None,
    ) -> None:
        self._build = build
        self._connections = connections
        self._clock = clock
        self._acceptance = acceptance
        self._make_layers = make_layers

    def change(self, build: Callable[[INetworkConnection], Connection], make_layers: MakeLayers | None) -> None:
        """Make the connections from now on so. Open ones stay as they are."""
        self._build = build
        self._make_layers = make_layers

    def buildProtocol(self, addr: IAddress | None) -> MQTTServerProtocol | None:
        """Return a new protocol, or None if the connection is refused. Then Twisted closes it at once."""
        accepted = self._acceptance.accept(peer_of(addr))
        if accepted is None:
            return None
        if self._make_layers is None:
            return MQTTServerProtocol(self._build, self._connections, self._clock, accepted)
        return LayeredServerProtocol(self._build, self._connections, self._clock, accepted, self._make_layers)
