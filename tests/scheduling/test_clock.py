"""The broker's time of day does not jump with the machine's clock."""

from __future__ import annotations

from holdfast.scheduling.clock import MonotonicClock


def test_the_time_begins_at_the_machines_and_then_passes_steadily() -> None:
    """Also if the machine's clock is set meanwhile."""
    wall, monotonic = [1_700_000_000_123_000_000], [5_000_000_000]
    clock = MonotonicClock(lambda: wall[0], lambda: monotonic[0])
    assert (clock.now(), clock.seconds()) == (1_700_000_000_123, 1_700_000_000.123)
    wall[0] = 0
    monotonic[0] += 2_000_000_000
    assert clock.now() == 1_700_000_002_123
    wall[0] *= 2
    assert clock.seconds() == 1_700_000_002.123


def test_by_default_it_agrees_with_the_machine() -> None:
    one = MonotonicClock().now()
    assert MonotonicClock().now() >= one > 1_700_000_000_000
