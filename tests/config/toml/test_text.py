"""Values as TOML, for messages and for generated files."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.toml import literal


@given(st.text(max_size=60))
def test_a_text_is_the_same_when_it_is_read_again_and_a_terminal_acts_on_none_of_it(text: str) -> None:
    """Also with control characters, those of C1 among them, and with marks that change the direction of writing."""
    written = literal(text)
    assert written.isprintable()
    assert tomllib.loads(f"x = {written}") == {"x": text}


def test_a_surrogate_can_be_shown() -> None:
    assert literal("a\ud800") == r'"a\ud800"'
