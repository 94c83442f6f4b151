"""The line of each key of a TOML document: ``tomllib`` returns values without lines.

``tomllib`` has accepted the text before, so the scanner checks nothing. It follows keys and skips values.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

from attrs import define, field, frozen

from holdfast.config.problems import ConfigProblem
from holdfast.config.toml.text import dotted

_BLANKS = re.compile(r"[ \t]*+")
_GAP = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_KEY_PART = re.compile(r'"(?:[^"\\\n]|\\[^\n])*+"' r"|'[^'\n]*+'|[A-Za-z0-9_-]++")
_SCALAR = re.compile(
    r'"""(?:[^"\\]++|\\[\s\S]|"(?!""))*+"""["]{0,2}+'
    r"|'''(?:[^']++|'(?!''))*+'''[']{0,2}+"
    r'|"(?:[^"\\\n]|\\[^\n])*+"'
    r"|'[^'\n]*+'"
    r"|[^\s,\]}#][^,\]}#\n]*+"
)


@define
class KeyLocation:
    """A key or an element of an array: its line, and the keys below it.

    ``implied`` is a parent that has no header of its own, such as ``a`` in ``[a.b]``.
    """

    line: int
    below: dict[str | int, KeyLocation] = field(factory=dict)
    #: The number of ``[[tables]]`` with this name so far. Later headers mean the last one.
    elements: int = 0
    implied: bool = False

    def at(self, path: Sequence[str | int]) -> int:
        """Return the line of a path below this key, or of its nearest parent in the file.

        A number as text, from 1 on, is also the place of an element of an array.
        """
        location = self
        for part in path:
            child = location.below.get(part)
            if child is None and isinstance(part, str) and part.isdecimal():
                child = location.below.get(int(part) - 1)
            if child is None:
                break
            location = child
        return location.line

    def child(self, part: str | int, line: int, implied: bool) -> KeyLocation:
        """Return the location below this key, and create it if there is none. A header replaces an implied location."""
        child = self.below.get(part)
        if child is None:
            child = self.below[part] = KeyLocation(line, implied=implied)
        elif child.implied and not implied:
            child.line, child.implied = line, False
        return child


@frozen
class ConfigOrigin:
    """The origin of a configuration: a name for messages and, for a file, the locations of its keys."""

    name: str
    locations: KeyLocation | None = None

    def problem(self, path: Sequence[str], message: str) -> ConfigProblem:
        """Return the problem of the key with this path."""
        line = None if self.locations is None else self.locations.at(path)
        return ConfigProblem(self.name, line, dotted(path), message)


def locate(text: str) -> KeyLocation:
    """Return the locations of all keys in a TOML document that ``tomllib`` accepts.

    The index of an array element is a part of its path. A later version of TOML may have syntax that the scanner does
    not know. Then the scan ends, and later keys are reported at their nearest known parent.
    """
    scanner = _Scanner(text)
    try:
        scanner.scan()
    except _UnknownSyntax:
        return scanner.root
    return scanner.root


class _UnknownSyntax(Exception):
    """The scanner does not know this syntax."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.root = KeyLocation(1)
        self._text = text
        self._at = 0
        self._line = 1

    def scan(self) -> None:
        table = self.root
        self._take(_GAP)
        while self._at < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)
            self._take(_GAP)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _UnknownSyntax
        self._at = match.end()
        self._line += match[0].count("\n")
        return match[0]

    def _skip(self, mark: str) -> bool:
        """Skip the mark if it comes next; tell whether it did."""
        found = self._text.startswith(mark, self._at)
        if found:
            self._at += len(mark)
        return found

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise _UnknownSyntax

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._take(_BLANKS)
            parts.append(_plain(self._take(_KEY_PART)))
            self._take(_BLANKS)
            if not self._skip("."):
                return parts

    def _header(self) -> KeyLocation:
        line = self._line
        repeated = self._skip("[[")
        if not repeated:
            self._expect("[")
        *parents, name = self._key()
        self._expect("]]" if repeated else "]")
        location = self.root
        for part in parents:
            location = location.child(part, line, implied=True)
            if location.elements:
                location = location.child(location.elements - 1, line, implied=True)
        location = location.child(name, line, implied=False)
        if repeated:
            location.elements += 1
            location = location.child(location.elements - 1, line, implied=False)
        return location

    def _pair(self, table: KeyLocation) -> None:
        line = self._line
        *parents, name = self._key()
        self._expect("=")
        for part in parents:
            table = table.child(part, line, implied=True)
        location = table.child(name, line, implied=False)
        self._take(_BLANKS)
        self._value(location)

    def _value(self, location: KeyLocation) -> None:
        if self._skip("["):
            self._take(_GAP)
            index = 0
            while not self._skip("]"):
                self._value(location.child(index, self._line, implied=False))
                index += 1
                self._separator("]")
        elif self._skip("{"):
            self._take(_GAP)
            while not self._skip("}"):
                self._pair(location)
                self._separator("}")
        else:
            self._take(_SCALAR)

    def _separator(self, closing: str) -> None:
        self._take(_GAP)
        if self._skip(","):
            self._take(_GAP)
        elif not self._text.startswith(closing, self._at):
            raise _UnknownSyntax


def _plain(part: str) -> str:
    """Return a key part without its quotes and escapes."""
    if part[0] == "'":
        return part[1:-1]
    if part[0] != '"':
        return part
    if "\\" not in part:
        return part[1:-1]
    value = tomllib.loads(f"key = {part}")["key"]
    assert isinstance(value, str)
    return value
