"""docs/mqtt-support.md and the tests agree: each claim has a test, and the page lists each tested statement."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mqtt-support.md"
#: the heading of each standard's table, and how tests cite its statements
STANDARDS = {"MQTT 5.0": "MQTT5", "MQTT 3.1.1": "MQTT311"}
#: numbers that the standard itself leaves out
UNUSED = {"MQTT5-2.2.1-1"}

ROW = re.compile(r"^\| MQTT-(?P<number>[\d.]+-\d+) \| (?P<what>.+?) \| (?P<shown>.+?) \|$", re.MULTILINE)
NUMBER = re.compile(r"MQTT-([\d.]+-\d+)")
CITATION = re.compile(r"\[(MQTT(?:5|311)-\d+\.\d+\.\d+-\d+)\]")
TEST = re.compile(r"(?P<path>tests/[\w/]+\.py)::(?P<name>test_\w+)")


def sections() -> dict[str, str]:
    """Return the part of the page on each standard, by how tests cite it."""
    _, *parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return {STANDARDS[title]: text for title, text in zip(parts[::2], parts[1::2], strict=True) if title in STANDARDS}


def rows() -> list[tuple[str, str, str]]:
    """Return (citation, behaviour, shown by) of every row of the page."""
    return [
        (f"{standard}-{row['number']}", row["what"], row["shown"])
        for standard, text in sections().items()
        for row in ROW.finditer(text)
    ]


@cache
def docstrings(path: Path) -> dict[str, str]:
    """Return the docstring of each test of a module, by its name."""
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_statement_is_on_the_page_once() -> None:
    """The numbers of each section run without a gap, those for Clients alone included."""
    listed = [citation for citation, _, _ in rows()]
    assert len(listed) == len(set(listed))
    assert len(listed) > 370
    for standard, text in sections().items():
        numbers = defaultdict(set)
        for section, _, number in (found.rpartition("-") for found in NUMBER.findall(text)):
            numbers[section].add(int(number))
        missing = {
            f"{standard}-{section}-{number}"
            for section, present in numbers.items()
            for number in set(range(1, max(present) + 1)) - present
        }
        assert missing == UNUSED & {one for one in UNUSED if one.startswith(f"{standard}-")}


@pytest.mark.parametrize(("citation", "what", "shown"), rows(), ids=lambda value: str(value)[:20])
def test_every_claim_of_the_page_is_tested(citation: str, what: str, shown: str) -> None:
    """Each row names a test that exists and cites the statement, or gives the reason why there is none."""
    assert what.strip()
    if shown.startswith(("not applicable: ", "refused: ")):
        return
    found = TEST.fullmatch(shown)
    assert found, shown
    tests = docstrings(ROOT / found["path"])
    assert found["name"] in tests, f"there is no {shown}"
    assert f"[{citation}]" in tests[found["name"]], f"{shown} does not cite [{citation}]"


def test_every_tested_statement_is_on_the_page() -> None:
    """Every statement that a test cites has its row."""
    listed = {citation for citation, _, _ in rows()}
    cited = {
        citation
        for path in (ROOT / "tests").glob("**/test_*.py")
        if "node_modules" not in path.parts
        for text in docstrings(path).values()
        for citation in CITATION.findall(text)
    }
    client_only = {
        f"{standard}-{number}"
        for standard, text in sections().items()
        for number in NUMBER.findall(text[text.index("Client-only:") :])
    }
    assert cited - listed - client_only == set()
