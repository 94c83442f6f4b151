"""Tokens: opaque, short, and refused when they were changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.changes.since import known_of
from holdfast.changes.tokens import NO_MEMORY, TOKEN_LENGTHS, BadToken, Token, token_of
from holdfast.core.extensions import BadRequest

EIGHT = st.binary(min_size=8, max_size=8)
SHORT, LONG = Token(b"epoch..1", 7).text, Token(b"epoch..1", 7, b"memory.1", 3).text


def test_both_kinds_of_tokens_are_good_for_replays() -> None:
    """A text that is as long as a token and is none is refused as one; others are read as a time."""
    assert [known_of(text, 0) for text in (SHORT, LONG)] == [token_of(SHORT), token_of(LONG)]
    for text in (SHORT, LONG):
        with pytest.raises(BadRequest, match="copy it unchanged"):
            known_of(f"!{text[1:]}", 0)
    assert known_of("-1h", 3_700_000) == 100_000


@given(EIGHT, st.integers(0, 2**63 - 1), EIGHT, st.integers(0, 2**64 - 1))
def test_a_token_is_read_as_it_was_made(epoch: bytes, turn: int, memory: bytes, position: int) -> None:
    """It is short, and needs no escaping in an address or a header."""
    for token in (Token(epoch, turn), Token(epoch, turn, memory, position)):
        text = token.text
        assert len(text) in TOKEN_LENGTHS
        assert text.isascii()
        assert not set(text) & set("+/=&%")
        if token.memory != NO_MEMORY or not token.position:
            assert token_of(text) == token


@pytest.mark.parametrize(
    "text", ["", "x", "A" * 23, "A" * 44, "A" * 129, "!" * 23, "AQ", SHORT[:-1], SHORT + "A", LONG[:-1], "\u00e9" * 23]
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadToken):
        token_of(text)


@given(
    st.text(max_size=60) | st.text("AgMABCXYZ-_", min_size=23, max_size=23) | st.text("Aw-_", min_size=44, max_size=44)
)
def test_only_the_text_that_a_token_has_is_read_as_that_token(text: str) -> None:
    try:
        read = token_of(text)
    except BadToken:
        return
    assert read.text == text
