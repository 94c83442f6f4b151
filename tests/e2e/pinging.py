"""A connected client that pings, as a process of its own: ``python -m tests.e2e.pinging PORT [USER PASSWORD]``.

It prints a line when it is connected and, when its standard input ends, the number of its pings. A ping that is not
answered ends it with an error.
"""

from __future__ import annotations

import select
import socket
import sys

from holdfast.wire import encode
from holdfast.wire import packets as p

_INTERVAL = 0.005


def main(port: int, user: str | None = None, password: str = "") -> None:
    """Ping until standard input ends."""
    connect = p.Connect("pinging", 4, username=user, password=password.encode() if user else None)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(encode(connect, 4))
        assert connection.recv(4) == b"\x20\x02\0\0"
        print("connected", flush=True)
        pings = 0
        while not select.select([sys.stdin], [], [], _INTERVAL)[0]:
            connection.sendall(b"\xc0\0")
            assert connection.recv(2) == b"\xd0\0"
            pings += 1
    print(pings, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
