"""The listener of the API: which connections it accepts, and TLS around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol

from holdfast.admin.callers.caller import Caller, Via
from holdfast.admin.calls.head import GoesOn, Identify, Unwrap
from holdfast.admin.http.handshakes import TLSOfAPI, TurnsFactory
from holdfast.admin.http.places import Places
from holdfast.admin.http.site import Answering, APISite, CountedChannel, MostBytes
from holdfast.peers.acceptance import Acceptance, AcceptedConnection
from holdfast.peers.address import Peer, peer_of

#: is told of each connection that gives way to another one
GaveWay = Callable[[Peer], None]


class ListenerSite(APISite):
    """The site of the listener. It tells the acceptance which connections are open and have sent a request."""

    def __init__(
        self,
        answering: Answering,
        most_bytes: MostBytes,
        reactor: Any,
        identify: Identify,
        most_connections: int,
        *,
        goes_on: GoesOn,
        unwrap: Unwrap,
        gave_way: GaveWay,
    ) -> None:
        APISite.__init__(
            self, answering, most_bytes, reactor, identify, most_connections, goes_on=goes_on, unwrap=unwrap
        )
        self._accepted: dict[CountedChannel, AcceptedConnection] = {}
        self._places: Places[CountedChannel] = Places()
        self._gave_way = gave_way

    def opened(self, channel: CountedChannel, accepted: AcceptedConnection) -> None:
        """Count an open connection."""
        self._accepted[channel] = accepted
        self._places.take(channel)
        accepted.opened()

    def head_arrived(self, channel: CountedChannel, caller: Caller) -> None:
        """Note who makes a request."""
        if caller.via is not Via.NOTHING:
            self._places.asks(channel, known=True)

    def requested(self, channel: CountedChannel) -> None:
        """Note that a whole request has arrived: the connection is not half open any more."""
        accepted = self._accepted.get(channel)
        if accepted is not None:
            accepted.admitted()
            if channel.requests[-1].caller.via is Via.NOTHING:
                self._places.asks(channel, known=False)

    def answered(self, channel: CountedChannel) -> None:
        """Note that a request is over."""
        self._places.answered(channel)

    def lost(self, channel: CountedChannel) -> None:
        """Stop counting a connection."""
        self.released(channel)

    def released(self, channel: CountedChannel) -> AcceptedConnection | None:
        """Stop counting a connection; return it, for another protocol that counts it itself."""
        self._places.leave(channel)
        accepted = self._accepted.pop(channel, None)
        if accepted is not None:
            accepted.closed()
        return accepted

    def give_way(self) -> None:
        """Close the connection that gives way to a new one, if there is one."""
        channel = self._places.who_gives_way()
        accepted = None if channel is None else self.released(channel)
        if channel is not None and accepted is not None:
            self.connections.discard(channel)
            self._gave_way(accepted.peer)
            channel.transport.abortConnection()


class ListenerFactory(Factory):
    """Makes the protocols of the connections that are accepted, with TLS where it is configured at that moment."""

    noisy = False

    def __init__(self, site: ListenerSite, acceptance: Acceptance, tls: TLSOfAPI) -> None:
        self._site = site
        self._acceptance = acceptance
        self._tls = TurnsFactory(tls, site)

    def doStart(self) -> None:
        """Start the site."""
        self._site.doStart()  # type: ignore[no-untyped-call]

    def doStop(self) -> None:
        """Stop the site."""
        self._site.doStop()  # type: ignore[no-untyped-call]

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Return a new protocol, or None if the connection is refused. Then Twisted closes it at once."""
        peer = peer_of(addr)
        if self._acceptance.is_full and self._acceptance.refusal_of_address(peer) is None:
            self._site.give_way()
        accepted = self._acceptance.accept(peer)
        if accepted is None:
            return None
        secure = self._tls.is_on
        protocol: Any = (self._tls if secure else self._site).buildProtocol(addr)
        self._site.opened(protocol.wrappedProtocol if secure else protocol, accepted)
        return protocol  # type: ignore[no-any-return]
