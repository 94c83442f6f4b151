"""The listener of the API: which connections it accepts, and TLS around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IAddress, IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory, Protocol
from zope.interface import implementer

from holdfast.admin.calls.head import GoesOn, Identify, Unwrap
from holdfast.admin.http.handshakes import LineUp, TurnsFactory
from holdfast.admin.http.site import Answering, APISite, CountedChannel, MostBytes
from holdfast.peers.acceptance import Acceptance, AcceptedConnection
from holdfast.peers.address import peer_of

#: returns OpenSSL's part of a new connection, None without TLS
NewTLS = Callable[[], Any]


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
    ) -> None:
        APISite.__init__(
            self, answering, most_bytes, reactor, identify, most_connections, goes_on=goes_on, unwrap=unwrap
        )
        self._accepted: dict[CountedChannel, AcceptedConnection] = {}

    def opened(self, channel: CountedChannel, accepted: AcceptedConnection) -> None:
        """Count an open connection."""
        self._accepted[channel] = accepted
        accepted.opened()

    def requested(self, channel: CountedChannel) -> None:
        """Note that a whole request has arrived: the connection is not half open any more."""
        accepted = self._accepted.get(channel)
        if accepted is not None:
            accepted.admitted()

    def lost(self, channel: CountedChannel) -> None:
        """Stop counting a connection."""
        self.released(channel)

    def released(self, channel: CountedChannel) -> AcceptedConnection | None:
        """Stop counting a connection; return it, for another protocol that counts it itself."""
        accepted = self._accepted.pop(channel, None)
        if accepted is not None:
            accepted.closed()
        return accepted


class ListenerFactory(Factory):
    """Makes the protocols of the connections that are accepted, with TLS where it is configured at that moment."""

    noisy = False

    def __init__(self, site: ListenerSite, acceptance: Acceptance, new_tls: NewTLS, line_up: LineUp) -> None:
        self._site = site
        self._acceptance = acceptance
        self._creator = _Creator(new_tls)
        self._tls = TurnsFactory(self._creator, site, line_up)

    def doStart(self) -> None:
        """Start the site."""
        self._site.doStart()  # type: ignore[no-untyped-call]

    def doStop(self) -> None:
        """Stop the site."""
        self._site.doStop()  # type: ignore[no-untyped-call]

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Return a new protocol, or None if the connection is refused. Then Twisted closes it at once."""
        accepted = self._acceptance.accept(peer_of(addr))
        if accepted is None:
            return None
        secure = self._creator.prepare()
        protocol: Any = (self._tls if secure else self._site).buildProtocol(addr)
        self._site.opened(protocol.wrappedProtocol if secure else protocol, accepted)
        return protocol  # type: ignore[no-any-return]


@implementer(IOpenSSLServerConnectionCreator)
class _Creator:
    """Makes OpenSSL's part of each connection from the present certificates."""

    def __init__(self, new_tls: NewTLS) -> None:
        self._new_tls = new_tls
        self._next: Any = None

    def prepare(self) -> bool:
        """Make the part of the next connection; return whether it has TLS."""
        self._next = self._new_tls()
        return self._next is not None

    def serverConnectionForTLS(self, _protocol: object) -> Any:
        """Return the part of the connection that begins."""
        made, self._next = self._next, None
        return made if made is not None else self._new_tls()
