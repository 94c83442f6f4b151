"""Load averages, against numbers computed by hand with mosquitto's formula."""

from __future__ import annotations

import pytest

from holdfast.sessions.sys_topics import LoadAverage


def rounded(load: LoadAverage, total: int, interval: float) -> tuple[float, ...]:
    return tuple(round(value, 2) for value in load.update(total, interval).values())


def test_averages_over_one_five_and_fifteen_minutes() -> None:
    """v = r + exp(-t / T) * (v - r) for a growth of r per minute, an interval of t and periods T of 60, 300, 900 s."""
    load = LoadAverage()
    # 100 in 10 s are 600 a minute: 600 * (1 - e**(-1/6), 1 - e**(-1/30), 1 - e**(-1/90))
    assert rounded(load, 100, 10) == (92.11, 19.67, 6.63)
    # none in the next 10 s: times e**(-1/6), e**(-1/30), e**(-1/90)
    assert rounded(load, 100, 10) == (77.97, 19.03, 6.56)
    # 60 in a minute: 60 + (v - 60) / e, e**(-1/5), e**(-1/15)
    assert rounded(load, 160, 60) == (66.61, 26.45, 10.0)


def test_averages_approach_a_steady_growth() -> None:
    load = LoadAverage()
    for minute in range(1, 200):
        load.update(30 * minute, 60)
    assert rounded(load, 6000, 60) == (30.0, 30.0, 30.0)


@pytest.mark.parametrize("interval", [0, -5])
def test_an_interval_of_zero_changes_nothing(interval: float) -> None:
    """As at the start, or when the clock was set back. The growth meanwhile counts in the next interval."""
    load = LoadAverage()
    assert rounded(load, 50, interval) == (0.0, 0.0, 0.0)
    assert rounded(load, 100, 10) == (92.11, 19.67, 6.63)
