"""What the service manager is told, and when, on a real datagram socket."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.broker.service_manager import ServiceManager
from tests.logs import logged

Writer = list[Deferred[None]]


@pytest.fixture
def manager() -> Iterator[tuple[str, socket.socket]]:
    """Return a service manager's address and its socket. A short path: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        path = str(Path(folder) / "notify")
        receiver.bind(path)
        receiver.setblocking(False)
        yield path, receiver


@pytest.fixture
def clock() -> Clock:
    return Clock()


def told(receiver: socket.socket) -> list[str]:
    """Return what the manager was told since the last call."""
    found = []
    while True:
        try:
            found.append(receiver.recv(4096).decode().split("\n")[0])
        except BlockingIOError:
            return found


def made(environment: dict[str, str], clock: Clock, writer: Writer) -> ServiceManager:
    """Return a service manager, whose questions to the writer are collected."""

    def ask() -> Deferred[None]:
        writer.append(Deferred())
        return writer[-1]

    return ServiceManager.of(environment, clock, ask)


def test_the_watchdog_is_fed_only_after_the_writer_has_answered(
    manager: tuple[str, socket.socket], clock: Clock
) -> None:
    path, receiver = manager
    writer: Writer = []
    service = made({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "30000000"}, clock, writer)
    service.ready()
    clock.advance(0)
    assert told(receiver) == ["READY=1"]
    clock.advance(29)  # the writer hangs: nothing is told, and it is not asked twice
    assert (told(receiver), len(writer)) == ([], 1)
    writer[0].callback(None)
    assert told(receiver) == ["WATCHDOG=1"]
    clock.advance(15)
    writer[1].callback(None)
    assert told(receiver) == ["WATCHDOG=1"]
    service.stopping()
    clock.advance(15)
    writer[2].callback(None)
    assert told(receiver) == ["STOPPING=1", "WATCHDOG=1"]
    service.close()
    assert not clock.getDelayedCalls()


def test_a_reload_ends_with_ready_and_goes_on_feeding(manager: tuple[str, socket.socket], clock: Clock) -> None:
    path, receiver = manager
    writer: Writer = []
    service = made({"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000000"}, clock, writer)
    service.ready()
    service.reloading()
    service.ready()
    clock.advance(0)
    assert told(receiver) == ["READY=1", "RELOADING=1", "READY=1"]
    assert len(writer) == 1


def test_a_broker_that_waits_says_why_and_gets_more_time(manager: tuple[str, socket.socket], clock: Clock) -> None:
    path, receiver = manager
    service = made({"NOTIFY_SOCKET": path}, clock, [])
    service.waiting("no server\nanswers")
    assert receiver.recv(4096) == b"EXTEND_TIMEOUT_USEC=120000000\nSTATUS=waiting: no server answers"
    service.ready("listener lan: no address")
    assert receiver.recv(4096) == b"READY=1\nSTATUS=clients can connect; waiting: listener lan: no address"
    service.ready()
    assert receiver.recv(4096) == b"READY=1\nSTATUS=clients can connect"


@pytest.mark.parametrize(
    "watchdog",
    [{}, {"WATCHDOG_USEC": "none"}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}],
)
def test_without_a_watchdog_nothing_is_fed(
    manager: tuple[str, socket.socket], clock: Clock, watchdog: dict[str, str]
) -> None:
    path, receiver = manager
    service = made({"NOTIFY_SOCKET": path, **watchdog}, clock, [])
    service.ready()
    assert not clock.getDelayedCalls()
    assert told(receiver) == ["READY=1"]
    service.close()


def test_without_a_service_manager_nothing_happens(clock: Clock) -> None:
    service = made({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}, clock, [])
    service.ready()
    service.reloading()
    service.stopping()
    service.close()
    assert not clock.getDelayedCalls()


def test_a_service_manager_that_is_gone_is_logged(clock: Clock) -> None:
    with logged(ServiceManager) as events:
        made({"NOTIFY_SOCKET": "@holdfast-nobody"}, clock, []).ready()
    [event] = events
    assert event["state"].startswith("READY=1")
