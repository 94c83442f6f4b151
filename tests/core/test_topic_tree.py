"""The topic tree finds the same filters as the plain matcher, and leaves no branch behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.topics import InvalidTopicFilter, TopicTree, check_topic_filter, matches

LEVELS = st.sampled_from(["", "a", "b", "$x", "é", "*", "?"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(LEVELS, st.just("+")), min_size=0, max_size=5))
    if draw(st.booleans()) or not levels:
        levels.append("#")
    return "/".join(levels) or "+"


@given(st.lists(filters(), max_size=12, unique=True), TOPICS)
def test_the_tree_equals_the_plain_matcher(wanted: list[str], topic: str) -> None:
    """With any subscriptions, a topic finds exactly the matching filters."""
    tree: TopicTree[str, str] = TopicTree()
    for topic_filter in wanted:
        tree.add(topic_filter, "one", topic_filter)
    found = sorted(value for _, value in tree.match(topic))
    assert found == sorted(f for f in wanted if matches(f, topic))


@given(st.lists(st.tuples(st.sampled_from("xyz"), filters()), max_size=20))
def test_removing_everything_leaves_no_branch(pairs: list[tuple[str, str]]) -> None:
    """Subscribing and unsubscribing in any order leaves an empty tree."""
    tree: TopicTree[str, str] = TopicTree()
    for subscriber, topic_filter in pairs:
        tree.add(topic_filter, subscriber, topic_filter)
    for subscriber, topic_filter in pairs:
        tree.remove(topic_filter, subscriber)
    assert not tree


def test_removing_an_unknown_filter_changes_nothing() -> None:
    """An unknown filter or subscriber is no error."""
    tree: TopicTree[str, str] = TopicTree()
    tree.add("a/b", "x", "value")
    tree.remove("a/c", "x")
    tree.remove("a/b", "y")
    tree.remove("a", "x")
    assert tree.match("a/b") == [("x", "value")]


@given(filters())
def test_every_generated_filter_is_valid(topic_filter: str) -> None:
    """The strategy makes only filters that the broker accepts."""
    check_topic_filter(topic_filter, 128)


def test_invalid_filters_are_refused() -> None:
    """'#' only at the end, '+' only alone, nothing empty."""
    for wrong in ("", "a/#/b", "a#", "#a", "a/b#", "+a", "a+/b", "a\0b"):
        try:
            check_topic_filter(wrong, 128)
        except InvalidTopicFilter:
            continue
        raise AssertionError(wrong)
