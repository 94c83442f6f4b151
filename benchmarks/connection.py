"""One Network Connection of the generator, and the epoll loop that serves many of them."""

from __future__ import annotations

import select
import socket
from itertools import count
from types import TracebackType

from benchmarks.wire import CONNACK, DISCONNECT, PINGREQ, PINGRESP, PUBLISH, SUBACK, Wire

HANDSHAKE_SECONDS = 30.0  # during a replay a broker answers late; no answer at all is a failure
_client_numbers = count(1)


class BenchError(Exception):
    """The broker broke the protocol, so the run cannot go on. The text describes it."""


class Connection:
    """A TCP connection that has completed its CONNECT; blocking until it is added to a `Loop`."""

    def __init__(self, port: int, wire: Wire) -> None:
        self.wire = wire
        self.loop: Loop | None = None
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=HANDSHAKE_SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fd = self.sock.fileno()
        self._wants_write = False
        self.sock.sendall(wire.connect(b"bench-%d" % next(_client_numbers)))
        connack = self._read_packet(CONNACK)
        if connack[connack_code_at(connack)]:
            raise BenchError(f"CONNECT refused: {connack.hex()}")

    def subscribe(self, topic_filter: bytes, qos: int = 0) -> None:
        """Subscribe and wait for the SUBACK; only for filters that match no Retained Message."""
        self.sock.sendall(self.wire.subscribe(topic_filter, qos))
        suback = self._read_packet(SUBACK)
        if suback[-1] != qos:
            raise BenchError(f"SUBSCRIBE not granted as asked: {suback.hex()}")

    def first_message(self, topic_filter: bytes) -> None:
        """Subscribe and wait for the first message. It may arrive before the SUBACK [MQTT311-3.8.4]."""
        self.sock.sendall(self.wire.subscribe(topic_filter, 0))
        while self._any_packet()[0] & 0xF0 != PUBLISH:
            pass

    def round_trip(self) -> None:
        """Send PINGREQ and wait for the PINGRESP: the broker has then read all earlier packets."""
        self.sock.settimeout(HANDSHAKE_SECONDS)
        self.sock.sendall(PINGREQ)
        self._read_packet(PINGRESP[0])

    def readable(self) -> None:
        """Handle received bytes. None are expected, so this is a DISCONNECT or the end of the connection."""
        self.closed_unless(self.sock.recv(4096))

    def writable(self) -> None:
        """Handle that the socket accepts bytes again."""
        self.wants_write(False)

    def wants_write(self, wanted: bool) -> None:
        """Ask the loop to call :meth:`writable` when the socket accepts bytes again."""
        if wanted != self._wants_write and self.loop is not None:
            self._wants_write = wanted
            self.loop.epoll.modify(self.fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def closed_unless(self, expected: bytes | int) -> None:
        """Raise BenchError: the connection has ended, or there are unexpected bytes."""
        if not expected:
            raise BenchError("the broker closed the connection")
        raise BenchError(f"unexpected packet {expected!r}"[:80])

    def close(self) -> None:
        """Send DISCONNECT, if the socket accepts it, and close."""
        try:
            self.sock.setblocking(False)
            self.sock.send(DISCONNECT)
        except OSError:
            pass  # closed by the peer, or full: close all the same
        self.sock.close()

    def _read_packet(self, kind: int) -> bytes:
        packet = self._any_packet()
        if packet[0] != kind:
            raise BenchError(f"expected packet type {kind:#x}, got {packet[:40].hex()}")
        return packet

    def _any_packet(self) -> bytes:
        packet = self._read_exactly(2)
        length, shift = packet[1] & 0x7F, 7
        while packet[-1] & 0x80:
            packet += self._read_exactly(1)
            length |= (packet[-1] & 0x7F) << shift
            shift += 7
        return packet + self._read_exactly(length)

    def _read_exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self.sock.recv(size - len(parts))
            if not part:
                raise BenchError("the broker closed the connection")
            parts += part
        return parts


def connack_code_at(connack: bytes) -> int:
    """The position of the Reason Code in a CONNACK: after the Remaining Length and one byte of flags."""
    at = 1
    while connack[at] & 0x80:
        at += 1
    return at + 2


class Loop:
    """Serves connections; closes them at the end of its `with` block."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.connections: dict[int, Connection] = {}

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self.connections.values():
            connection.close()
        self.epoll.close()

    def add(self, connection: Connection) -> None:
        """Make `connection` non-blocking and serve it."""
        connection.sock.setblocking(False)
        connection.loop = self
        self.connections[connection.fd] = connection
        self.epoll.register(connection.fd, select.EPOLLIN)

    def turn(self, seconds: float) -> bool:
        """Serve the ready connections, waiting at most `seconds`; False if none was ready."""
        events = self.epoll.poll(seconds)
        connections = self.connections
        for fd, event in events:
            connection = connections[fd]
            if event & select.EPOLLOUT:
                connection.writable()
            if event != select.EPOLLOUT:
                connection.readable()
        return bool(events)

    def brief_turn(self, seconds: float) -> bool:
        """Like `turn`, for waits below a millisecond, which epoll rounds up and select does not."""
        if seconds > 0:
            select.select([self.epoll], [], [], seconds)
        return self.turn(0)


def settle(port: int, wire: Wire) -> None:
    """Wait until the broker serves a new connection: it has then handled all closed ones."""
    connection = Connection(port, wire)
    try:
        connection.round_trip()
    finally:
        connection.close()
