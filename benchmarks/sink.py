"""A stand-in for a broker that does almost nothing: the generator's rate against it is the highest possible one.

It knows only the generator's own packets. It answers with CONNACK, SUBACK and PUBACK, and sends every PUBLISH unparsed
to every subscriber. The answer to a SUBSCRIBE to `replay/N/QOS` is N ready packets, like a replay.
"""

from __future__ import annotations

import selectors
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.wire import PINGREQ, PINGRESP, Wire, pubacks

_BUFFER = 1 << 18


class Sink:
    """Listens on one port until SIGTERM."""

    def __init__(self, port: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self._subscribers: list[socket.socket] = []
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)

    def run(self) -> None:
        """Serve until the process ends."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    try:
                        self._serve(key.fileobj, key.data)
                    except OSError:
                        self._drop(key.fileobj)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(client, selectors.EVENT_READ, bytearray())

    def _drop(self, client: socket.socket) -> None:
        self._selector.unregister(client)
        if client in self._subscribers:
            self._subscribers.remove(client)
        client.close()

    def _serve(self, client: socket.socket, tail: bytearray) -> None:
        buffer = self._buffer
        kept = len(tail)
        buffer[:kept] = tail
        tail.clear()
        taken = client.recv_into(self._view[kept:])
        if not taken:
            self._drop(client)
            return
        end = kept + taken
        kind = buffer[0]
        if kind & 0xF0 == 0x30:
            size = 2 + buffer[1]
            count = end // size
            if count:
                for subscriber in self._subscribers:
                    subscriber.sendall(self._view[: count * size])
                if kind & 0x06:
                    client.sendall(pubacks(buffer, 0, count, size))
            tail += buffer[count * size : end]
            if tail == PINGREQ:
                tail.clear()
                client.sendall(PINGRESP)
        elif kind == 0x10:
            client.sendall(b"\x20\x03\x00\x00\x00" if buffer[8] == 5 else b"\x20\x02\x00\x00")
        elif kind == 0x82:
            self._subscribe(client, bytes(buffer[2:end]))
        elif buffer[:2] == PINGREQ:
            client.sendall(PINGRESP)

    def _subscribe(self, client: socket.socket, body: bytes) -> None:
        version = 5 if body[2] == 0 and body[3] == 0 else 4
        qos = body[-1]
        client.sendall(b"\x90\x04" + body[:2] + bytes([0, qos]) if version == 5 else b"\x90\x03" + body[:2] + body[-1:])
        topic_filter = body[4 + (version == 5) : -1]
        if topic_filter.startswith(b"replay/"):
            number = int(topic_filter.split(b"/")[1])
            client.sendall(Wire(version).publishes(0, number, qos, retain=True))
        else:
            self._subscribers.append(client)


if __name__ == "__main__":
    Sink(int(sys.argv[1])).run()
