"""A line is fair between its owners, bounded, and can be left at any time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from holdfast.scheduling.fair_line import FairLine, LineFull, Places, Turns
from tests.doubles import TurnClock

#: an owner joins (an item each time), the next item is taken, or the newest item of an owner leaves
STEPS = st.lists(st.one_of(st.sampled_from("abc"), st.just("take"), st.sampled_from(["-a", "-b", "-c"])), max_size=60)


@given(STEPS)
def test_items_of_an_owner_keep_their_order_and_owners_take_turns(steps: list[str]) -> None:
    """Compared with a model that walks over plain lists."""
    line: FairLine[tuple[str, int]] = FairLine()
    model: list[tuple[str, list[tuple[str, int]]]] = []
    for number, step in enumerate(steps):
        owners = [owner for owner, _ in model]
        if step == "take":
            found = line.next()
            if not model:
                assert found is None
                continue
            owner, items = model.pop(0)
            assert found == (owner, items.pop(0))
            if items:
                model.append((owner, items))
        elif step.startswith("-"):
            if step[1:] in owners:
                items = model[owners.index(step[1:])][1]
                line.remove(step[1:], items.pop())
                model = [entry for entry in model if entry[1]]
            line.remove(step[1:], (step[1:], -1))  # was never in the line
        else:
            line.add(step, (step, number))
            if step not in owners:
                model.append((step, []))
            next(items for owner, items in model if owner == step).append((step, number))
        assert len(line) == sum(len(items) for _, items in model)
        assert all(line.waits(owner) == (owner in [one for one, _ in model]) for owner in "abc")


def test_an_item_waits_once() -> None:
    line: FairLine[str] = FairLine()
    for _ in range(3):
        line.add("a", "x")
    assert len(line) == 1


def test_an_item_may_be_the_first_of_its_owner() -> None:
    line: FairLine[str] = FairLine()
    line.add("a", "later")
    line.add("a", "first", first=True)
    assert line.next() == ("a", "first")


def test_bounds_hold_for_one_owner_and_for_all() -> None:
    line: FairLine[int] = FairLine(most=3, most_of_owner=2)
    line.add("a", 1)
    line.add("a", 2)
    line.add("a", 2)  # waits already
    with pytest.raises(LineFull, match="2 of your requests"):
        line.add("a", 3)
    line.add("b", 4)
    with pytest.raises(LineFull, match="3 requests"):
        line.add("c", 5)
    line.remove("a", 1)
    line.add("c", 5)
    assert len(line) == 3


def test_owners_are_passed_over_without_losing_their_place() -> None:
    line: FairLine[int] = FairLine()
    for item, owner in enumerate("abc"):
        line.add(owner, item)
    assert line.next({"a"}) == ("b", 1)
    assert line.next({"a", "c"}) is None
    assert line.next() == ("a", 0)


class TestTurns:
    def test_a_turn_serves_each_item_once_and_so_many_at_most(self) -> None:
        clock, served = TurnClock(), list[str]()

        def serve(item: str) -> bool:
            served.append(item)
            if item == "again":
                turns.enter("a", item)
            return False

        turns = Turns(clock, serve, most=3)
        turns.enter("a", "again")
        turns.enter("b", "b")
        clock.turn()
        assert served == ["again", "b"]
        for number in range(5):
            turns.enter(number, str(number))
        clock.turn()
        assert served[2:] == ["again", "0", "1"]

    def test_an_item_that_goes_on_is_before_the_others_of_its_owner(self) -> None:
        clock, served = TurnClock(), list[str]()
        goes_on = {"1": 2}

        def serve(item: str) -> bool:
            served.append(item)
            goes_on[item] = goes_on.get(item, 0) - 1
            return goes_on[item] > 0

        turns = Turns(clock, serve)
        for item in "12":
            turns.enter("a", item)
        while len(turns):
            clock.turn()
        assert served == ["1", "1", "2"]

    def test_an_error_ends_no_other_item(self) -> None:
        clock, served = TurnClock(), list[str]()

        def serve(item: str) -> bool:
            if item == "wrong":
                raise ArithmeticError
            served.append(item)
            return False

        turns = Turns(clock, serve)
        turns.enter("a", "wrong")
        turns.enter("b", "right")
        with pytest.raises(ArithmeticError):
            clock.turn()
        clock.turn()
        assert served == ["right"]

    def test_who_has_left_is_not_served(self) -> None:
        clock, served = TurnClock(), list[str]()

        def serve(item: str) -> bool:
            served.append(item)
            turns.leave("b", "b")
            return False

        turns = Turns(clock, serve, most=8)
        for name in "abc":
            turns.enter(name, name)
        clock.turn()
        assert served == ["a", "c"]
        assert not clock.getDelayedCalls()

    def test_a_turn_ends_when_its_time_is_over(self) -> None:
        clock, served = TurnClock(), list[str]()

        def serve(item: str) -> bool:
            served.append(item)
            clock.rightNow += 0.002
            return False

        turns = Turns(clock, serve, seconds=0.003)
        for name in "abc":
            turns.enter(name, name)
        clock.turn()
        assert served == ["a", "b"]
        clock.turn()
        assert served == ["a", "b", "c"]


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 4), st.integers(1, 3), st.randoms())
def test_places_are_never_exceeded_and_all_who_wait_get_one(
    owners: list[str], number: int, number_of_owner: int, random: object
) -> None:
    places = Places(number, number_of_owner, FairLine())
    running: list[tuple[str, Callable[[], None]]] = []
    begun: list[str] = []

    def begin(leave: Callable[[], None], owner: str) -> None:
        running.append((owner, leave))
        begun.append(owner)
        assert len(running) <= number
        assert sum(1 for one, _ in running if one == owner) <= number_of_owner

    for owner in owners:
        places.take(owner).addCallback(begin, owner)
    while running:
        _, leave = running.pop(random.randrange(len(running)))  # type: ignore[attr-defined]
        leave()
    assert sorted(begun) == sorted(owners)
    assert not len(places)


def test_who_waits_for_a_place_may_leave_the_line() -> None:
    places = Places(1, 1, FairLine())
    begun: list[str] = []
    turns: dict[str, Deferred[Callable[[], None]]] = {name: places.take(name) for name in "abc"}
    leaves: list[Callable[[], None]] = []

    def begin(leave: Callable[[], None], name: str) -> None:
        begun.append(name)
        leaves.append(leave)

    for name, turn in turns.items():
        turn.addCallbacks(begin, lambda _: None, (name,))
    turns["b"].cancel()
    leaves[0]()
    assert begun == ["a", "c"]
