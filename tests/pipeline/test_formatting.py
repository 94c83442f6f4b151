"""Numbers, sizes, times and hostile topics are formatted for people."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_pipeline.formatting import counted, moment, number, rough, share, short, size, span, visible, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("grün/日本/𝄞", "grün/日本/𝄞"),
        ("a\x1b[31m\n", "a\\x1b[31m\\n"),
        ("x\u202egpj.exe", "x\\u202egpj.exe"),
        ("\u2066\u200b\ufeff\U000e0041", "\\u2066\\u200b\\ufeff\\U000e0041"),
        ("a" * 200, "a" * 60 + "…" + "a" * 59),
    ],
)
def test_invisible_characters_and_those_that_move_text_are_escaped(text: str, expected: str) -> None:
    assert visible(text) == expected


@given(st.text(max_size=300), st.integers(3, 100))
def test_no_topic_has_hidden_characters_afterwards(text: str, longest: int) -> None:
    found = visible(text, longest)
    assert not {unicodedata.category(one) for one in found.replace("\u200d", "")} & {
        "Cc",
        "Cf",
        "Cs",
        "Co",
        "Cn",
        "Zl",
        "Zp",
    }
    assert len(found) <= longest * 10


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (number(1234567), "1,234,567"),
        (counted(1, "message"), "1 message"), (counted(0, "message"), "0 messages"),
        (counted(2000, "message"), "2,000 messages"),
        (short(999), "999"), (short(999.6), "1k"), (short(1234), "1.2k"), (short(123456), "123k"), (short(4e6), "4M"),
        (short(999_999), "1M"),
        (size(0), "0 bytes"), (size(1), "1 byte"),
        (size(1023), "1023 bytes"), (size(1024), "1.0 KB"), (size(1536 * 1024), "1.5 MB"),
        (size(1024**2 - 1), "1.0 MB"), (size(200 * 1024**3), "200 GB"), (size(2.0**70), "1048576 PB"),
        (span(0), "0 s"), (span(0.34), "0.3 s"), (span(61), "1 min 1 s"), (span(3600), "1 h"),
        (span(90_000), "1 d 1 h"),
        (span(86_400 * 5000), "5,000 d"),
        (rough(0.34), "0.3 s"), (rough(12), "12 s"), (rough(59.6), "1 min"), (rough(1437), "24 min"),
        (rough(90_000), "1 d"), (rough(86_400 * 5000), "5,000 d"),
        (moment(0), "1970-01-01 00:00 UTC"),
        (share(0, 0), "0 %"), (share(1, 100_000), "< 0.1 %"), (share(1, 8), "12 %"), (share(1, 30), "3.3 %"),
    ],
)  # fmt: skip
def test_numbers_are_short_and_have_a_unit(found: str, expected: str) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("STRING", "text"),
        ("OBJECT<level: BIGINT, on: BOOLEAN>", '{"level": number, "on": true or false}'),
        ("ARRAY<OBJECT<`a b`: DECIMAL(3, 1), at: STRING>>", '[{"a b": number, "at": text}]'),
        ("OBJECT<a: OBJECT<STRING: VOID>, b: ARRAY<DOUBLE>>", '{"a": {"STRING": null}, "b": [number]}'),
    ],
)
def test_types_are_told_in_words(schema: str, said: str) -> None:
    """Names of fields stay, also those that are called like a type."""
    assert words(schema) == said
