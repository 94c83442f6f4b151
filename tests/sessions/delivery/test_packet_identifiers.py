"""Packet Identifiers are free when they are given out, alone or several that follow each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sessions.delivery.inflight import Blocks, CommonIdentifiers, PacketIdentifiers, Window, last_used


def blocks(*spans: tuple[int, int]) -> Blocks:
    """Return blocks with these first identifiers and numbers of messages."""
    made = Blocks(Window(65535, 1 << 20))
    for first, count in spans:
        made.add(first, count, count, False)
    return made


NONE = blocks()


def test_identifiers_are_given_out_in_turn() -> None:
    identifiers = PacketIdentifiers()
    assert [identifiers.next((), NONE) for _ in range(3)] == [1, 2, 3]
    assert identifiers.next_block(10, (), NONE) == 4
    assert identifiers.next((), NONE) == 14


def test_after_the_last_one_comes_the_first_free_one() -> None:
    identifiers = PacketIdentifiers()
    identifiers._last = 65534
    assert identifiers.next((), NONE) == 65535
    assert identifiers.next({1, 3}, blocks((2, 1), (4, 96))) == 100


def test_a_single_identifier_is_behind_a_block() -> None:
    assert PacketIdentifiers().next((), blocks((1, 1000))) == 1001
    assert PacketIdentifiers().next({1001}, blocks((1, 1000), (1002, 10))) == 1012


def test_consecutive_identifiers_do_not_wrap() -> None:
    identifiers = PacketIdentifiers()
    identifiers._last = 65530
    assert identifiers.next_block(6, (), NONE) == 1
    identifiers._last = 65530
    assert identifiers.next_block(5, (), NONE) == 65531
    assert identifiers.next_block(5, (), NONE) == 1


def test_consecutive_identifiers_are_behind_those_in_use() -> None:
    assert PacketIdentifiers().next_block(10, {5}, NONE) == 6
    assert PacketIdentifiers().next_block(10, {5, 25}, blocks((1, 3), (7, 12))) == 26


class Counted(dict[int, None]):
    """Identifiers in use, which counts how many of them a search looks at."""

    looks = 0

    def __contains__(self, identifier: object) -> bool:
        self.looks += 1
        return super().__contains__(identifier)

    def __iter__(self) -> Iterator[int]:
        self.looks += len(self)
        return super().__iter__()


@pytest.mark.parametrize("count", [2, 100, 3000])
def test_a_search_costs_no_more_than_the_identifiers_it_is_for_or_those_in_use(count: int) -> None:
    used = Counted((identifier, None) for identifier in range(1, 2001))
    assert last_used(1001, 1000 + count, used, NONE) == min(1000 + count, 2000)
    used.looks = 0
    assert last_used(3001, 3000 + count, used, NONE) == 0
    assert 0 < used.looks <= min(count, 2000)


def test_a_search_for_consecutive_identifiers_is_short() -> None:
    used = set(range(5, 65536, 5))
    assert PacketIdentifiers().next_block(5, used, NONE) == 0
    assert PacketIdentifiers().next_block(4, used, NONE) == 1


def test_common_identifiers_follow_each_other_and_do_not_wrap() -> None:
    common = CommonIdentifiers()
    assert [common.take(count) for count in (1, 500, 32267)] == [32768, 32769, 33269]
    assert common.take(1) == 1
    assert common.take(65534) == 2
    assert common.take(2) == 1


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 6)), max_size=10),
    st.sets(st.integers(1, 70)),
    st.integers(1, 70),
    st.integers(1, 20),
)
def test_free_means_in_no_block_and_no_entry(
    spans: list[tuple[int, int]], entries: set[int], first: int, count: int
) -> None:
    made = blocks()
    in_blocks: set[int] = set()
    for begin, size in spans:
        wanted = set(range(begin, begin + size))
        if not wanted & in_blocks:
            made.add(begin, size, size, False)
            in_blocks |= wanted
    used = in_blocks | entries
    last = first + count - 1
    found = last_used(first, last, entries, made)
    assert (found == 0) == (not used & set(range(first, last + 1)))
    if found:
        assert found >= first
        assert found in used
    for identifiers in (PacketIdentifiers(), PacketIdentifiers()):
        identifiers._last = first
        assert identifiers.next(entries, made) not in used
        block = identifiers.next_block(count, entries, made)
        assert not block or not used & set(range(block, block + count))
