"""The listener of the API: which connections it accepts, and TLS around them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from typing import Any, Generic, TypeVar

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol

from holdfast.admin.call import Caller, GoesOn, Identify, Unwrap, Via
from holdfast.admin.http.handshakes import TLSOfAPI, TurnsFactory
from holdfast.admin.http.site import Answering, APISite, CountedChannel, MostBytes
from holdfast.identity.addresses import Peer, peer_of
from holdfast.transports.acceptance import Acceptance, AcceptedConnection

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

    def proven(self, channel: CountedChannel) -> None:
        """Let the connection of a call keep its place: the credentials in it are right."""
        self._places.asks(channel, known=True)

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


# The places of the listener: which connection gives way when all are taken.
#
# How it works. Addresses of this machine have no limit of their own, and strangers may have many addresses. So others
# can take all places, and an operator would find none. Each connection has a standing:
#
#     STRANGER         waits for a request, or for the rest of one, and has proven nothing
#     ASKING_STRANGER  waits for an answer: to a wrong password, for example, which comes late
#     KNOWN            waits for a request; its last one had a valid key or session
#     ASKING           makes a call with a valid key or session
#
# A new connection takes the place of one with the first of these standings that occurs: of the one that has had this
# standing longest. Calls with a valid key or session never give way. An operator's connection begins as a stranger too.
# Then it is the youngest one, so a flood has to replace all older strangers first. The head of its first request ends
# this.


T = TypeVar("T", bound=Hashable)


class Standing(Enum):
    """What a connection has proven and does; those that give way come first."""

    STRANGER = "no request"
    ASKING_STRANGER = "a request without a proof"
    KNOWN = "no request, after one with a proof"
    ASKING = "a request with a proof"


class Places(Generic[T]):
    """The standings of connections. Every step takes the same short time, however many there are."""

    def __init__(self) -> None:
        self._standings: dict[T, Standing] = {}
        #: of each standing, the connections in the order in which they got it
        self._waiting: dict[Standing, dict[T, None]] = {standing: {} for standing in Standing}

    def __len__(self) -> int:
        return len(self._standings)

    def take(self, connection: T) -> None:
        """Add a new connection."""
        self._change(connection, Standing.STRANGER)

    def asks(self, connection: T, *, known: bool) -> None:
        """Note that the request of a connection has a valid key or session, or has arrived without them."""
        if connection in self._standings:
            self._change(connection, Standing.ASKING if known else Standing.ASKING_STRANGER)

    def answered(self, connection: T) -> None:
        """Note that the request of a connection is over."""
        match self._standings.get(connection):
            case Standing.ASKING:
                self._change(connection, Standing.KNOWN)
            case Standing.ASKING_STRANGER:
                self._change(connection, Standing.STRANGER)

    def leave(self, connection: T) -> None:
        """Forget a connection."""
        standing = self._standings.pop(connection, None)
        if standing is not None:
            del self._waiting[standing][connection]

    def who_gives_way(self) -> T | None:
        """Return the connection that gives way, None if all make calls that go on."""
        for standing in (Standing.STRANGER, Standing.ASKING_STRANGER, Standing.KNOWN):
            for connection in self._waiting[standing]:
                return connection
        return None

    def _change(self, connection: T, standing: Standing) -> None:
        self.leave(connection)
        self._standings[connection] = standing
        self._waiting[standing][connection] = None
