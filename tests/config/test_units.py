"""Parsing durations, sizes and rates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.units import Rate, parse_duration, parse_rate, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("30s", 30),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1w", 604800),
        ("1.5s", 1.5),
        ("1m1ms", 60.001),
    ],
)
def test_a_duration_is_the_sum_of_its_parts_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "s", "1 s", "-1s", "1S", "1h30", "1e3s", "1,5s", "infinity", "1s ", "\u0661s"]
)
def test_anything_else_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512", 512), ("512B", 512), ("64KB", 65536), ("1MB", 1048576), ("1.5kb", 1536), ("2 GB", 2147483648)],
)
def test_a_size_is_in_bytes_with_units_that_are_powers_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1TB", "1 MB ", "1KiB", "0x10", "1e3"])
def test_anything_else_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_a_part_of_a_byte_is_rejected() -> None:
    with pytest.raises(ValueError, match="not a whole number of bytes"):
        parse_size("0.0001KB")


@pytest.mark.parametrize(
    ("text", "amount", "seconds", "per_second"),
    [("1000/s", 1000, 1, 1000), ("10/2s", 10, 2, 5), ("60/m", 60, 60, 1), ("1/500ms", 1, 0.5, 2)],
)
def test_a_rate_is_an_amount_in_a_time(text: str, amount: int, seconds: float, per_second: float) -> None:
    rate = parse_rate(text)
    assert (rate, rate.per_second) == (Rate(amount, seconds), per_second)


@pytest.mark.parametrize("text", ["", "1000", "/s", "1/", "1/0s", "0/s", "-1/s", "1.5/s", "infinity"])
def test_anything_else_is_not_a_rate(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        parse_rate(text)


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6))
def test_durations_are_exact_to_the_millisecond(hours: int, minutes: int, milliseconds: int) -> None:
    expected = (hours * 3_600_000 + minutes * 60_000 + milliseconds) / 1000
    assert parse_duration(f"{hours}h{minutes}m{milliseconds}ms") == expected


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_with_value_error(text: str) -> None:
    for parse in (parse_duration, parse_size, lambda text: parse_rate(text).per_second):
        try:
            assert parse(text) >= 0
        except ValueError:
            continue
