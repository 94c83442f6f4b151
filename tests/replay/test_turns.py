"""The turns of replays: clients take turns, however many replays each has."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.replay.pace import FlowControl
from holdfast.retained.limits import FlowSettings
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


def turns_of(clock: TurnClock) -> Any:
    return FlowControl(clock, FlowSettings()).turns


def test_120_replays_of_one_client_get_as_many_turns_as_one_of_another(clock: TurnClock) -> None:
    turns, log = turns_of(clock), list[str]()
    for _ in range(120):
        turns.enter("many", Walker("many", log))
    turns.enter("one", Walker("one", log))
    for _ in range(100):
        clock.turn()
    assert (log.count("many"), log.count("one")) == (50, 50)
    assert log[:4] == ["many", "one", "many", "one"]


def test_a_replay_goes_on_before_the_others_of_its_client(clock: TurnClock) -> None:
    """So one of them holds a batch, not each."""
    turns, log = turns_of(clock), list[str]()
    first, second = Walker("c", log, 3), Walker("c", log, 1)
    turns.enter("c", first)
    turns.enter("c", second)
    for _ in range(3):
        clock.turn()
    assert (first.steps, second.steps) == (0, 1)
    clock.turn()
    assert second.steps == 0
    assert not clock.getDelayedCalls()
