"""Subscribing connections: one counts bytes only, another one knows the positions of its packets."""

from __future__ import annotations

from struct import iter_unpack

from benchmarks.connection import BenchError, Connection
from benchmarks.wire import ID_OFFSET, ID_SIZE, PUBLISH_RETAINED, SUBACK, Wire, pubacks

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


class PublishStream(Connection):
    """Follows PUBLISH packets of one size and the SUBACKs between them; acknowledges them at QoS 1.

    With `keep`, one buffer of `buffer_size` bytes keeps all received bytes, for a check after the measurement.
    """

    def __init__(self, port: int, wire: Wire, qos: int, buffer_size: int = 1 << 18, keep: bool = False) -> None:
        super().__init__(port, wire)
        self._qos = qos
        self._size = wire.publish_size(qos)
        self._keep = keep
        self._buffer = bytearray(buffer_size)
        # Write to every page now: later page faults would count as the broker's time.
        self._buffer[::4096] = b"\x01" * len(range(0, buffer_size, 4096))
        self._view = memoryview(self._buffer)
        self._at = 0  # start of the first packet that is not complete yet
        self._end = 0  # end of the received bytes
        self._unsent = bytearray()
        self._runs: list[tuple[int, int]] = []
        self.messages = 0
        self.retained = 0
        self.subacks = 0

    def start(self, topic_filter: bytes) -> None:
        """Subscribe without waiting: retained messages may arrive before the SUBACK [MQTT311-3.8.4]."""
        self._send(self.wire.subscribe(topic_filter, self._qos))

    def readable(self) -> None:
        """Read the received bytes, and acknowledge the messages."""
        if self._end == len(self._buffer):
            raise BenchError("more was received than was published")
        taken = self.sock.recv_into(self._view[self._end :])
        if not taken:
            self.closed_unless(b"")
        self._end += taken
        self._follow()
        if not self._keep:
            rest = self._end - self._at
            self._buffer[:rest] = self._buffer[self._at : self._end]
            self._at, self._end = 0, rest

    def writable(self) -> None:
        """Send the acknowledgements that the socket did not accept before."""
        self._send(b"")

    def distinct(self) -> int:
        """The number of different messages in the kept buffer."""
        padding = self._size - ID_OFFSET - ID_SIZE
        layout = f"{ID_OFFSET}x{ID_SIZE}s{padding}x"
        seen = bytearray(10**ID_SIZE)
        for start, count in self._runs:
            for (number,) in iter_unpack(layout, self._view[start : start + count * self._size]):
                seen[int(number)] = 1
        return seen.count(1)

    def _follow(self) -> None:
        buffer, size = self._buffer, self._size
        while True:
            at, end = self._at, self._end
            whole = (end - at) // size
            # The high byte of the topic's length is the only zero at this place: payload and topic are digits and
            # letters, so a column of zeros proves that the packets are where we take them to be.
            column = buffer[at + 2 : at + whole * size : size]
            count = whole - len(column.lstrip(b"\x00")) if whole else 0
            if count:
                kinds = buffer[at : at + count * size : size]
                self.retained += kinds.count(PUBLISH_RETAINED | self._qos << 1)
                self.messages += count
                if self._keep:
                    self._runs.append((at, count))
                if self._qos:
                    self._send(pubacks(buffer, at, count, size))
                self._at += count * size
                continue
            if end - at < 2:
                return
            if buffer[at] == SUBACK:
                if end - at < 2 + buffer[at + 1]:
                    return
                self._at += 2 + buffer[at + 1]
                self.subacks += 1
                if buffer[self._at - 1] >= 0x80:
                    raise BenchError("SUBSCRIBE refused")
                continue
            if whole or buffer[at] & 0xF0 != 0x30:
                self.closed_unless(bytes(buffer[at : min(end, at + 40)]))
            return

    def _send(self, data: bytes | bytearray) -> None:
        self._unsent += data
        if not self._unsent:
            self.wants_write(False)
            return
        try:
            taken = self.sock.send(self._unsent)
        except BlockingIOError:
            taken = 0
        del self._unsent[:taken]
        self.wants_write(bool(self._unsent))
