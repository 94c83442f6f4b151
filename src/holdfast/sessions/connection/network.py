"""The transport, as the connection sees it."""

from __future__ import annotations

from zope.interface import Attribute, Interface

from holdfast.wire import ReasonCode


class INetworkConnection(Interface):
    """One accepted transport."""

    peer = Attribute("The client's address, a Peer: the one that a proxy has told, if there is a proxy.")
    certificate = Attribute("The client's PeerCertificate if its TLS certificate is verified, else None.")

    def write(data: bytes) -> bool:
        """Send bytes. True: all left at once. False: ``Connection.drained`` is called when the rest has left."""

    def unsent() -> int:
        """Return how many of the written bytes have not left this process. It changes when some of them leave."""

    def close(data: bytes, reason: ReasonCode) -> None:
        """Send these last bytes and close. Abort if the peer does not take them in time.

        ``reason`` is the reason for the end, for transports that can tell it.
        """

    def abort() -> None:
        """Close at once and drop the unsent bytes."""

    def admitted(silence: float) -> None:
        """Note that CONNECT was accepted. Silence of so many seconds will end the connection; 0: none will."""

    def pause() -> None:
        """Stop reading. The system watches meanwhile whether the peer still exists, and ``lost`` is called if not."""

    def resume() -> None:
        """Read again."""
