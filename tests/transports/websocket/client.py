"""The client's side of WebSocket, on transports in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from holdfast.transports.protocol import MQTTServerFactory, OpenConnections
from holdfast.transports.websocket import WebSocketLayer
from holdfast.transports.websocket_opening import AllowedOrigins, Opening
from tests.transports.test_protocol import STRANGER, Door, Socket, Transport

BINARY, TEXT, CLOSE, PING, PONG = 0x82, 0x81, 0x88, 0x89, 0x8A
#: without the bit of the last fragment
FIRST, MORE, LAST = 0x02, 0x00, 0x80

MASK = bytes.fromhex("1f 00 a5 ff")

REQUEST = {
    "Host": "broker.example:9001",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


def request(line: str = "GET /mqtt HTTP/1.1", **headers: str | None) -> bytes:
    """Return a request; ``Sec_WebSocket_Key=None`` leaves that header out."""
    named = REQUEST | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [line, *(f"{name}: {value}" for name, value in named.items() if value is not None), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def frame(payload: bytes, first: int = BINARY, mask: bytes = MASK) -> bytes:
    """Return a masked frame."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes([first]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def sent_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return the frames of a broker: the first byte and the payload of each."""
    frames = []
    while data:
        size, start = data[1], 2
        if size == 126:
            size, start = int.from_bytes(data[2:4], "big"), 4
        assert size < 126 or start == 4, "the broker needs no longer frames"
        assert len(data) >= start + size
        frames.append((data[0], data[start : start + size]))
        data = data[start + size :]
    return frames


class TransportWithRoom(Transport):
    """A transport whose socket takes all bytes, or none of them while it is ``full``."""

    def __init__(self) -> None:
        super().__init__(Socket())
        self.full = False
        self.dataBuffer = b""
        self.offset = self._tempDataLen = 0

    def write(self, data: bytes) -> None:
        if self.full:
            self.dataBuffer += data
        else:
            super().write(data)  # type: ignore[no-untyped-call]

    def drain(self) -> None:
        """Let the client read everything."""
        self.full = False
        data, self.dataBuffer = self.dataBuffer, b""
        super().write(data)  # type: ignore[no-untyped-call]
        if self.producer is not None:
            self.producer.resumeProducing()


class WebSocketDoor(Door):
    """A listener for WebSocket whose transports are in memory."""

    def __init__(
        self, proxies: list[str] | None = None, path: str = "/mqtt", origins: tuple[str, ...] = (), size: int = 1 << 20
    ) -> None:
        super().__init__(proxies)
        opening = Opening(path, AllowedOrigins(origins))
        self.factory = MQTTServerFactory(
            lambda network: self.broker.connect(network, self.broker.limits, "test"),
            OpenConnections(self.broker.clock), self.broker.clock, self.acceptance,
            lambda: [WebSocketLayer(opening, size, self.broker.clock)],
        )  # fmt: skip

    def accept(self, address: IAddress = STRANGER) -> Any:
        protocol: Any = self.factory.buildProtocol(address)
        protocol.makeConnection(TransportWithRoom())
        return protocol

    def send(self, protocol: Any, data: bytes) -> bytes:
        """Let the client send; return what the broker has sent since the last call."""
        protocol.dataReceived(data)
        return self.settled(protocol)

    def settled(self, protocol: Any) -> bytes:
        """Let the broker work; return what it has sent since the last call."""
        self.broker.settle()
        if not protocol.transport.full:
            protocol.transport.drain()
            self.broker.settle()
        data = bytes(protocol.transport.value())
        protocol.transport.clear()
        return data

    def open(self) -> Any:
        """Return a connection whose handshake has succeeded."""
        protocol = self.accept()
        assert self.send(protocol, request()).startswith(b"HTTP/1.1 101 ")
        return protocol


@contextmanager
def log_lines() -> Iterator[list[str]]:
    """Collect all log lines, of whatever part of the process."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observe)  # type: ignore[arg-type]
