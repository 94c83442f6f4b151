"""The times in requests of clients: three forms, and nothing else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.extensions import BadRequest, moment_in

NOW = 1_795_248_918_518


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-22T10:00:00Z", 1_795_341_600_000),
        ("2026-11-22T10:00:00.250Z", 1_795_341_600_250),
        ("1795341600250", 1_795_341_600_250),
        ("-90s", NOW - 90_000),
        ("-1h", NOW - 3_600_000),
        ("-999999999d", 0),
    ],
)
def test_the_three_forms_are_read(text: str, moment: int) -> None:
    assert moment_in(text, NOW) == moment


@pytest.mark.parametrize(
    "text",
    ["", "90s", "-1", "-1w", "2026-13-22T10:00:00Z", "2026-11-22T10:00:00", "2026-11-22", "12", "-\u0661s", " -1s"],
)
def test_other_forms_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(BadRequest, match="a time is like"):
        moment_in(text, NOW)


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with contextlib.suppress(BadRequest):
        assert moment_in(text, NOW) >= 0
