"""The verdict about the SQLite library: only versions known to be mended are trusted."""

from __future__ import annotations

import pytest

from holdfast.storage.sqlite import is_mended, verdict


@pytest.mark.parametrize(
    ("version", "mended"),
    [
        ((3, 34, 1), False),
        ((3, 40, 1), False),  # Debian 12
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 45, 9), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 50, 8), True),
        ((3, 51, 0), False),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), True),
        ((3, 54, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_versions(version: tuple[int, ...], mended: bool) -> None:
    assert is_mended(version) is mended
    assert verdict(version).startswith(f"SQLite {'.'.join(map(str, version))}: ")
    assert ("may have the WAL-reset bug" in verdict(version)) is not mended
