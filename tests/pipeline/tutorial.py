"""The commands of a page of documentation, taken from its fenced blocks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import frozen

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"\w+=")
#: Words that do not depend on the amount of data.
_WORD = re.compile(r"[A-Za-z]{4,}")


@frozen
class Step:
    """A block to run, its language, and its output on the page ("" without output)."""

    language: str
    text: str
    output: str

    @property
    def commands(self) -> list[str]:
        """The commands of a block of shell, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in (re.sub(r"(^|\s+)# .*", "", line).strip() for line in lines) if line]


def steps(page: str) -> Iterator[Step]:
    """Give the blocks of shell and of Python, each with the following block of text."""
    blocks = [found.groups() for found in _FENCED.finditer(page)]
    for (language, text), (following, output) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language in ("sh", "python"):
            yield Step(language, text, output if following == "text" else "")


class Shell:
    """Runs commands with a real shell in a folder, except the commands of one program: ``call`` runs those."""

    def __init__(self, folder: Path, program: str, call: Callable[[list[str]], str]) -> None:
        self._folder = folder
        self._program = program
        self._call = call
        self._assigned = ""

    def run(self, command: str) -> str:
        """Return the output of a command. Its assignments apply to later commands."""
        if _ASSIGNMENT.match(command):
            self._assigned += command + "\n"
            return self._said("")
        if command.split()[0] == self._program:
            words = self._said(f"printf '%s\\0' {command}").split("\0")
            return self._call(words[1:-1])
        return self._said(command)

    def _said(self, command: str) -> str:
        script = f"set -euo pipefail\n{self._assigned}{command}"
        return subprocess.run(
            ["bash", "-c", script], cwd=self._folder, text=True, check=True, capture_output=True
        ).stdout


def words(text: str) -> set[str]:
    """Return the words of a text that do not depend on numbers."""
    return set(_WORD.findall(text))
