"""Freed memory is given back, for a bounded share of the time."""

from __future__ import annotations

import ctypes
import sys

import pytest
from twisted.internet.task import Clock

from holdfast.scheduling.reactor import TOO_LONG, FreedMemory


class Library:
    """A C library whose calls take ``took`` seconds."""

    def __init__(self, took: float) -> None:
        self.took = took
        self.time = 0.0
        self.calls = 0

    def trim(self, _kept: int) -> int:
        self.calls += 1
        self.time += self.took
        return 1


@pytest.mark.parametrize(
    ("took", "seconds", "calls"),
    [(0.0001, 60, 60), (0.002, 60, 30), (0.0045, 90, 18), (TOO_LONG + 0.001, 3600, 1), (TOO_LONG + 0.001, 7000, 2)],
)
def test_it_rests_for_a_thousand_times_as_long_as_it_took(took: float, seconds: int, calls: int) -> None:
    """After a call that was too long, it rests for an hour."""
    library, clock = Library(took), Clock()
    memory = FreedMemory(clock, library.trim, lambda: library.time)
    memory.start()
    clock.pump([1.0] * seconds)
    assert library.calls == calls
    memory.stop()
    assert not clock.getDelayedCalls()


def _anonymous() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


@pytest.mark.skipif(not hasattr(ctypes.PyDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_it_gives_back_what_lies_below_a_block_in_use() -> None:
    assert sys.platform == "linux"
    blocks = [b"x" * 3000 + bytes([number % 256]) for number in range(20_000)]
    kept = blocks[-1] + b"y"
    full = _anonymous()
    blocks.clear()
    clock = Clock()
    memory = FreedMemory(clock)
    memory.start()
    clock.advance(1.0)
    memory.stop()
    assert full - _anonymous() > 40_000, len(kept)
