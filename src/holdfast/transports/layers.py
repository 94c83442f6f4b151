"""Layers: the protocols between the socket of one connection and its Control Packets.

How it works. The bytes of a plain connection go from the protocol of the socket (:mod:`holdfast.transports.protocol`)
to the Network Connection, and nothing of this module exists. Otherwise layers are between the two, the lowest first,
and at their top a :class:`LayeredNetwork`, which the Network Connection takes for its transport:

    socket <-> TLS <-> WebSocket <-> LayeredNetwork <-> Network Connection

Received bytes go up by ``receive``. Sent bytes go down by ``write``, which tells whether all of them have left this
process; if not, ``drained`` comes up when they have. A layer may send bytes of its own at any time, such as the answers
of a handshake. The time until CONNECT (``idle_timeout``) counts from the accept, so it bounds every handshake.

The Network Connection ends a connection by ``close``, the socket by ``lost``, a layer by ``fail``. ``lost`` goes up
through all layers, and each lets go of its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from zope.interface import implementer

from holdfast.identity.addresses import Peer
from holdfast.identity.interfaces import PeerCertificate
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.wire import ReasonCode


class Above(Protocol):
    """The next layer above, or the Network Connection."""

    def receive(self, data: bytes) -> None:
        """Take received bytes."""

    def drained(self) -> None:
        """Note that every written byte has left."""

    def lost(self) -> None:
        """Note that the connection is over. May be called again."""


class Below(Protocol):
    """The next layer below, or the socket."""

    @property
    def certificate(self) -> PeerCertificate | None:
        """The client's verified TLS certificate, once its handshake is over."""

    def write(self, data: bytes) -> bool:
        """Send bytes. True: all left at once. False: ``drained`` is called when the rest has left."""

    def write_later(self, data: bytes) -> None:
        """Send bytes in a later turn of the reactor. ``drained`` is called when they have left."""

    def unsent(self) -> int:
        """Return how many of the written bytes have not left this process."""

    def closing(self) -> None:
        """Begin the time within which :meth:`close` has to come, and the client has to take all bytes."""

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """Send these last bytes and close. Abort if the peer does not take them in time.

        ``reason`` is the reason for the end, for layers that can tell it.
        """

    def fail(self, cause: str, explanation: str) -> None:
        """Close because the client does not speak this layer's protocol, and log it in one line.

        The ``cause`` is the same for all such lines; the ``explanation`` is a clause that may quote the client.
        """

    def hold_reading(self) -> None:
        """Read no more until :meth:`go_on_reading`, whatever the Network Connection wants."""

    def go_on_reading(self) -> None:
        """Read again."""


class Nothing:
    """Stands for a neighbour of a layer that is over."""

    certificate: PeerCertificate | None = None

    def receive(self, data: bytes) -> None:
        """Receive nothing."""

    def drained(self) -> None:
        """Do nothing."""

    def lost(self) -> None:
        """Do nothing."""

    def write(self, data: bytes) -> bool:
        """Drop the bytes."""
        return True

    def write_later(self, data: bytes) -> None:
        """Drop the bytes."""

    def unsent(self) -> int:
        """Return 0: everything is sent or dropped."""
        return 0

    def closing(self) -> None:
        """Do nothing."""

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """Do nothing."""

    def fail(self, cause: str, explanation: str) -> None:
        """Do nothing."""

    def hold_reading(self) -> None:
        """Do nothing."""

    def go_on_reading(self) -> None:
        """Do nothing."""


NOTHING = Nothing()


class Layer:
    """A layer that changes nothing. Subclasses override what they change."""

    __slots__ = ("above", "below")

    def __init__(self) -> None:
        self.above: Above = NOTHING
        self.below: Below = NOTHING

    @property
    def certificate(self) -> PeerCertificate | None:
        """The client's verified TLS certificate."""
        return self.below.certificate

    def receive(self, data: bytes) -> None:
        """Take bytes from below."""
        self.above.receive(data)

    def drained(self) -> None:
        """Note that every byte written below has left."""
        self.above.drained()

    def lost(self) -> None:
        """Tell the layer above that the connection is over, and let go of both neighbours."""
        above, self.above, self.below = self.above, NOTHING, NOTHING
        above.lost()

    def write(self, data: bytes) -> bool:
        """Send bytes; return whether all have left this process."""
        return self.below.write(data)

    def write_later(self, data: bytes) -> None:
        """Send bytes in a later turn of the reactor."""
        self.below.write_later(data)

    def unsent(self) -> int:
        """Return how many of the written bytes have not left this process."""
        return self.below.unsent()

    def closing(self) -> None:
        """Begin the time that the client has to take all bytes."""
        self.below.closing()

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """Send these last bytes and close."""
        self.below.close(data, reason)

    def fail(self, cause: str, explanation: str) -> None:
        """Close because a layer above cannot go on, and log it in one line."""
        self.below.fail(cause, explanation)

    def hold_reading(self) -> None:
        """Read no more for now."""
        self.below.hold_reading()

    def go_on_reading(self) -> None:
        """Read again."""
        self.below.go_on_reading()


#: makes the layers of one connection, the lowest first
MakeLayers = Callable[[], Sequence[Layer]]


@implementer(INetworkConnection)
class LayeredNetwork:
    """The transport of a Network Connection above layers. ``socket`` is the transport without them."""

    __slots__ = ("_socket", "_top", "write")

    def __init__(self, socket: INetworkConnection, top: Layer) -> None:
        self._socket = socket
        self._top = top
        self.write = top.write

    @property
    def peer(self) -> Peer:
        """The client's address."""
        peer: Peer = self._socket.peer
        return peer

    @property
    def certificate(self) -> PeerCertificate | None:
        """The client's verified TLS certificate."""
        return self._top.certificate

    def unsent(self) -> int:
        """Return how many of the written bytes have not left this process."""
        return self._top.unsent()

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """Send these last bytes and close."""
        self._top.close(data, reason)

    def abort(self) -> None:
        """Close at once."""
        self._socket.abort()

    def admitted(self, silence: float) -> None:
        """Note that CONNECT was accepted."""
        self._socket.admitted(silence)

    def pause(self) -> None:
        """Stop reading."""
        self._socket.pause()

    def resume(self) -> None:
        """Read again."""
        self._socket.resume()


def stack(layers: Sequence[Layer], socket: Below) -> Layer:
    """Put the layers, the lowest first, on the socket and on each other. Return the top one."""
    below = socket
    for layer in layers:
        layer.below = below
        below = layer
    for lower, upper in pairwise(layers):
        lower.above = upper
    return layers[-1]
