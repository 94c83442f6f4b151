"""Shows an observer everything that one Network Connection receives and sends. Others pay nothing for it.

How it works. An observed connection gets other :class:`Actions`, which tell the observer of a packet before they act
on it, and another :class:`INetworkConnection`, which tells it of each piece before it is written. A piece always has
whole packets. Runs are switched off meanwhile, so that each packet comes by itself.
"""

from __future__ import annotations

from typing import Any, Protocol

from zope.interface import implementer

from holdfast.auth.interfaces import PeerCertificate
from holdfast.peers.address import Peer
from holdfast.sessions.connection.actions import Action, Actions
from holdfast.sessions.connection.network import INetworkConnection
from holdfast.wire import ReasonCode


class IObserver(Protocol):
    """Is told what happens on a Network Connection."""

    def received(self, packet: Any) -> None:
        """Take a packet of the Client."""

    def sent(self, packets: bytes) -> None:
        """Take whole packets for the Client."""

    def ended(self, why: str) -> None:
        """Note the end of the Network Connection."""


class ObservedActions(Actions):
    """Tells the observer of each packet, then acts as the ``actions`` do."""

    __slots__ = ("_observer", "actions")

    def __init__(self, actions: Actions, observer: IObserver) -> None:
        super().__init__()
        self.actions = actions
        self._observer = observer

    def __missing__(self, packet_type: type[Any]) -> Action | None:
        act: Action | None = self.actions[packet_type]
        if act is None:
            return None
        action = act

        def tell_and_act(packet: Any) -> None:
            self._observer.received(packet)
            action(packet)

        return tell_and_act


@implementer(INetworkConnection)
class ObservedNetwork:
    """Tells the observer of everything that is written to the ``network``."""

    def __init__(self, network: INetworkConnection, observer: IObserver) -> None:
        self.network = network
        self._observer = observer

    @property
    def peer(self) -> Peer:
        """The client's address."""
        peer: Peer = self.network.peer
        return peer

    @property
    def certificate(self) -> PeerCertificate | None:
        """The client's verified certificate."""
        certificate: PeerCertificate | None = self.network.certificate
        return certificate

    def write(self, data: bytes) -> bool:
        """Tell, and send."""
        self._observer.sent(data)
        return self.network.write(data)

    def unsent(self) -> int:
        """Return how many of the written bytes have not left."""
        return self.network.unsent()

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """Tell of the last bytes, send them and close."""
        if data:
            self._observer.sent(data)
        self.network.close(data, reason)

    def abort(self) -> None:
        """Close at once."""
        self.network.abort()

    def admitted(self, silence: float) -> None:
        """Note that CONNECT was accepted."""
        self.network.admitted(silence)

    def pause(self) -> None:
        """Stop reading."""
        self.network.pause()

    def resume(self) -> None:
        """Read again."""
        self.network.resume()
