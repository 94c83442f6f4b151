"""Bursts of connects, and connects that are refused."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

from benchmarks.attacks.field import Field
from holdfast.wire import encode
from holdfast.wire import packets as p

_BURST = 400
_LATE = 0.9  # a lost SYN is sent again after a second
_MALFORMED = bytes.fromhex("10 0c 0004 4d515454 09 02 003c 0000") + bytes(60)  # protocol level 9


def _bursts(field: Field) -> Iterator[str]:
    yield ""
    waits: list[float] = []
    for _ in range(field.many(10)):
        waits += _burst(field, _BURST)
    late = sum(wait >= _LATE for wait in waits)
    yield f"{late:,} of {len(waits):,} clients waited {_LATE} s or more, the worst one {max(waits):.2f} s"


def _burst(field: Field, count: int) -> list[float]:
    """Connect so many clients at once; return the seconds that each waited for its CONNACK."""
    packet = encode(p.Connect("", 5), 5)
    begin = time.perf_counter()
    waiting: dict[int, socket.socket] = {}
    poll = select.epoll()
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", field.broker.port))
        waiting[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLOUT)
    waits = []
    while waiting and time.perf_counter() - begin < 30:
        for fd, event in poll.poll(1):
            sock = waiting[fd]
            if event & select.EPOLLOUT:
                with suppress(OSError):
                    sock.send(packet)
                poll.modify(fd, select.EPOLLIN)
                continue
            with suppress(OSError):
                sock.recv(4096)
            waits.append(time.perf_counter() - begin)
            poll.unregister(fd)
            waiting.pop(fd).close()
    poll.close()
    for sock in waiting.values():
        sock.close()
    return waits + [30.0] * len(waiting)


def _malformed(field: Field) -> Iterator[str]:
    yield ""
    before = field.broker.log_size
    count = field.many(5000)
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", field.broker.port), timeout=30) as sock, suppress(OSError):
            sock.sendall(_MALFORMED)
            while sock.recv(4096):
                pass
    sent = count * len(_MALFORMED)
    yield f"{count:,} closed; the log grew {(field.broker.log_size - before) / sent:.2f} B for each byte sent"


ATTACKS = {"7: bursts of 400 connects": _bursts, "11: malformed packets": _malformed}
