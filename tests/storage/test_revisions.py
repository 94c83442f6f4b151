"""Revisions strictly increase, also if the wall clock goes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.revisions import RevisionClock
from tests.storage.doubles import Wall

TIMES = st.integers(0, 1 << 41)
MARKS = st.integers(0, (1 << 61) - 1)


@given(st.integers(0, 255), MARKS, st.lists(TIMES, max_size=50))
def test_stamps_increase_from_the_mark_on_though_the_clock_steps_back(node: int, mark: int, times: list[int]) -> None:
    wall = Wall(0)
    clock = RevisionClock(node, mark, wall)
    last = mark
    for wall.now in times:
        revision = clock.next_revision()
        assert revision > last
        assert revision >= wall.now << 20
        assert revision & 255 == node
        assert clock.latest == revision
        last = revision


@given(st.integers(0, 255), MARKS, st.lists(MARKS, max_size=10), TIMES)
def test_stamps_are_above_everything_observed(node: int, mark: int, seen: list[int], now: int) -> None:
    clock = RevisionClock(node, mark, Wall(now))
    for revision in seen:
        clock.observe(revision)
        assert clock.latest >= revision
    assert clock.next_revision() > max([mark, *seen])


def test_the_first_stamp_of_a_millisecond_is_made_of_time_and_node() -> None:
    assert RevisionClock(7, 0, Wall(1000)).next_revision() == 1000 << 20 | 7


def test_the_counter_carries_into_the_milliseconds() -> None:
    clock = RevisionClock(1, 0, Wall(1000))
    stamps = [clock.next_revision() for _ in range(4097)]
    assert stamps[4095] == 1000 << 20 | 4095 << 8 | 1
    assert stamps[4096] == 1001 << 20 | 1


def test_many_stamps_at_once_are_those_made_one_by_one() -> None:
    one_by_one, at_once = RevisionClock(1, 0, Wall(1000)), RevisionClock(1, 0, Wall(1000))
    assert list(at_once.next_revisions(5000)) == [one_by_one.next_revision() for _ in range(5000)]
    assert at_once.next_revision() == one_by_one.next_revision()


@pytest.mark.parametrize("node", [-1, 256])
def test_a_node_id_is_one_byte(node: int) -> None:
    with pytest.raises(ValueError, match=r"0\.\.255"):
        RevisionClock(node, 0, Wall())
