"""Names that differ in their numbers only."""

from __future__ import annotations

import pytest

from holdfast_pipeline.shapes import family_of, has_number, singular, stem_of


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("lamp-12", "lamp-#"),
        ("r101", "r#"),
        ("7", "#"),
        ("a1b2", "a#b#"),
        ("0x00158d0001a2b3c4", "#"),
        ("DEADBEEF01", "#"),
        ("plug_3f2a99", "plug_#"),
        ("123e4567-e89b-12d3-a456-426614174000", "#"),
        ("temperature", "temperature"),
        ("facade", "facade"),
        ("", ""),
    ],
)
def test_numbers_do_not_tell_families_apart(name: str, family: str) -> None:
    """Also hexadecimal ones and UUIDs; a word of the letters a to f is no number."""
    assert family_of(name) == family
    assert has_number(family) == (family != name)


@pytest.mark.parametrize(
    ("family", "stem"), [("lamp-#", "lamp"), ("r#", ""), ("#", ""), ("Floor #", "floor"), ("étage#", "étage")]
)
def test_a_family_is_named_after_its_word(family: str, stem: str) -> None:
    """Words of one or two letters say too little."""
    assert stem_of(family) == stem


@pytest.mark.parametrize(
    ("word", "one"), [("devices", "device"), ("Batteries", "battery"), ("gas", ""), ("status", ""), ("light", "")]
)
def test_a_variable_is_named_after_the_plural_above_it(word: str, one: str) -> None:
    """Other words are no plurals."""
    assert singular(word) == one
