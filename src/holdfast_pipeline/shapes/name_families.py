"""Families of names: names of levels that differ only in their digits, such as ``lamp-1`` and ``lamp-12``. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

_DIGITS = re.compile(r"\d+")
#: Hexadecimal numbers of at least six digits with a decimal digit among them, and UUIDs.
_HEXADECIMAL = re.compile(r"(?<![^\W_])(?:0[xX])?(?=[a-fA-F]*\d)[\da-fA-F]{6,}(?![^\W_])")
_UUID = re.compile(r"[\da-fA-F]{8}-(?:[\da-fA-F]{4}-){3}[\da-fA-F]{12}")
#: The same patterns for ASCII only, in their order, for other engines of regular expressions.
ASCII_NUMBERS = tuple(
    each.pattern.replace(r"[^\W_]", "[A-Za-z0-9]").replace(r"[\d", "[0-9").replace(r"\d", "[0-9]")
    for each in (_UUID, _HEXADECIMAL, _DIGITS)
)
#: What a family has in the place of a number.
NUMBER = "#"
_STEM = re.compile(r"[^\W\d_][^\W\d]*")
#: the shortest word that names a level
_SHORTEST = 3


@lru_cache(maxsize=65_536)
def family_of(name: str) -> str:
    """Return the family: the name with ``#`` in the place of each number. Names without numbers are alone in theirs."""
    return _DIGITS.sub(NUMBER, _HEXADECIMAL.sub(NUMBER, _UUID.sub(NUMBER, name)))


def has_number(family: str) -> bool:
    """Tell whether a family may have several names."""
    return NUMBER in family


def stem_of(family: str) -> str:
    """Return the word that the names of a family have in common, in lower case; "" if there is no word."""
    found = _STEM.search(family)
    word = found[0].strip("_").lower() if found else ""
    return word if len(word) >= _SHORTEST else ""


def singular(word: str) -> str:
    """Return the name of one of several things: ``devices`` gives ``device``, ``batteries`` gives ``battery``."""
    found = _STEM.fullmatch(word)
    if found is None or len(word) <= _SHORTEST or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return ""
    return word[:-3].lower() + "y" if word.endswith("ies") else word[:-1].lower()
