"""TLS of the connections of the API. Their handshakes take turns with those of MQTT clients.

A handshake costs a signature of up to 5 ms. Without turns, a flood of connections to the API would stall all clients.

OpenSSL's part of a connection is made at its first byte: silent connections do not cost its memory. Until then,
``_SILENT`` stands for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import frozen
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.identity.addresses import Peer, peer_of
from holdfast.scheduling.twisted_internals import OpenTLSProtocol

#: the first byte of a handshake
_HANDSHAKE = 0x16

_log = Logger()


@frozen(kw_only=True)
class TLSOfAPI:
    """TLS as it is configured now.

    ``maker`` returns what makes OpenSSL's part of a connection, None without TLS. ``line_up`` calls a step of a
    handshake in its turn. ``not_tls`` and ``explain`` return a clause about first bytes that are not TLS, and about an
    error of OpenSSL. ``failed`` is told of handshakes that fail: of whom, and this clause.
    """

    maker: Callable[[], Callable[[], SSL.Connection] | None]
    line_up: Callable[[Callable[[], None]], None]
    not_tls: Callable[[bytes], str]
    explain: Callable[[Exception, list[tuple[int, int]]], str]
    failed: Callable[[Peer, str], None]


class _Silent:
    """Stands for OpenSSL's part of connections that have sent nothing. Twisted calls these methods."""

    def set_accept_state(self) -> None:
        """OpenSSL's part is made in this state."""

    def set_app_data(self, _protocol: object) -> None:
        """OpenSSL's part has other data: the refusals of the verification."""

    def do_handshake(self) -> None:
        raise SSL.WantReadError

    def recv(self, _size: int) -> bytes:
        raise SSL.WantReadError

    def bio_read(self, _size: int) -> bytes:
        raise SSL.WantReadError

    def bio_shutdown(self) -> None:
        """Nothing was begun."""

    def shutdown(self) -> bool:
        return False

    def get_peer_certificate(self) -> None:
        return None

    def get_alpn_proto_negotiated(self) -> bytes:
        return b""


_SILENT = _Silent()


class TurnsProtocol(OpenTLSProtocol):
    """TLS of one connection. While a step of its handshake waits, no more bytes are read from its client."""

    factory: TurnsFactory
    _arrived = b""
    _ended = False

    def dataReceived(self, data: bytes) -> None:
        """Decrypt bytes, or keep them for the next step of the handshake."""
        if self.is_open:
            super().dataReceived(data)  # type: ignore[no-untyped-call]
            return
        waits = bool(self._arrived)
        self._arrived += data
        if not waits:
            self.transport.pauseProducing()  # type: ignore[union-attr]
            self.factory.tls.line_up(self.step)

    def step(self) -> None:
        """Take the next step of the handshake, unless the connection has ended."""
        data, self._arrived = self._arrived, b""
        if self._ended:
            return
        try:
            self.transport.resumeProducing()  # type: ignore[union-attr]
            if self.engine is not _SILENT or self._begins(data):
                super().dataReceived(data)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - the connections after this one must go on
            _log.failure("unexpected error in TLS of the API")
            self.abortConnection()  # type: ignore[no-untyped-call]

    def _begins(self, data: bytes) -> bool:
        """Begin the handshake; return whether it can begin. Else the connection ends."""
        maker = self.factory.tls.maker()
        if data[0] != _HANDSHAKE:
            self._failed(self.factory.tls.not_tls(data))
        elif maker is not None:  # else a reload has just switched TLS off
            self.engine = maker()
            return True
        self._ended = True
        self.end(None)
        return False

    def end(self, reason: Failure | None) -> None:
        """End the connection; say why, if the handshake has failed."""
        if reason is not None and isinstance(reason.value, SSL.Error) and not (self.is_open or self._ended):
            self._failed(self.factory.tls.explain(reason.value, self.engine.get_app_data() or []))
        super().end(reason)

    def _failed(self, cause: str) -> None:
        self.factory.tls.failed(peer_of(self.transport.getPeer()), cause)  # type: ignore[union-attr]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the bytes that wait."""
        self._ended = True
        self._arrived = b""
        super().connectionLost(reason)  # type: ignore[no-untyped-call]


class TurnsFactory(TLSMemoryBIOFactory):
    """Makes the TLS of connections."""

    protocol = TurnsProtocol
    noisy = False

    def __init__(self, tls: TLSOfAPI, wrapped: Any) -> None:
        super().__init__(_Creator(), False, wrapped)
        self.tls = tls

    @property
    def is_on(self) -> bool:
        """Whether new connections have TLS."""
        return self.tls.maker() is not None


@implementer(IOpenSSLServerConnectionCreator)
class _Creator:
    """Makes what stands for OpenSSL's part when a connection begins."""

    def serverConnectionForTLS(self, _protocol: object) -> Any:
        return _SILENT
