"""Long lists are split without loss, in sizes that need few prepared statements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage.driver import split, split_in_powers_of_two


@given(st.lists(st.integers(), max_size=100), st.integers(1, 20))
def test_a_list_is_split_into_full_parts_and_a_rest(items: list[int], most: int) -> None:
    parts = list(split(items, most))
    assert [item for part in parts for item in part] == items
    assert all(len(part) == most for part in parts[:-1])
    assert all(0 < len(part) <= most for part in parts)


@given(st.lists(st.integers(), max_size=100), st.sampled_from([1, 2, 4, 8, 16]))
def test_a_list_is_split_into_powers_of_two(items: list[int], most: int) -> None:
    """The sizes never increase, and each size below the greatest one occurs once."""
    parts = list(split_in_powers_of_two(items, most))
    sizes = [len(part) for part in parts]
    assert [item for part in parts for item in part] == items
    assert sizes == sorted(sizes, reverse=True)
    assert all(size <= most and size & (size - 1) == 0 for size in sizes)
    assert len({size for size in sizes if size < most}) == sum(size < most for size in sizes)
