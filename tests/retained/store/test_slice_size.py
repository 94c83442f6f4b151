"""How many rows the next slice has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.store.bounded_read import LONG_BYTES, LONG_SECONDS, SLICE_BYTES, SLICE_SECONDS, SliceSize


def after(before: int, rows: int, size: int, seconds: float) -> int:
    """Return the next number of rows after such a slice."""
    found = SliceSize(before)
    found.took(rows, size, seconds)
    return found.rows


def test_the_next_slice_has_as_many_rows_as_fit_by_bytes_and_time() -> None:
    assert after(1000, 1000, SLICE_BYTES * 10 // 8, SLICE_SECONDS / 9) == 800
    assert after(1000, 1000, SLICE_BYTES // 9, SLICE_SECONDS * 1.25) == 800
    assert after(1000, 1000, LONG_BYTES, SLICE_SECONDS) == 1000
    assert after(1000, 1000, SLICE_BYTES, LONG_SECONDS) == 1000
    assert after(1000, 1000, LONG_BYTES + 1, LONG_SECONDS * 1.25) == 800
    assert after(1000, 100, SLICE_BYTES // 8, SLICE_SECONDS / 9) == 800


def test_the_rows_at_most_double_or_halve_and_are_never_none() -> None:
    assert after(100, 100, 1, 0.0) == 200
    assert after(100, 100, 1, 60.0) == 50
    assert after(8, 1, 1 << 20, 60.0) > 1


def test_a_reader_that_asks_for_fewer_bytes_gets_fewer_rows() -> None:
    size = SliceSize()
    assert size.within(1000) == size.rows
    size.took(250, 250 * 1000, LONG_SECONDS)
    assert size.within(64_000) == 64
    assert size.within(SLICE_BYTES) == size.rows
    assert size.within(1000) == 8


@given(st.integers(1, 5000), st.integers(1, 1 << 20), st.integers(0, 1 << 20))
def test_rows_that_fit_surely_are_within_the_bytes(rows: int, most_bytes: int, longest: int) -> None:
    """Few rows are never chosen in place of many: then their lengths are read."""
    fitting = SliceSize().fitting(rows, most_bytes, longest)
    assert fitting * longest <= most_bytes
    assert fitting <= rows
    assert fitting == 0 or 2 * fitting >= rows
