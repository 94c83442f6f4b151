"""Topic Filters of the past: what they ask for, and which permissions they need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.extensions import BadRequest, PastFilter, past_filter
from holdfast.core.topics import behind_time

NOW = 1_800_000_000_000


def test_times_and_filter() -> None:
    """The prefix keeps the times as they were written."""
    assert past_filter("$history/at/-1h/a/+/#", NOW) == PastFilter("$history/at/-1h/", NOW - 3_600_000, "a/+/#")
    assert past_filter("$history/changes/-1h/1799999999999//b", NOW) == PastFilter(
        "$history/changes/-1h/1799999999999/", NOW - 1, "/b", NOW - 3_600_000
    )


@pytest.mark.parametrize(
    "text",
    [
        "$history", "$history/#", "$history/at/-1h", "$history/at/-1h/", "$history/at/+/a", "$history/changes/-1h/-1s",
        "$history/changes/-1h/-1s/", "$history/changes/-1s/-1h/a", "$history/changes/-1h/+/a", "$history/changes/#",
        "$history/changes/-1h/-1s/$share/g/a", "$history/state/-1h/a",
    ],
)  # fmt: skip
def test_what_is_not_understood(text: str) -> None:
    """It is refused, and never taken for another time or filter."""
    with pytest.raises(BadRequest):
        past_filter(text, NOW).check_order()


def test_order_of_times_is_checked_once() -> None:
    """When a replay begins or goes on, "-0s" may be later than a last time that was in the future."""
    text = f"$history/changes/-0s/{NOW}/a"
    past_filter(text, NOW).check_order()
    later = past_filter(text, NOW + 1)
    with pytest.raises(BadRequest, match="FROM is not later than TO"):
        later.check_order()


@given(st.lists(st.sampled_from(["$history", "at", "changes", "-1h", "-1s", "a", "+", "#", ""]), max_size=7))
def test_permissions_are_about_what_is_asked_for(levels: list[str]) -> None:
    """Whatever is accepted is judged by the very filter that is read."""
    text = "/".join(levels)
    try:
        wanted = past_filter(text, NOW)
    except BadRequest:
        return
    assert behind_time(text) == wanted.topic_filter
    assert wanted.prefix + wanted.topic_filter == text
