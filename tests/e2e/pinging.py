"""A connected client that pings, as a process of its own: ``python -m tests.e2e.pinging PORT USER PASSWORD``.

It prints a line when it is connected. When its standard input ends, it prints the milliseconds of the longest wait for
a PINGRESP, and of the 99th of 100, as JSON.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from holdfast.wire import encode
from holdfast.wire import packets as p

_INTERVAL = 0.005


def main(port: int, user: str, password: str) -> None:
    """Ping until standard input ends."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(encode(p.Connect("pinging", 4, username=user, password=password.encode()), 4))
        assert connection.recv(4) == b"\x20\x02\0\0"
        print("connected", flush=True)
        waits: list[float] = []
        while not select.select([sys.stdin], [], [], _INTERVAL)[0]:
            begun = time.perf_counter()
            connection.sendall(b"\xc0\0")
            assert connection.recv(2) == b"\xd0\0"
            waits.append((time.perf_counter() - begun) * 1000)
    waits.sort()
    print(json.dumps({"pings": len(waits), "longest": waits[-1], "p99": waits[len(waits) * 99 // 100]}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
