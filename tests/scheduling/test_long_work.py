"""Long work is done in parts, one each turn, round-robin between the owners."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.python.failure import Failure

from holdfast.scheduling.long_work import LongWork, Meter
from tests.doubles import TurnClock


def steps(log: list[str], name: str, count: int, each: int = 1) -> Iterator[int]:
    """Work of ``count`` steps that notes each of them."""
    for _ in range(count):
        yield each
        log.append(name)


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def clock() -> TurnClock:
    return TurnClock()


@pytest.fixture
def work(clock: TurnClock) -> LongWork:
    return LongWork(clock, part=3)


def test_short_work_is_done_at_once(work: LongWork, log: list[str]) -> None:
    assert work.do("a", steps(log, "a", 2)) is None
    assert log == ["a", "a"]
    assert not len(work)


def test_long_work_takes_one_portion_each_turn(work: LongWork, clock: TurnClock, log: list[str]) -> None:
    done = work.do("a", steps(log, "a", 8))
    assert done is not None
    assert len(log) == 3
    clock.turn()
    assert len(log) == 6
    assert not done.called
    clock.turn()
    assert len(log) == 8
    assert done.called
    assert not clock.getDelayedCalls()


def test_owners_take_turns(work: LongWork, clock: TurnClock, log: list[str]) -> None:
    work.do("a", steps(log, "a", 9))
    work.do("b", steps(log, "b", 6))
    del log[:]
    while len(work):
        clock.turn()
    assert "".join(log) == "aaabbbaaa"


def test_the_work_of_one_owner_is_done_in_its_order(work: LongWork, clock: TurnClock, log: list[str]) -> None:
    work.do("a", steps(log, "1", 4))
    later = work.do("a", steps(log, "2", 1))
    assert later is not None
    while len(work):
        clock.turn()
    assert "".join(log) == "11112"
    assert later.called


def test_many_short_pieces_in_one_turn_cost_one_portion(work: LongWork, clock: TurnClock, log: list[str]) -> None:
    answers = [work.do("a", steps(log, "a", 1)) for _ in range(10)]
    assert len(log) == 3
    assert answers[:3] == [None] * 3
    turns = 0
    while len(work):
        clock.turn()
        turns += 1
    assert len(log) == 10
    assert turns == 7


def test_another_owner_has_its_own_portion_in_the_same_turn(work: LongWork, log: list[str]) -> None:
    work.do("a", steps(log, "a", 100))
    assert work.do("b", steps(log, "b", 2)) is None
    assert log.count("b") == 2


def test_every_turn_begins_with_a_new_portion(work: LongWork, clock: TurnClock, log: list[str]) -> None:
    assert work.do("a", steps(log, "a", 2)) is None
    clock.turn()
    assert work.do("a", steps(log, "a", 2)) is None


def test_a_step_may_count_for_several(work: LongWork, clock: TurnClock, log: list[str]) -> None:
    work.do("a", steps(log, "a", 3, each=2))
    assert len(log) == 1
    clock.turn()
    assert len(log) == 2


def test_a_step_larger_than_a_portion_is_done(work: LongWork, clock: TurnClock, log: list[str]) -> None:
    work.do("a", steps(log, "a", 2, each=10))
    assert len(log) == 1
    clock.turn()
    assert len(log) == 2


def test_an_error_at_once_is_raised(work: LongWork) -> None:
    def fail() -> Iterator[int]:
        yield 1
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        work.do("a", fail())
    assert not len(work)


def test_a_later_error_is_given_to_the_deferred_and_ends_no_other_work(
    work: LongWork, clock: TurnClock, log: list[str]
) -> None:
    def fail() -> Iterator[int]:
        yield 3
        yield 1
        raise ValueError("later")

    failures: list[Failure] = []

    def failed(failure: Failure) -> None:
        failures.append(failure)

    done = work.do("a", fail())
    assert done is not None
    done.addErrback(failed)
    work.do("b", steps(log, "b", 5))
    while len(work):
        clock.turn()
    assert failures[0].check(ValueError)
    assert len(log) == 5


def test_work_may_ask_for_more_work_of_its_owner(work: LongWork, clock: TurnClock, log: list[str]) -> None:
    def asks() -> Iterator[int]:
        work.do("a", steps(log, "inner", 4))
        yield 3
        log.append("outer")

    work.do("a", asks())
    while len(work):
        clock.turn()
    assert log.count("inner") == 4
    assert log.count("outer") == 1


def test_small_pieces_share_a_step_and_large_ones_count_for_several() -> None:
    meter = Meter(8)
    assert [meter.add(1) for _ in range(17)] == [1, *[0] * 7, 1, *[0] * 7, 1]
    assert [meter.add(weight) for weight in (8, 20, 3, 4, 5)] == [1, 3, 0, 1, 1]
