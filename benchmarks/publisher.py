"""A publishing connection: sends slices of ready bytes, counts PUBACKs by bytes."""

from __future__ import annotations

from benchmarks.connection import BenchError, Connection
from benchmarks.wire import PUBACK, Wire

_UNTRUSTED = 0x80  # the lowest Reason Code of a refusal


class Publisher(Connection):
    """Publishes a cycle of encoded packets, as many as allowed."""

    def __init__(self, port: int, wire: Wire, packets: bytes, qos: int) -> None:
        super().__init__(port, wire)
        self._cycle = memoryview(packets)
        self._size = wire.publish_size(qos)
        self._sent = 0  # bytes
        self.allowed = 0  # messages
        self.acked = 0  # messages
        # No Packet Identifier may be reused while it is in flight, and Receive Maximum must not be exceeded.
        self.limit = min(len(packets) // self._size, self.receive_maximum)
        self._acks = bytearray(65536)
        self._acks_view = memoryview(self._acks)
        self._acks_tail = 0

    @property
    def sent(self) -> int:
        """The number of messages that the socket has accepted as a whole."""
        return self._sent // self._size

    def allow(self, messages: int) -> None:
        """Allow `messages` more messages."""
        self.allowed += messages
        self.writable()

    def writable(self) -> None:
        """Send the allowed messages, as far as the socket accepts them."""
        cycle, length = self._cycle, len(self._cycle)
        target = self.allowed * self._size
        send = self.sock.send
        while self._sent < target:
            at = self._sent % length
            piece = cycle[at : at + target - self._sent]
            try:
                taken = send(piece)
            except BlockingIOError:
                taken = 0
            self._sent += taken
            if taken < len(piece):
                self.wants_write(True)
                return
        self.wants_write(False)

    def readable(self) -> None:
        """Count PUBACKs."""
        taken = self.sock.recv_into(self._acks_view[self._acks_tail :])
        if not taken:
            self.closed_unless(b"")
        self._count_acks(self._acks_tail + taken)

    def _count_acks(self, end: int) -> None:
        acks = self._acks
        at = 0
        while end - at >= 4:
            stride = 2 + acks[at + 1]
            kinds, lengths = acks[at:end:stride], acks[at + 1 : end : stride]
            whole = (end - at) // stride
            alike = min(_run(kinds, PUBACK), _run(lengths, stride - 2), whole)
            if not alike:
                if acks[at] != PUBACK:
                    raise BenchError(f"unexpected packet {acks[at : at + 40].hex()}")
                break
            # In MQTT 5.0 a PUBACK can have a Reason Code, such as 0x10 (no matching subscribers).
            if stride > 4 and max(acks[at + 4 : at + alike * stride : stride]) >= _UNTRUSTED:
                raise BenchError(f"PUBLISH refused: {acks[at : at + 40].hex()}")
            self.acked += alike
            at += alike * stride
        self._acks_tail = end - at
        acks[: self._acks_tail] = acks[at:end]


def _run(column: bytearray, value: int) -> int:
    """The number of bytes at the start that equal `value`."""
    return len(column) - len(column.lstrip(bytes([value])))
