"""Topic Filters as regular expressions select the same topics as the broker."""

from __future__ import annotations

import re

import pytest

from holdfast.core.topics import matches
from holdfast_pipeline.sources.ranges import pattern

TOPICS = (
    "a", "a/", "/a", "a//b", "a/b", "a/b/c", "ab", "$SYS/x", "$SYS", "a/$SYS", "a.b/c", "100%_\\x/y", "a\nb/c", "/",
    "//", "grün/日本/𝄞", "(a)/[b]", "\\E/x",
)  # fmt: skip
FILTERS = (
    "#", "+", "+/#", "a/#", "a/+", "+/b", "/+", "+/+", "/#", "$SYS/#", "$SYS/+", "+/$SYS", "a.b/+", "100%_\\x/+",
    "a\nb/#", "+/日本/#", "(a)/[b]", "\\E/+", "a//+", "a/b/c/#", "//",
)  # fmt: skip


@pytest.mark.parametrize("topic_filter", FILTERS)
def test_a_pattern_matches_the_same_topics_as_the_filter(topic_filter: str) -> None:
    """Wildcards, empty levels, topics with $ and special characters of regular expressions."""
    found = {topic for topic in TOPICS if re.fullmatch(pattern(topic_filter), topic)}
    assert found == {topic for topic in TOPICS if matches(topic_filter, topic)}
