"""Opening listeners: their backlog, and what the kernel makes of it."""

from __future__ import annotations

import socket
from errno import EADDRINUSE, EADDRNOTAVAIL, EWOULDBLOCK
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory
from twisted.internet.tcp import Port
from twisted.internet.testing import MemoryReactor

from holdfast.broker.admin import AdminListener
from holdfast.config.sections.admin import AdminConfig
from holdfast.transports.listening import (
    BACKLOG,
    MOST_ACCEPTS,
    AddressMissing,
    CannotListen,
    Listener,
    Listening,
    accept_in_portions,
)
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
    parts = []
    while port.socket.waiting:
        before = port.socket.waiting
        port.doRead()
        parts.append(before - port.socket.waiting)
    assert parts == [MOST_ACCEPTS] * (1003 // MOST_ACCEPTS) + [1003 % MOST_ACCEPTS]


class Machine(MemoryReactor):
    """A machine that has the addresses ``here``; ports in ``taken`` are in use."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.here = {"127.0.0.1"}
        self.taken: set[int] = set()

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        if interface == "unknown.example":
            raise CannotListenError(interface, port, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
        if interface not in self.here:
            raise CannotListenError(interface, port, OSError(EADDRNOTAVAIL, "Cannot assign requested address"))
        if port in self.taken:
            raise CannotListenError(interface, port, OSError(EADDRINUSE, "Address already in use"))
        return super().listenTCP(port, factory, backlog, interface)  # type: ignore[no-untyped-call]


def listening_on(machine: Machine, **places: str) -> Listening:
    listeners = [
        Listener(name, place, f"tcp:1883:interface={place}", Factory(), strangers=False)
        for name, place in places.items()
    ]
    return Listening(machine, listeners, Path("missing"))


@pytest.mark.parametrize("place", ["192.0.2.1", "unknown.example"])
def test_a_listener_waits_for_its_address_and_the_others_open(place: str) -> None:
    machine = Machine()
    listening = listening_on(machine, late=place, here="127.0.0.1")
    assert [line.split()[0] for line in listening.open(wait=True)] == ["here"]
    assert listening.open_names == ["here"]
    [reason] = listening.late
    assert reason.startswith(f"listener late: cannot listen on {place}: ")
    assert listening.open_late() == []
    assert listening.late == [reason]
    late = listening_on(machine, late="192.0.2.1")
    late.open(wait=True)
    machine.here.add("192.0.2.1")
    assert [line.split()[0] for line in late.open_late()] == ["late"]
    assert (late.late, late.open_names) == ([], ["late"])


def test_an_address_that_is_missing_ends_a_start_that_does_not_wait() -> None:
    machine = Machine()
    listening = listening_on(machine, here="127.0.0.1", late="192.0.2.1")
    with pytest.raises(AddressMissing, match="listener late"):
        listening.open()
    assert (listening.open_names, listening.late) == ([], [])


def test_a_port_in_use_ends_a_start_that_waits_for_addresses() -> None:
    machine = Machine()
    machine.taken.add(1883)
    listening = listening_on(machine, late="192.0.2.1", here="127.0.0.1")
    with pytest.raises(CannotListen, match="already in use") as raised:
        listening.open(wait=True)
    assert not isinstance(raised.value, AddressMissing)
    assert (listening.open_names, listening.late) == ([], [])


def test_a_late_listener_whose_port_is_taken_meanwhile_leaves_the_others_open() -> None:
    machine = Machine()
    listening = listening_on(machine, late="192.0.2.1", here="127.0.0.1")
    listening.open(wait=True)
    machine.here.add("192.0.2.1")
    machine.taken.add(1883)
    with logged(Listening) as events:
        assert [listening.open_late() for _ in range(3)] == [[], [], []]
    assert len(events) == 1  # said once
    assert listening.open_names == ["here"]
    machine.taken.clear()
    assert [line.split()[0] for line in listening.open_late()] == ["late"]


def test_a_late_listener_that_is_removed_is_not_opened() -> None:
    machine = Machine()
    listening = listening_on(machine, late="192.0.2.1")
    listening.open(wait=True)
    listening.remove(["late"])
    machine.here.add("192.0.2.1")
    assert (listening.open_late(), listening.late) == ([], [])


def test_the_listener_of_the_api_waits_for_its_address_too() -> None:
    machine = Machine()
    config = AdminConfig(endpoint="tcp:18083:interface=192.0.2.1", allow_plaintext=True)
    made: Any = Factory()  # it makes no protocol here
    admin = AdminListener(config, machine, made, made)
    assert (admin.open(wait=True), admin.url) == ([], None)
    assert [reason.partition(":")[0] for reason in admin.late] == ["listener admin"]
    assert admin.open_late() == []
    machine.here.add("192.0.2.1")
    [url] = admin.open_late()
    assert url.startswith("http://")
    assert (admin.url, admin.late) == (url, [])
