"""TLS of the connections of the API. Their handshakes take turns with those of MQTT clients.

A handshake costs a signature of up to 5 ms. Without turns, a flood of connections to the API would stall all clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure

#: lines an object up whose ``step`` takes the next step of a handshake
LineUp = Callable[[Any], None]

_log = Logger()


class TurnsProtocol(TLSMemoryBIOProtocol):
    """TLS of one connection. While a step of its handshake waits, no more bytes are read from its client."""

    factory: TurnsFactory
    _arrived = b""
    _ended = False

    def dataReceived(self, data: bytes) -> None:
        """Decrypt bytes, or keep them for the next step of the handshake."""
        if self._handshakeDone:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
            return
        waits = bool(self._arrived)
        self._arrived += data
        if not waits:
            self.transport.pauseProducing()  # type: ignore[union-attr]
            self.factory.line_up(self)

    def step(self) -> None:
        """Take the next step of the handshake, unless the connection has ended."""
        data, self._arrived = self._arrived, b""
        if self._ended:
            return
        try:
            self.transport.resumeProducing()  # type: ignore[union-attr]
            super().dataReceived(data)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - the connections after this one must go on
            _log.failure("unexpected error in TLS of the API")
            self.abortConnection()  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the bytes that wait."""
        self._ended = True
        self._arrived = b""
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class TurnsFactory(TLSMemoryBIOFactory):
    """Makes the TLS of connections. ``line_up`` gives their handshakes a turn."""

    protocol = TurnsProtocol
    noisy = False

    def __init__(self, creator: Any, wrapped: Any, line_up: LineUp) -> None:
        super().__init__(creator, False, wrapped)
        self.line_up = line_up
