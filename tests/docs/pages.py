"""The operator's pages: their blocks of code, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
OPERATOR = sorted((ROOT / "docs" / "operator").glob("*.md"))
PAGES = [ROOT / "README.md", *OPERATOR, *sorted((ROOT / "docs" / "pipeline").glob("*.md"))]

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)((?: {4}[^\n]*\n|\n(?= {4}))+)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
#: A command as a newcomer types it, perhaps as the broker's user, from the folder of the installation. (The text
#: ``holdfast version X`` is a value of a topic.)
_COMMAND = re.compile(r"(?:\$ )?(?:sudo -u \w+ )?(?:/opt/holdfast/bin/)?(holdfast(?:-pipeline)? (?!version ).*)")
_GROUPS = ("retainer ", "db ", "scram ", "config ", "ban ")


@frozen
class Block:
    """A block of code: its language ("" if none is given) and its text."""

    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, then its indented ones."""
    text = page.read_text(encoding="utf-8")
    for language, code in _FENCED.findall(text):
        yield Block(language, code)
    for code in _INDENTED.findall(_FENCED.sub("", text)):
        content = dedent(code)
        yield Block("toml" if content.startswith("[") and "=" in content else "", content)


def commands(page: Path) -> Iterator[str]:
    """Yield the commands of ``holdfast`` and ``holdfast-pipeline`` in blocks and within sentences, without comments."""
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines():
            if found := _COMMAND.match(line):
                yield found[1]
    for inline in _INLINE.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        if found := _COMMAND.match(inline):
            yield found[1]
        elif inline.startswith(_GROUPS):
            yield f"holdfast {inline}"


def links(page: Path) -> Iterator[str]:
    """Yield the links of a page to other pages and files of this repository, with their anchors."""
    for link in _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        if "://" not in link:
            yield link


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    found: Counter[str] = Counter()
    names = set()
    for heading in _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def words_of(command: str) -> list[str]:
    """Return the words of a command or of a synopsis such as ``topics [FILTER] [--at TIME]``."""
    return [word.strip("[].") for word in shlex.split(command, comments=True) if word.strip("[].")]
