"""Settings of the whole process."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock

from holdfast.broker import process
from tests.processes import unmeasured


class Limit:
    """The limit of open files, in memory."""

    RLIMIT_NOFILE = resource.RLIMIT_NOFILE
    RLIM_INFINITY = resource.RLIM_INFINITY

    def __init__(self, soft: int, hard: int, broken: bool = False) -> None:
        self.now = (soft, hard)
        self._broken = broken

    def getrlimit(self, _which: int) -> tuple[int, int]:
        return self.now

    def setrlimit(self, _which: int, limits: tuple[int, int]) -> None:
        if self._broken:
            raise ValueError("current limit exceeds maximum limit")
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 524288, 524288),
        (1024, 1024, 1024),
        (1024, 1 << 30, 1 << 20),
        (256, resource.RLIM_INFINITY, 1 << 20),
        (65536, 4096 * 16, 65536),
    ],
)
def test_the_limit_of_open_files_is_raised_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    limit = Limit(soft, hard)
    monkeypatch.setattr(process, "resource", limit)
    assert process.raise_open_files(object()) == after
    assert limit.now == (after, hard)


def test_a_limit_without_end_stays_and_counts_as_a_million(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Limit(resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(process, "resource", limit)
    assert process.raise_open_files(object()) == 1 << 20
    assert limit.now[0] == resource.RLIM_INFINITY


def test_a_reactor_that_uses_select_gets_no_more_than_it_can_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = Limit(256, 4096)
    monkeypatch.setattr(process, "resource", limit)
    reactor: Any = SelectReactor.__new__(SelectReactor)
    assert process.raise_open_files(reactor) == 1024
    assert limit.now == (1024, 4096)


def test_a_system_that_refuses_keeps_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "resource", Limit(256, 4096, broken=True))
    assert process.raise_open_files(object()) == 256


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the size of the table")
def test_the_table_of_open_files_has_room_before_clients_come() -> None:
    """It would grow while clients connect, and a process with threads waits for that."""
    code = (
        "import resource; from holdfast.broker.process import make_room_for_files\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "make_room_for_files(4096)\n"
        "print(open('/proc/self/status').read())"
    )
    status = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=unmeasured())
    (size,) = [line.split()[1] for line in status.stdout.splitlines() if line.startswith("FDSize:")]
    assert int(size) >= 4096


class Starting(Clock):
    """A reactor that runs when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._starting: list[Callable[[], object]] = []

    def callWhenRunning(self, call: Callable[..., object], *arguments: object) -> None:
        self._starting.append(lambda: call(*arguments))

    def run(self) -> None:
        for call in self._starting:
            call()
        self.advance(0)


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def tuned() -> Iterator[Starting]:
    """The interpreter of a broker that starts."""
    reactor = Starting()
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    gc.unfreeze()  # the objects of the tests, which then stand for those of a start
    try:
        process.tune_interpreter(reactor)
        yield reactor
    finally:
        gc.freeze()
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)


def test_no_collection_looks_at_the_objects_of_the_start(tuned: Starting) -> None:
    """They are many, and stay. A cycle that is made later is freed as usual."""
    frozen, before = gc.get_freeze_count(), len(gc.get_objects())
    tuned.run()
    assert gc.get_freeze_count() > frozen + 10_000
    assert len(gc.get_objects()) < before / 10
    watched = weakref.ref(_Cycle())
    gc.collect()
    assert watched() is None


def test_a_frequent_collection_looks_at_few_objects() -> None:
    """The bound is objects, not time: 6,000 take some 2 ms. All are collected after 48 million new ones or more."""
    young, parts, rare = process.COLLECTION_THRESHOLDS
    assert young * (parts + 2) <= 6_000
    assert young * (parts + 1) * rare >= 48_000_000
