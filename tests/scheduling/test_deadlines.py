"""Deadlines: met in time, taken in parts, and forgotten when they are discarded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.logger import LogEvent

from holdfast.scheduling.deadlines import Deadlines
from holdfast.scheduling.long_work import LongWork
from tests.doubles import START, TurnClock


@pytest.fixture
def clock() -> TurnClock:
    clock = TurnClock()
    clock.advance(START)
    return clock


@pytest.fixture
def met() -> list[str]:
    return []


@pytest.fixture
def deadlines(clock: TurnClock, met: list[str]) -> Deadlines:
    def act(key: str) -> Iterator[int]:
        if key == "fails":
            raise OSError
        met.append(key)
        return iter(())

    return Deadlines("the test", clock, LongWork(clock, part=3), act)


def test_keys_are_met_in_the_order_of_their_moments(clock: TurnClock, deadlines: Deadlines, met: list[str]) -> None:
    for key, delay in (("c", 7.25), ("a", 1), ("b", 7), ("now", 0)):
        deadlines.set(key, delay)
    assert met == ["now"]
    clock.advance(0.9)
    assert met == ["now"]
    clock.advance(0.1)
    assert met == ["now", "a"]
    clock.advance(6)
    assert met == ["now", "a", "b"]
    clock.advance(0.25)
    clock.advance(0.1)
    assert met == ["now", "a", "b", "c"]
    assert not len(deadlines)
    clock.advance(1)
    assert clock.getDelayedCalls() == []


def test_a_later_deadline_replaces_an_earlier_one(clock: TurnClock, deadlines: Deadlines, met: list[str]) -> None:
    deadlines.set("a", 1)
    deadlines.set("a", 5)
    clock.advance(4.5)
    assert met == []
    clock.advance(0.5)
    assert met == ["a"]


def test_a_discarded_key_is_not_met(clock: TurnClock, deadlines: Deadlines, met: list[str]) -> None:
    deadlines.set("a", 1)
    deadlines.set("b", 1)
    assert deadlines.discard("a")
    assert not deadlines.discard("a")
    clock.advance(2)
    assert met == ["b"]


def test_many_keys_of_one_moment_are_taken_in_portions_and_may_still_be_discarded(
    clock: TurnClock, deadlines: Deadlines, met: list[str]
) -> None:
    for number in range(10):
        deadlines.set(str(number), 1)
    clock.rightNow += 1
    clock.turn()
    assert met == ["0", "1", "2"]
    assert deadlines.is_due("5")
    assert deadlines.discard("5")
    clock.turn()
    assert met == ["0", "1", "2", "3", "4", "6"]
    clock.turn()
    assert met == ["0", "1", "2", "3", "4", "6", "7", "8", "9"]


def test_a_key_in_a_hurry_is_met_now(clock: TurnClock, deadlines: Deadlines, met: list[str]) -> None:
    deadlines.set("a", 100)
    deadlines.hurry("a")
    deadlines.hurry("unknown")
    assert met == ["a"]
    clock.advance(100)
    assert met == ["a"]


def test_a_key_that_fails_keeps_no_other_from_its_turn(
    clock: TurnClock, deadlines: Deadlines, met: list[str], logged_failures: list[LogEvent]
) -> None:
    for key in ("a", "fails", "b"):
        deadlines.set(key, 1)
    clock.advance(1)
    assert met == ["a", "b"]
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_discarded_deadlines_leave_nothing_behind(clock: TurnClock, deadlines: Deadlines) -> None:
    """A Client that comes and goes for years costs no memory."""
    for _ in range(10_000):
        deadlines.set("a", 7200)
        clock.advance(0.2)
    assert len(deadlines) == 1
    assert len(deadlines._order) < 200
    assert len(clock.getDelayedCalls()) == 1
    deadlines.stop()
    assert not len(deadlines)
    assert clock.getDelayedCalls() == []
