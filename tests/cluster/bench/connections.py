"""One Network Connection of a client of the bench, in the event loop. MQTT 5."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from holdfast.wire import PacketParser, WireError, encode
from holdfast.wire import packets as p

VERSION = 5


class Connection(asyncio.Protocol):
    """Gives each packet to ``take``, and calls ``ended`` once: with who did that, and the Reason Code of DISCONNECT.

    Who: "client" with DISCONNECT, "abort" by the client without, "broker" by the broker or the network.
    """

    def __init__(self, take: Callable[[p.Packet], None], ended: Callable[[str, int | None], None]) -> None:
        self.is_open = True
        self._take = take
        self._ended = ended
        self._parser = PacketParser(1 << 28, VERSION)
        self._transport: asyncio.Transport | None = None
        self._reason: int | None = None

    async def connect(self, port: int) -> None:
        """Connect to a node. Raises OSError."""
        await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port, family=socket.AF_INET)

    def send(self, *packets: p.Packet) -> None:
        """Send packets, unless the connection has ended."""
        if self.is_open and self._transport is not None:
            self._transport.write(b"".join(encode(packet, VERSION) for packet in packets))

    def abort(self) -> None:
        """End the connection without DISCONNECT."""
        if self._transport is not None:
            self._transport.abort()
        self._end("abort")

    def leave(self, disconnect: p.Disconnect) -> None:
        """Send DISCONNECT, and end the connection."""
        self.send(disconnect)
        if self._transport is not None:
            self._transport.close()
        self._reason = disconnect.reason_code
        self._end("client")

    def _end(self, by: str) -> None:
        if self.is_open:
            self.is_open = False
            self._ended(by, self._reason)

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.is_open:  # given up meanwhile
            transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.receive_data(data)
            while self.is_open and (packet := self._parser.next_packet()) is not None:
                if isinstance(packet, p.Disconnect):
                    self._reason = packet.reason_code
                else:
                    self._take(packet)
        except WireError as wrong:
            raise AssertionError(f"a node has sent what is not MQTT: {wrong}") from wrong

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("broker")
