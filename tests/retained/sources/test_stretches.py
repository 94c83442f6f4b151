"""Stretches never call a topic clear that a survey has not found clear, and reading along them ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.source_check import CLEAR, JUDGED, Stretches


def test_nothing_is_clear_before_the_survey_and_all_after_it() -> None:
    stretches = Stretches()
    assert stretches.at("") == stretches.at("a") == JUDGED
    stretches.surveyed = None
    assert stretches.at("") == stretches.at("z") == CLEAR


@given(st.lists(st.text("abc", min_size=1, max_size=3), unique=True, max_size=20).map(sorted), st.data())
def test_a_reader_looks_at_each_withheld_and_each_later_topic(names: list[str], data: st.DataObject) -> None:
    """Withheld topics in any places, in surveys of any steps."""
    withheld = {name for name in names if data.draw(st.booleans())}
    surveyed = names[: data.draw(st.integers(0, len(names)))]
    stretches = Stretches()
    before = ""
    for name in surveyed:
        if name in withheld:
            stretches.withhold(before, name)
        before = name
        stretches.surveyed = name
    looked: set[str] = set()
    low = ""
    for _ in range(3 * len(names) + 3):
        stretch = stretches.at(low)
        until = stretch.until
        assert until is None or until >= low
        if stretch.looked:
            looked |= {name for name in names if name >= low and (until is None or name <= until)}
        if until is None:
            break
        low = until + "\x01"
    else:
        raise AssertionError("reading does not come to an end")
    assert looked == {name for name in surveyed if name in withheld} | set(names[len(surveyed) :])
