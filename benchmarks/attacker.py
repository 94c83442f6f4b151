"""A hostile client on a raw socket: it sends what it likes, and reads only if it is told to."""

from __future__ import annotations

import select
import socket
import struct
import time
from contextlib import suppress

from benchmarks.connection import HANDSHAKE_SECONDS, BenchError
from holdfast.wire import PacketParser, Properties, encode
from holdfast.wire import packets as p

_SMALL = 4096  # receive buffer of a client that reads nothing: the kernel must not read for it
STALL = 3.0  # the broker takes no more, if it takes nothing for so many seconds


class Attacker:
    """One Network Connection. ``reads`` is False for a client that reads nothing after CONNACK."""

    def __init__(
        self,
        port: int,
        client_id: str = "",
        *,
        clean: bool = True,
        expiry: int = 0,
        receive_maximum: int | None = None,
        will: p.Will | None = None,
        reads: bool = True,
    ) -> None:
        self.sock = socket.socket()
        if not reads:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.settimeout(HANDSHAKE_SECONDS)
        self.sock.connect(("127.0.0.1", port))
        self._parser = PacketParser(1 << 28, 5)
        self.received = 0
        properties = Properties(session_expiry_interval=expiry, receive_maximum=receive_maximum)
        self.send(p.Connect(client_id, 5, clean, properties=properties, will=will))
        connack = self.next_packet(HANDSHAKE_SECONDS)
        if not isinstance(connack, p.Connack) or connack.reason_code:
            raise BenchError(f"CONNECT refused: {connack}"[:80])
        self.present = connack.session_present

    def send(self, *packets: p.Packet) -> None:
        """Send packets, waiting until the socket has taken them."""
        self.sock.settimeout(HANDSHAKE_SECONDS)
        self.sock.sendall(b"".join(encode(packet, 5) for packet in packets))

    def flood(self, data: bytes, stall: float = STALL, seconds: float = 100.0) -> str:
        """Send bytes as fast as the broker takes them, until it takes none for ``stall`` seconds.

        Return how many it took, and how it ended.
        """
        self.sock.setblocking(False)
        view, at = memoryview(data), 0
        begin = last = time.perf_counter()
        while at < len(data) and time.perf_counter() - begin < seconds:
            _, ready, _ = select.select([], [self.sock], [], 0.1)
            try:
                if ready:
                    at += self.sock.send(view[at : at + (1 << 16)])
                    last = time.perf_counter()
                elif time.perf_counter() - last > stall:
                    break
            except BlockingIOError:
                continue
            except OSError:
                return f"took {at:,} of {len(data):,} B, closed {time.perf_counter() - last:.0f} s later"
        return f"took {at:,} of {len(data):,} B"

    def next_packet(self, seconds: float) -> p.Packet | None:
        """Return the next packet; None if none comes in this time, or the connection has ended."""
        deadline = time.perf_counter() + seconds
        while (packet := self._parser.next_packet()) is None:
            self.sock.settimeout(max(0.001, deadline - time.perf_counter()))
            try:
                data = self.sock.recv(1 << 18)
            except OSError:
                return None
            if not data:
                return None
            self.received += len(data)
            self._parser.receive_data(data)
        return packet

    def swallow(self, seconds: float) -> int:
        """Read and forget everything, until nothing comes for `seconds`. Return the number of bytes."""
        before = self.received
        self.sock.settimeout(seconds)
        with suppress(OSError):
            while data := self.sock.recv(1 << 20):
                self.received += len(data)
        return self.received - before

    def subscribe(self, filters: list[str], qos: int = 1, portion: int = 100) -> None:
        """Subscribe in packets of ``portion`` filters, waiting for each SUBACK. Raises BenchError if one is refused."""
        for start in range(0, len(filters), portion):
            requests = tuple(p.SubscriptionRequest(name, qos) for name in filters[start : start + portion])
            self.send(p.Subscribe(1, requests))
            while not isinstance(packet := self.next_packet(HANDSHAKE_SECONDS), p.Suback):
                if packet is None:
                    raise BenchError("no SUBACK")
            if max(packet.reason_codes) >= 0x80:
                raise BenchError(f"SUBSCRIBE refused: 0x{max(packet.reason_codes):02x}")

    def publish(self, packet: p.Publish, times: int = 1, window: int = 500) -> None:
        """Publish a QoS 1 message so many times, with at most ``window`` unacknowledged."""
        data = encode(packet, 5)
        sent = acked = 0
        while acked < times:
            count = min(window - (sent - acked), times - sent)
            self.sock.settimeout(HANDSHAKE_SECONDS)
            self.sock.sendall(data * count)
            sent += count
            answer = self.next_packet(HANDSHAKE_SECONDS)
            if not isinstance(answer, p.Puback) or answer.reason_code >= 0x80:
                raise BenchError(f"PUBLISH refused: {answer}"[:80])
            acked += 1

    def vanish(self) -> None:
        """Close without DISCONNECT: the connection is reset."""
        with suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def told(packet: p.Packet | None) -> str:
    """Return an answer of the broker in a few words."""
    if packet is None:
        return "no answer"
    codes = getattr(packet, "reason_codes", None) or (getattr(packet, "reason_code", 0),)
    kinds = sorted(set(codes))
    name = type(packet).__name__.upper()
    return f"{name} " + " ".join(
        f"0x{code:02x}" + (f" x {codes.count(code):,}" if len(codes) > 1 else "") for code in kinds
    )
