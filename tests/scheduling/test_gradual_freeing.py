"""Large structures are freed a part at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from holdfast.scheduling.long_work import FREED_IN_TURN, FREEING_PAUSE, GradualFreeing


class Chained:
    """An object that refers to the next one, and counts when it is freed."""

    freed = 0

    def __init__(self, following: Chained | None) -> None:
        self.following = following

    def __del__(self) -> None:
        Chained.freed += 1


def chain(length: int) -> Chained:
    last = None
    for _ in range(length):
        last = Chained(last)
    assert last is not None
    return last


def parts(first: Chained | None) -> Iterator[object]:
    while first is not None:
        yield first
        first = first.following


@pytest.mark.parametrize("structures", [1, 3])
@pytest.mark.parametrize("length", [1, FREED_IN_TURN, 4 * FREED_IN_TURN + 7])
def test_each_turn_frees_a_part(length: int, structures: int) -> None:
    """All of it in the end, and nothing waits for a turn any more."""
    clock, before = Clock(), Chained.freed
    freeing = GradualFreeing(clock)
    for _ in range(structures):
        freeing.free(parts(chain(length)))
    total = length * structures
    turns = 0
    while Chained.freed - before < total:
        freed = Chained.freed
        clock.advance(FREEING_PAUSE)
        turns += 1
        assert Chained.freed - freed <= FREED_IN_TURN + 1  # the iterator has held one
    assert turns >= total // FREED_IN_TURN
    clock.advance(FREEING_PAUSE)
    assert not clock.getDelayedCalls()


def test_a_structure_that_is_still_used_stays_whole() -> None:
    clock, first = Clock(), chain(3 * FREED_IN_TURN)
    GradualFreeing(clock).free(parts(first))
    for _ in range(10):
        clock.advance(FREEING_PAUSE)
    assert len(list(parts(first))) == 3 * FREED_IN_TURN
