"""Subscribing connections: one counts bytes, another one reads nothing."""

from __future__ import annotations

from benchmarks.connection import Connection
from benchmarks.wire import Wire

_shared = bytearray(1 << 20)
_shared_view = memoryview(_shared)


class ByteCounter(Connection):
    """Counts QoS 0 messages by their bytes, without parsing them."""

    def __init__(self, port: int, wire: Wire) -> None:
        super().__init__(port, wire)
        self._size = wire.publish_size(0)
        self._received = 0

    @property
    def messages(self) -> int:
        """The number of complete messages received."""
        return self._received // self._size

    def readable(self) -> None:
        """Count the received bytes."""
        taken = self.sock.recv_into(_shared_view)
        if not taken:
            self.closed_unless(b"")
        self._received += taken


class Stalled(Connection):
    """Subscribes, and then reads nothing."""

    def __init__(self, port: int, wire: Wire, topic_filter: bytes) -> None:
        super().__init__(port, wire)
        self.sock.sendall(wire.subscribe(topic_filter, 0))

    def readable(self) -> None:
        """Leave the bytes in the socket."""
