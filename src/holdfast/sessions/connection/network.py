"""The transport, as the connection sees it."""

from __future__ import annotations

from zope.interface import Interface


class INetworkConnection(Interface):
    """One accepted transport."""

    def write(data: bytes) -> bool:
        """Send bytes. True: all left at once. False: ``Connection.drained`` is called when the rest has left."""

    def close(data: bytes) -> None:
        """Send these last bytes and close. Abort if the peer does not take them in time."""

    def abort() -> None:
        """Close at once and drop the unsent bytes."""

    def pause() -> None:
        """Stop reading."""

    def resume() -> None:
        """Read again."""
