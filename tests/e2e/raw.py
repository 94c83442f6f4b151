"""A raw socket client for end-to-end tests that need many messages: pre-encoded packets, counted by parsing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from holdfast.wire import PacketParser, encode
from holdfast.wire import packets as p


class RawClient:
    """Connects on creation; sends bytes, yields packets."""

    def __init__(
        self, port: int, client_id: str = "", version: int = 4, clean: bool = True, will: p.Will | None = None
    ) -> None:
        self.open(port, p.Connect(client_id, version, clean, will=will))

    @classmethod
    def connected(cls, port: int, connect: p.Connect) -> RawClient:
        """Return a client that has sent this CONNECT."""
        client = cls.__new__(cls)
        client.open(port, connect)
        return client

    def open(self, port: int, connect: p.Connect) -> None:
        """Connect with this CONNECT."""
        self.version = connect.protocol_version
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parser = PacketParser(1 << 28, self.version)
        self.greet(connect)

    def greet(self, connect: p.Connect) -> None:
        """Send CONNECT, and expect that it is accepted."""
        self.send(connect)
        connack = next(self.packets())
        assert isinstance(connack, p.Connack)
        assert connack.reason_code == 0

    def send(self, *packets: p.Packet) -> None:
        """Send packets."""
        self.socket.sendall(b"".join(encode(packet, self.version) for packet in packets))

    def packets(self) -> Iterator[p.Packet]:
        """Yield packets until the connection ends."""
        while True:
            packet = self._parser.next_packet()
            if packet is not None:
                yield packet
                continue
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionError:
                return
            if not data:
                return
            self._parser.receive_data(data)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()
