"""Messages that come over WebSocket: the processor time of the broker for each, by the length of the messages."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.connection import BenchError
from benchmarks.makes import start
from benchmarks.results import Metric, Result
from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.transports.websocket.client import frame, request

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

COST = Metric("broker", "µs a message", False)
#: The name of each case, the bytes of a payload, and the messages that are sent: a longer one arrives in parts.
_CASES = (("20 bytes", 20, 300_000), ("1 KB", 1000, 200_000), ("100 KB", 100_000, 4000))
_PINGREQ, _PINGRESP = bytes((0xC0, 0)), bytes((0xD0, 0))
_PIECE = 1 << 18
_SECONDS = 60.0


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """One client publishes with QoS 0 to a topic without subscribers, each message in a frame of its own."""
    if broker.name != "holdfast":
        return
    own = start(broker.name, broker.site, durable=False)
    try:
        own.end()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        settings = own.directory / "websocket.toml"
        settings.write_text(
            f'[listeners.default]\nendpoint = "tcp:{own.port}:interface=127.0.0.1"\n'
            f'[listeners.web]\nendpoint = "tcp:{port}:interface=127.0.0.1"\ntransport = "websocket"\n'
        )
        own.listen_by(settings)
        own.launch()
        own.ready()
        for name, size, count in _CASES:
            with result.case(name, [COST], own) as case:
                count = min(count, scale.messages)
                case[COST] = _cost(own, port, frame(encode(p.Publish("bench/t", bytes(size)), 4)), count)
    finally:
        own.stop()


def _cost(broker: Broker, port: int, message: bytes, count: int) -> float:
    """Return the processor time of the broker for each of ``count`` messages, in microseconds."""
    at_once = max(1, _PIECE // len(message))
    with socket.create_connection(("127.0.0.1", port), timeout=_SECONDS) as sock:
        sock.sendall(request() + frame(encode(p.Connect("bench-web"), 4)) + frame(_PINGREQ))
        _until_answered(sock)
        broker.quiet()
        before = broker.cpu_seconds()
        for sent in range(0, count, at_once):
            sock.sendall(message * min(at_once, count - sent))
        sock.sendall(frame(_PINGREQ))
        _until_answered(sock)
        return 1e6 * (broker.cpu_seconds() - before) / count


def _until_answered(sock: socket.socket) -> None:
    """Wait for the answer to a ping: the broker has then taken all earlier messages."""
    deadline, last = time.monotonic() + _SECONDS, b""
    while not last.endswith(_PINGRESP):
        if time.monotonic() > deadline:
            raise BenchError("no answer over WebSocket")
        came = sock.recv(4096)
        if not came:
            raise BenchError("the broker closed the WebSocket")
        last = (last + came)[-len(_PINGRESP) :]
