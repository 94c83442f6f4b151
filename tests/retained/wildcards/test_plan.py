"""Plans find exactly the matches of the plain matcher."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.topics import level_count, matches
from holdfast.retained.store.wildcards import KeyRange, Plan, plan
from tests.retained.strategies import topic_filters, topics


def found_by(planned: Plan, topic: str) -> bool:
    """Tell whether a plan finds a topic, with its ranges and terms in Python instead of SQL."""
    if not any(one.low <= topic and (one.high is None or topic < one.high) for one in planned.ranges):
        return False
    if planned.levels is None:
        return True
    count, least = level_count(topic), len(planned.levels)
    if planned.counted:
        return count == least if planned.exact else count >= least
    terms = planned.terms([count])
    assert terms is not None
    return any(term.levels == count and fnmatchcase(topic, term.pattern) for term in terms)


@given(topic_filters(), topics)
def test_a_plan_finds_a_topic_if_and_only_if_the_filter_matches_it(topic_filter: str, topic: str) -> None:
    assert found_by(plan(topic_filter), topic) == matches(topic_filter, topic)


@given(topics)
def test_the_plan_of_a_topic_name_finds_only_that_topic(topic: str) -> None:
    planned = plan(topic)
    assert planned.single
    assert found_by(planned, topic)
    assert not found_by(planned, topic + "/")
    assert not found_by(planned, topic + "\x01")


@given(topic_filters())
def test_ranges_are_disjoint_and_ascending(topic_filter: str) -> None:
    ranges = plan(topic_filter).ranges
    for before, following in pairwise(ranges):
        assert before.high is not None
        assert before.low < before.high < following.low


@given(topic_filters(), st.sets(topics, min_size=1, max_size=30))
def test_no_match_lies_between_a_topic_and_its_candidate(topic_filter: str, names: set[str]) -> None:
    planned = plan(topic_filter)
    inside = [
        name
        for name in sorted(names)
        if any(one.low <= name and (one.high is None or name < one.high) for one in planned.ranges)
    ]
    for topic in inside:
        candidate = planned.candidate(topic)
        assert candidate is None or candidate >= topic
        for other in inside:
            if topic <= other and (candidate is None or other < candidate):
                assert not matches(topic_filter, other)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "candidate"),
    [
        ("site/+/dev/77", "site/1/dev/5", "site/1/dev/77"),
        ("site/+/dev/77", "site/1/dev/8", "site/10"),
        ("site/+/dev/77", "site/1/dev/77", "site/1/dev/77"),
        ("+/+", "a/b/c", "a/b0"),
        ("+/+/x", "a", "a"),
        ("+/a/b", "x/a!", "x/a/"),
        ("+/a", "x/a!", "x0"),
        ("$a/+/b", "$a/x/c", "$a/x0"),
    ],
)
def test_a_candidate_is_the_next_possible_match(topic_filter: str, topic: str, candidate: str) -> None:
    assert plan(topic_filter).candidate(topic) == candidate


def test_without_a_later_possible_match_there_is_no_candidate() -> None:
    assert Plan("a/b/c", (KeyRange("a", None),), True, ("a", "b", "c")).candidate("a/c") is None


@pytest.mark.parametrize(
    ("topic_filter", "ranges"),
    [
        ("#", (KeyRange("", "$"), KeyRange("%", None))),
        ("+/a", (KeyRange("", "$"), KeyRange("%", None))),
        ("a/b", (KeyRange("a/b", "a/b\x01"),)),
        ("a/b/#", (KeyRange("a/b", "a/b\x01"), KeyRange("a/b/", "a/b0"))),
        ("a/+", (KeyRange("a/", "a0"),)),
        ("$SYS/#", (KeyRange("$SYS", "$SYS\x01"), KeyRange("$SYS/", "$SYS0"))),
    ],
)
def test_literal_leading_levels_become_ranges(topic_filter: str, ranges: tuple[KeyRange, ...]) -> None:
    assert plan(topic_filter).ranges == ranges


@pytest.mark.parametrize("topic_filter", ["#", "a/#", "a/+/#", "+/#", "a"])
def test_ranges_alone_are_enough_for(topic_filter: str) -> None:
    assert plan(topic_filter).levels is None


def test_a_pattern_escapes_special_characters_of_glob() -> None:
    terms = plan("+/a*b?c[d]").terms([2])
    assert terms is not None
    assert [term.pattern for term in terms] == ["*/a[*]b[?]c[[]d]"]


def test_there_is_a_term_for_each_level_count_that_can_match() -> None:
    terms = plan("+/x/#").terms([1, 2, 4])
    assert terms is not None
    assert [(term.levels, term.pattern) for term in terms] == [(2, "*/x"), (4, "*/x/*/*")]


def test_too_many_or_too_long_terms_are_not_made() -> None:
    assert plan("+/x/#").terms(range(200)) is None
    assert plan("+/" + "é" * 25_000).terms([2]) is None


def test_the_rest_of_a_range_after_a_topic() -> None:
    key_range = KeyRange("b", "d")
    assert key_range.after("a") is key_range
    assert key_range.after("") is key_range
    assert key_range.after("b") == KeyRange("b\x01", "d")
    assert key_range.after("d") is None
    assert KeyRange("b", None).after("d") == KeyRange("d\x01", None)
