"""Tokens: opaque, short, and refused when they were changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.changes.recent import LONGEST_TOKEN, BadToken, Head, Place, place_of

NUMBERS = st.integers(0, 2**64 - 1)


@given(st.binary(min_size=8, max_size=8), NUMBERS, NUMBERS, NUMBERS)
def test_a_token_says_what_was_put_in(recording: bytes, position: int, seq: int, revision: int) -> None:
    """It is short, and needs no escaping in an address or a header."""
    place = Place(recording, position, Head(seq, revision))
    assert place_of(place.token) == place
    assert len(place.token) <= LONGEST_TOKEN
    assert place.token.isascii()
    assert not set(place.token) & set("+/=&%")


@pytest.mark.parametrize("text", ["", "x", "A" * 129, "!!!!", "AQ", Place().token[:-1], Place().token + "A", "\u00e9"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadToken):
        place_of(text)


@given(st.text(max_size=140))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        place = place_of(text)
    except BadToken:
        return
    assert place.token == text
