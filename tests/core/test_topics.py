"""Topic Names and Topic Filters: the examples of the standard, and invalid ones."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.topics import (
    InvalidTopicFilter,
    InvalidTopicName,
    TooManyLevels,
    check_topic_filter,
    check_topic_name,
    covering,
    has_wildcard,
    level_count,
    levels_before_wildcard,
    matches,
    matching,
    overlap,
    split_shared,
    without_queue,
)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "a/b/c", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/x", False),
        ("+/monitor", "$SYS/monitor", False),
        ("$SYS/#", "$SYS/x", True),
        ("$SYS/monitor/+", "$SYS/monitor/c", True),
        ("a/+/#", "a/b", True),
        ("a/+/#", "a", False),
        ("A", "a", False),
    ],
)
def test_matching(topic_filter: str, topic: str, expected: bool) -> None:
    """[MQTT5-4.7.1], [MQTT5-4.7.2], [MQTT5-4.7.3]."""
    assert matches(topic_filter, topic) is expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("#", "a/b", True),
        ("#", "#", True),
        ("a/#", "a", True),
        ("a/#", "a/+/b", True),
        ("a/b/#", "a", False),
        ("a/+", "+/b", True),
        ("a/+", "b/+", False),
        ("+/a", "+/b", False),
        ("+/a", "+/a/+", False),
        ("+/a/#", "+/a", True),
        ("a", "a", True),
        ("a", "b", False),
        ("#", "$SYS/#", False),
        ("+/a", "$SYS/a", False),
        ("$SYS/#", "$SYS/a", True),
    ],
)
def test_overlapping(first: str, second: str, expected: bool) -> None:
    """Two filters overlap if there is a topic that both match."""
    assert overlap(first, second) is overlap(second, first) is expected


_FILTERS = st.builds(
    lambda levels, end: "/".join([*levels, *end]),
    st.lists(st.sampled_from(["a", "b", "+", "$a", ""]), max_size=3),
    st.sampled_from([["#"], ["+"], ["a"]]),
)


@example(("+", "/#"))
@given(st.tuples(_FILTERS, _FILTERS))
def test_two_filters_overlap_if_both_match_a_topic(filters: tuple[str, str]) -> None:
    """Compared with the definition of matching."""
    levels = ["a", "b", "$a", "", "x"]
    topics = ["/".join(topic) for length in range(1, 6) for topic in product(levels, repeat=length)]
    both = any(matches(filters[0], topic) and matches(filters[1], topic) for topic in topics if topic)
    assert overlap(*filters) is both


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "a\0", "a/b/c"])
def test_wrong_topic_names(topic: str) -> None:
    """Empty, with wildcards, with U+0000, with too many levels."""
    with pytest.raises(InvalidTopicName):
        check_topic_name(topic, 2)
    check_topic_name("a/b", 2)


@pytest.mark.parametrize("topic_filter", ["", "a\0", "a/b/c", "#/a", "a#", "a+", "+a/b"])
def test_wrong_topic_filters(topic_filter: str) -> None:
    """Empty, with U+0000, too many levels, misplaced wildcards."""
    with pytest.raises(InvalidTopicFilter):
        check_topic_filter(topic_filter, 2)
    check_topic_filter("+/#", 2)


@pytest.mark.parametrize("topic_filter", ["$share/", "$share/g", "$share/g/", "$share//a", "$share/g+/a", "$share/#/a"])
def test_malformed_shared_subscriptions(topic_filter: str) -> None:
    """[MQTT5-4.8.2-1], [MQTT5-4.8.2-2]."""
    with pytest.raises(InvalidTopicFilter):
        split_shared(topic_filter)


def test_shared_subscriptions_are_split() -> None:
    """Group and filter; other filters, also with $, have no group."""
    assert split_shared("$share/g/a/#") == ("g", "a/#")
    assert split_shared("$shared/g/a") == (None, "$shared/g/a")


def test_queue_is_a_shared_subscription() -> None:
    """Without a Topic Filter behind it, it is one itself."""
    assert without_queue("$queue/a/#") == "$share/$queue/a/#"
    for other in ("$queue/", "$queue", "$queues/a", "a/$queue/b", "$share/$queue/a"):
        assert without_queue(other) is other
    assert (has_wildcard("a/b"), has_wildcard("a/+"), level_count("a//b")) == (False, True, 3)


@pytest.mark.parametrize(
    ("topic_filter", "levels"), [("#", 0), ("+/a", 0), ("a/#", 1), ("a/b/+/c/#", 2), ("/#", 1), ("a/b", 2)]
)
def test_levels_before_the_first_wildcard(topic_filter: str, levels: int) -> None:
    assert levels_before_wildcard(topic_filter) == levels


class Splits(str):
    """A string that counts the levels into which it is split."""

    levels = 0

    def split(self, sep: str | None = None, maxsplit: int = -1) -> list[str]:  # type: ignore[override]
        levels = super().split(sep, maxsplit)
        self.levels += len(levels)
        return levels


def test_long_filters_are_split_no_further_than_they_can_match() -> None:
    topic, many = Splits("a/b"), [Splits("+/" * 5000 + "#") for _ in range(3)]
    assert not any(map(matching(topic), many))
    assert topic.levels == 2
    wide = Splits("a/+")
    assert not any(map(covering(wide), many))
    assert wide.levels == 2
    assert all(each.levels <= 8 for each in many)


def test_a_filter_with_too_many_levels_is_not_split() -> None:
    long = Splits("+/" * 5000)
    with pytest.raises(TooManyLevels):
        check_topic_filter(long, 128)
    assert long.levels == 0
