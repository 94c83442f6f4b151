"""The turns of replays: clients take turns, however many replays each has."""

from __future__ import annotations

import pytest

from holdfast.retained.replay.pace import ReplayTurns
from tests.doubles import TurnClock


class Walker:
    """Takes a number of steps, and notes them."""

    def __init__(self, client_id: str, log: list[str], steps: int = 100) -> None:
        self.client_id = client_id
        self.log = log
        self.steps = steps

    def step(self) -> bool:
        self.log.append(self.client_id)
        self.steps -= 1
        return self.steps > 0


@pytest.fixture
def clock() -> TurnClock:
    return TurnClock()


def test_120_replays_of_one_client_get_as_many_turns_as_one_of_another(clock: TurnClock) -> None:
    turns, log = ReplayTurns(clock), list[str]()
    for _ in range(120):
        turns.join(Walker("many", log))
    turns.join(Walker("one", log))
    for _ in range(100):
        clock.turn()
    assert (log.count("many"), log.count("one")) == (50, 50)
    assert log[:4] == ["many", "one", "many", "one"]


def test_a_replay_goes_on_before_the_others_of_its_client(clock: TurnClock) -> None:
    """So one of them holds a batch, not each."""
    turns, log = ReplayTurns(clock), list[str]()
    first, second = Walker("c", log, 3), Walker("c", log, 1)
    turns.join(first)
    turns.join(second)
    for _ in range(3):
        clock.turn()
    assert (first.steps, second.steps) == (0, 1)
    clock.turn()
    assert second.steps == 0
    assert not clock.getDelayedCalls()


def test_a_replay_that_leaves_takes_no_step(clock: TurnClock) -> None:
    turns, log = ReplayTurns(clock), list[str]()
    walkers = [Walker("c", log), Walker("c", log), Walker("d", log)]
    for walker in walkers:
        turns.join(walker)
        turns.join(walker)
    assert len(turns) == 3
    for walker in walkers:
        turns.leave(walker)
        turns.leave(walker)
    clock.turn()
    assert (log, len(turns)) == ([], 0)
    assert not clock.getDelayedCalls()


def test_a_replay_that_fails_ends_no_other(clock: TurnClock) -> None:
    class Failing(Walker):
        def step(self) -> bool:
            raise OSError

    turns, log = ReplayTurns(clock), list[str]()
    turns.join(Failing("a", log))
    turns.join(Walker("b", log, 1))
    with pytest.raises(OSError):
        clock.turn()
    clock.turn()
    assert log == ["b"]
