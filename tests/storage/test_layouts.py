"""What a start needs of the schema is what its tables make of it."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_FILES: dict[Path, Callable[[], str]] = runpy.run_path(str(_ROOT / "docs" / "developer" / "write_schema.py"))["FILES"]


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.name)
def test_the_file_is_made_from_the_present_tables(path: Path) -> None:
    """If it is not: `make schema`."""
    assert path.read_text() == _FILES[path]()
