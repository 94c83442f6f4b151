"""JSON that is refused although Python's reader takes it, and JSON that is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.strict_json import LONGEST_NUMBER, MOST_LEVELS, MOST_VALUES, BadJSON, read_json, read_long_json

READERS = (read_json, read_long_json)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab\U0001f600", max_size=3), inner, max_size=4),
)  # fmt: skip


@pytest.mark.parametrize("read", READERS)
@given(value=VALUES, ascii_only=st.booleans(), mark=st.sampled_from([b"", b"\xef\xbb\xbf"]))
def test_valid_text_is_read(read: Callable[[bytes], Any], value: object, ascii_only: bool, mark: bytes) -> None:
    """Also escaped pairs of surrogates, and a byte order mark."""
    assert read(mark + json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        (b'{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}', "b.c", "occurs twice"),
        (b'{"a": 1, "\\u0061": 1}', "a", "occurs twice"),
        (b'[{"a": [1, NaN]}]', "[0].a[1]", "NaN is not JSON"),
        (b'{"a": -Infinity}', "a", "-Infinity is not JSON"),
        (b'{"a": {"b": 1e999}}', "a.b", "too large"),
        (b'{"a": -1e999}', "a", "too large"),
        (b"[%s]" % (b"1" * (LONGEST_NUMBER + 1)), "[0]", "too many digits"),
        (b"[0.%s]" % (b"1" * LONGEST_NUMBER), "[0]", "too many digits"),
        (b'{"a": ["x", "\\ud800"]}', "a[1]", "lone surrogate"),
        (b'{"a": {"\\uDFFF": 1}}', "a", "lone surrogate"),
        (b"[" * (MOST_LEVELS + 1) + b"]" * (MOST_LEVELS + 1), None, "too deep"),
        (b"[" * 60_000, "", "too deep"),
        (b'{"a":' * 60_000, "", "too deep"),
        (b"[0" + b",0" * (MOST_VALUES + 1) + b"]", "", "too many values"),
        (b'{"a": "\xed\xa0\x80"}', "", "byte 7 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "", "not UTF-8"),
        (b"", "", "not JSON"),
        (b'{"a": 1} x', "", "not JSON"),
        (b'{"a": "\x01"}', "", "not JSON"),
    ],
)
def test_other_text_is_refused_with_the_place(
    read: Callable[[bytes], Any], text: bytes, field: str | None, problem: str
) -> None:
    """The error names the path of the value, and what it may be."""
    with pytest.raises(BadJSON, match=problem) as refused:
        read(text)
    if field is not None:
        assert refused.value.field == field
    assert refused.value.allowed


@pytest.mark.parametrize("read", READERS)
def test_the_allowed_depth_is_read(read: Callable[[bytes], Any]) -> None:
    text = b"[" * MOST_LEVELS + b"]" * MOST_LEVELS
    assert json.dumps(read(text)).encode() == text
