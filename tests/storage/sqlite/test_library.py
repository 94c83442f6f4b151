"""The SQLite library and its driver: only versions known to be mended are trusted, and values are bound as they are."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from holdfast.storage.database import Durability
from holdfast.storage.sqlite import SQLiteDatabase, is_mended, verdict


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


@pytest.mark.parametrize("value", [b"", b"\0\xff", None, "text", "", 0, 1 << 62, 1.5])
def test_a_bound_value_comes_back_as_it_is(value: object, tmp_path: Path) -> None:
    """Also bytes and None, for which the process has adapters."""
    with closing(SQLiteDatabase(tmp_path / "a.db", Durability.FULL).connect()) as connection:
        found = connection.execute("SELECT ?, typeof(?)", (value, value)).fetchone()
    kinds = {bytes: "blob", str: "text", int: "integer", float: "real"}
    assert found == (value, kinds.get(type(value), "null"))
    assert type(found[0]) is type(value)
