"""Opening listeners: their backlog, and what the kernel makes of it."""

from __future__ import annotations

from errno import EWOULDBLOCK
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.protocol import Factory
from twisted.internet.tcp import Port
from twisted.internet.testing import MemoryReactor

from holdfast.listening import BACKLOG, MOST_ACCEPTS, Listener, Listening, accept_in_portions
from tests.logs import logged


def opened(somaxconn: Path) -> list[Any]:
    """Open a listener; return the arguments of the reactor's listenTCP."""
    reactor: Any = MemoryReactor()
    listener = Listener("default", "tcp:1883", f"tcp:port=1883:backlog={BACKLOG}", Factory())
    Listening(reactor, [listener], somaxconn).open()
    return list(reactor.tcpServers)


def test_the_kernel_keeps_1024_connections_for_a_busy_broker(tmp_path: Path) -> None:
    ((port, _, backlog, _),) = opened(tmp_path / "missing")
    assert (port, backlog) == (1883, 4096)


@pytest.mark.parametrize(("text", "lines"), [("128\n", 1), ("1024\n", 1), ("4096\n", 0), ("?", 0), (None, 0)])
def test_a_kernel_that_keeps_fewer_is_told_of(tmp_path: Path, text: str | None, lines: int) -> None:
    file = tmp_path / "somaxconn"
    if text is not None:
        file.write_text(text)
    with logged(Listening) as events:
        opened(file)
    assert [event["longest"] for event in events] == [int(text or "0") if lines else 0] * lines


class Backlog:
    """A listening socket in memory, whose connections the broker refuses."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting

    def accept(self) -> tuple[Backlog, tuple[str, int]]:
        if not self.waiting:
            raise OSError(EWOULDBLOCK, "none")
        self.waiting -= 1
        return self, ("192.0.2.1", 5555)

    def close(self) -> None: ...


def test_a_turn_of_the_reactor_accepts_a_portion_of_the_backlog() -> None:
    """Twisted alone would accept 100, 120, 140 and so on."""

    class Refusing(Factory):
        def buildProtocol(self, addr: object) -> None: ...

    reactor: Any = MemoryReactor()
    port: Any = Port(1883, Refusing(), reactor=reactor)
    port.socket = Backlog(1003)
    port.numberAccepts = 100
    accept_in_portions(port)
    portions = []
    while port.socket.waiting:
        before = port.socket.waiting
        port.doRead()
        portions.append(before - port.socket.waiting)
    assert portions == [MOST_ACCEPTS] * (1003 // MOST_ACCEPTS) + [1003 % MOST_ACCEPTS]
