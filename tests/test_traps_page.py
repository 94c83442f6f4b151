"""The developers' page names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
NAMED = re.compile(r"((?:[a-z0-9_]+/)+[a-z0-9_]+\.py)|(test_[a-z0-9_]+)(?!\.py)\b")
PAGE = TESTS.parent / "docs" / "developer" / "testing.md"


def test_every_test_on_the_page_is_there() -> None:
    """A test is in the last file named before it. So a renamed test is noticed."""
    section = PAGE.read_text().partition("## Traps")[2].partition("## Migrations")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "test_" in line]
    assert len(rows) > 10
    for row in rows:
        text = ""
        named = 0
        for path, name in NAMED.findall(row.split("|")[2]):
            if path:
                text = (TESTS / path).read_text()
            else:
                assert f"def {name}(" in text, (row, name)
                named += 1
        assert named
