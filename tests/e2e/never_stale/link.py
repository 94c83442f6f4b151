"""One Network Connection in the event loop, which can stop reading."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from holdfast.wire import PacketParser, WireError, encode
from holdfast.wire import packets as p


class Link(asyncio.Protocol):
    """Passes each packet to ``take``, and calls ``ended`` when the broker closes the connection."""

    def __init__(self, version: int, take: Callable[[p.Packet], None], ended: Callable[[str], None]) -> None:
        self.version = version
        self.closed = False
        self._take = take
        self._ended = ended
        self._parser = PacketParser(1 << 28, version)
        self._transport: asyncio.Transport | None = None
        self._pongs: deque[Callable[[], None]] = deque()
        self._last_words = ""

    async def connect(self, port: int, receive_buffer: int) -> None:
        """Connect, with a receive buffer of so many bytes in the kernel."""
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.create_connection(lambda: self, sock=sock)

    def send(self, *packets: p.Packet) -> None:
        """Send packets."""
        assert self._transport is not None
        if not self.closed:
            self._transport.write(b"".join(encode(packet, self.version) for packet in packets))

    def ping(self, answered: Callable[[], None]) -> None:
        """Send PINGREQ; call back when PINGRESP has come."""
        self._pongs.append(answered)
        self.send(p.Pingreq())

    def read(self, wanted: bool) -> None:
        """Read on, or stop reading."""
        assert self._transport is not None
        if self.closed:
            return
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def abort(self) -> None:
        """Close the connection without DISCONNECT, and drop unread data."""
        assert self._transport is not None
        self.closed = True
        self._transport.abort()

    def leave(self, disconnect: p.Disconnect) -> None:
        """Send DISCONNECT, and end."""
        assert self._transport is not None
        self.send(disconnect)
        self.closed = True
        self._transport.close()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        try:
            self._parser.receive_data(data)
            while not self.closed and (packet := self._parser.next_packet()) is not None:
                if isinstance(packet, p.Pingresp):
                    self._pongs.popleft()()
                elif isinstance(packet, p.Disconnect):
                    self._last_words = f"Reason Code 0x{packet.reason_code:02X} {packet.properties.reason_string or ''}"
                else:
                    self._take(packet)
        except WireError as wrong:
            self._last_words = f"not MQTT: {wrong}"
            self.abort()
            self._ended(self._last_words)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            self._ended(self._last_words or str(exc or "without a reason"))
