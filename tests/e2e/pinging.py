"""A connected client that pings, as a process of its own: ``python -m tests.e2e.pinging PORT [USER PASSWORD]``.

It prints a line when it is connected. When its standard input ends, it prints as JSON: the number of pings, the
milliseconds of the longest wait for a PINGRESP and of the 99th of 100, and the waits from :data:`LONG` on, each with
the time of its end. All processes of the machine have the same time.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import sys
import time

from holdfast.wire import encode
from holdfast.wire import packets as p

#: milliseconds from which on a wait is told with its time
LONG = 10.0

_INTERVAL = 0.005


def main(port: int, user: str | None = None, password: str = "") -> None:
    """Ping until standard input ends."""
    connect = p.Connect("pinging", 4, username=user, password=password.encode() if user else None)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(encode(connect, 4))
        assert connection.recv(4) == b"\x20\x02\0\0"
        gc.disable()  # so that no wait is this process's
        print("connected", flush=True)
        waits: list[tuple[float, float]] = []
        while not select.select([sys.stdin], [], [], _INTERVAL)[0]:
            begun = time.monotonic()
            connection.sendall(b"\xc0\0")
            assert connection.recv(2) == b"\xd0\0"
            ended = time.monotonic()
            waits.append(((ended - begun) * 1000, ended))
    long = sorted((wait, ended) for wait, ended in waits if wait >= LONG)
    lengths = sorted(wait for wait, _ in waits)
    found = {"pings": len(waits), "longest": lengths[-1], "p99": lengths[len(waits) * 99 // 100], "long": long}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
