"""Where each key of a TOML document stands: ``tomllib`` tells values but no lines.

The scanner trusts that ``tomllib`` has accepted the text; it only follows keys and steps over values.
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
class Place:
    """A key, or an element of an array: its line, and what lies below it."""

    line: int
    below: dict[str | int, Place] = field(factory=dict)
    #: How many ``[[tables]]`` of this name have begun; later headers speak of the last one.
    elements: int = 0
    implied: bool = False

    def at(self, path: Sequence[str | int]) -> int:
        """Return the line of a path below here or, where that is not written, of its nearest parent."""
        place = self
        for part in path:
            child = place.below.get(part)
            if child is None:
                break
            place = child
        return place.line

    def child(self, part: str | int, line: int, implied: bool) -> Place:
        """Return the place below here with this name, made if need be; a written one replaces an implied one."""
        child = self.below.get(part)
        if child is None:
            child = self.below[part] = Place(line, implied=implied)
        elif child.implied and not implied:
            child.line, child.implied = line, False
        return child


@frozen
class Source:
    """Where a configuration comes from: a name for messages and, for a file, the places of its keys."""

    name: str
    places: Place | None = None

    def problem(self, path: Sequence[str], message: str) -> ConfigProblem:
        """Return the problem of the key with this path."""
        line = None if self.places is None else self.places.at(path)
        return ConfigProblem(self.name, line, dotted(path), message)


def locate(text: str) -> Place:
    """Return the places of all keys in a TOML document that ``tomllib`` accepts.

    Array elements have their index as part of the path. Text in a syntax unknown to the scanner ends the scan: the
    places found so far are returned, and later keys are reported at their nearest known parent.
    """
    scanner = _Scanner(text)
    try:
        scanner.scan()
    except _Lost:
        return scanner.root
    return scanner.root


class _Lost(Exception):
    """The text is not the TOML this scanner knows."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.root = Place(1)
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
            raise _Lost
        self._at = match.end()
        self._line += match[0].count("\n")
        return match[0]

    def _skip(self, mark: str) -> bool:
        """Step over the mark if it comes next."""
        found = self._text.startswith(mark, self._at)
        if found:
            self._at += len(mark)
        return found

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise _Lost

    def _key(self) -> list[str]:
        parts = []
        while True:
            self._take(_BLANKS)
            parts.append(_plain(self._take(_KEY_PART)))
            self._take(_BLANKS)
            if not self._skip("."):
                return parts

    def _header(self) -> Place:
        line = self._line
        repeated = self._skip("[[")
        if not repeated:
            self._expect("[")
        *parents, name = self._key()
        self._expect("]]" if repeated else "]")
        place = self.root
        for part in parents:
            place = place.child(part, line, implied=True)
            if place.elements:
                place = place.child(place.elements - 1, line, implied=True)
        place = place.child(name, line, implied=False)
        if repeated:
            place.elements += 1
            place = place.child(place.elements - 1, line, implied=False)
        return place

    def _pair(self, table: Place) -> None:
        line = self._line
        *parents, name = self._key()
        self._expect("=")
        for part in parents:
            table = table.child(part, line, implied=True)
        place = table.child(name, line, implied=False)
        self._take(_BLANKS)
        self._value(place)

    def _value(self, place: Place) -> None:
        if self._skip("["):
            self._take(_GAP)
            index = 0
            while not self._skip("]"):
                self._value(place.child(index, self._line, implied=False))
                index += 1
                self._separator("]")
        elif self._skip("{"):
            self._take(_GAP)
            while not self._skip("}"):
                self._pair(place)
                self._separator("}")
        else:
            self._take(_SCALAR)

    def _separator(self, closing: str) -> None:
        self._take(_GAP)
        if self._skip(","):
            self._take(_GAP)
        elif not self._text.startswith(closing, self._at):
            raise _Lost


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
