"""Ranges of several filters have exactly the topics that are in the ranges of all."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.store.wildcards import KeyRange, Ranges, next_low, plan, ranges_of, up_to
from tests.retained.strategies import topic_filters, topics

filters = st.lists(topic_filters(), max_size=4).map(tuple)


def has(ranges: Ranges, topic: str) -> bool:
    return any(one.low <= topic and (one.high is None or topic < one.high) for one in ranges)


@given(topic_filters(), filters, topics)
def test_a_topic_is_in_the_ranges_of_the_filter_and_of_one_of_the_others(
    topic_filter: str, within: tuple[str, ...], topic: str
) -> None:
    expected = has(plan(topic_filter).ranges, topic) and any(has(plan(one).ranges, topic) for one in within)
    assert has(ranges_of(topic_filter, within), topic) == expected


@given(topic_filters(), st.none() | filters, topics)
def test_ranges_stay_disjoint_and_ascending(topic_filter: str, within: tuple[str, ...] | None, until: str) -> None:
    """With a gap between two of them: a cursor at the end of one is before the next one."""
    ranges = ranges_of(topic_filter, within)
    for part in (ranges, up_to(ranges, until)):
        for before, following in pairwise(part):
            assert before.high is not None
            assert before.low < before.high < following.low


@given(topic_filters(), st.none() | filters, topics, topics)
def test_a_part_has_the_topics_up_to_its_end(
    topic_filter: str, within: tuple[str, ...] | None, until: str, topic: str
) -> None:
    ranges = ranges_of(topic_filter, within)
    assert has(up_to(ranges, until), topic) == (has(ranges, topic) and topic <= until)


@given(topic_filters(), topics, topics)
def test_no_topic_lies_between_a_cursor_and_the_next_range(topic_filter: str, after: str, topic: str) -> None:
    low = next_low(ranges_of(topic_filter), after)
    if has(ranges_of(topic_filter), topic) and topic > after + "\x01":
        assert low is not None
        assert low <= topic


def test_no_filter_has_no_range() -> None:
    assert ranges_of("#", ()) == ()
    assert ranges_of("#", ("a/#",)) == (KeyRange("a", "a\x01"), KeyRange("a/", "a0"))
    assert next_low((), "") is None
