"""TOML files: reading them with the line of each key, writing values, and the problems that an operator is told."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

# The problems of a configuration, each with its position, written for the operator.


@frozen
class ConfigProblem:
    """One problem at one position.

    ``line`` counts from 1, and is None without a line (a missing file, the command line). ``key`` is the dotted key,
    and is empty without a single key (a syntax error).
    """

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


class ConfigError(Exception):
    """The configuration is unusable. Has all its problems, in the order of the file."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems: tuple[ConfigProblem, ...] = tuple(
            sorted(problems, key=lambda problem: (problem.line or 0, problem.key))
        )
        super().__init__("\n".join(map(str, self.problems)))


class FileUnreadable(ConfigError):
    """The configuration file is missing or cannot be read, so nothing is known about its content."""


# Reading a TOML file: its values and the lines of its keys, or one clear problem.


#: Bytes: far more than any configuration. A limit also ends the reading of a device such as /dev/zero.
LARGEST = 1024 * 1024

_AT_LINE = re.compile(r"(.*) \(at line ([0-9]+), column ([0-9]+)\)", re.DOTALL)
_AT_END = re.compile(r"(.*) \(at end of document\)", re.DOTALL)

#: The beginnings of tomllib's messages, and clearer words for the operator.
_CLEARER = {
    "Cannot overwrite a value": "this key has a value already: it is given twice, or is both a value and a table",
    "Invalid value": "no value follows the equals sign; text stands in quotes, durations and sizes too",
    "Invalid statement": "neither a [table] nor a key = value",
    "Cannot declare": "this table is there already",
    "Cannot mutate immutable namespace": "this table is complete already and cannot be added to",
    "Unescaped '\\' in a string": "a backslash in a string is written \\\\ (or use 'single quotes')",
}


def display_name(path: Path) -> str:
    """Return the path for messages, with replacements for bytes that are not UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def read_regular(path: Path, largest: int = -1) -> tuple[bytes, int]:
    """Return the content of a regular file and its mode. Raises OSError.

    With ``largest``, it is at most one byte more than that. A pipe without a writer is refused, and not waited for.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "this is not a regular file")
        return file.read(largest + 1 if largest >= 0 else -1), mode


def without_mark(content: bytes) -> bytes:
    """Return the content of a text file without the byte order mark that some editors put before it."""
    return content.removeprefix(codecs.BOM_UTF8)


def read(path: Path, largest: int = LARGEST) -> tuple[dict[str, Any], ConfigOrigin]:
    """Return the values in a TOML file of at most ``largest`` bytes, and their lines.

    Raises ConfigError with a single problem; FileUnreadable if there is no content.
    """
    name = display_name(path)
    text = text_of(path, largest)
    try:
        values = tomllib.loads(text)
        return values, ConfigOrigin(name, locate(text))
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(name, text, str(error)) from None
    except ValueError as error:  # an integer with too many digits for Python
        raise _error(name, None, f"a value cannot be read: {error}") from None
    except RecursionError:
        raise _error(name, None, "arrays or inline tables are nested too deeply") from None


def text_of(path: Path, largest: int = LARGEST) -> str:
    """Return the text of a file of at most ``largest`` bytes. Raises as :func:`read` does."""
    name = display_name(path)
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except FileNotFoundError:
        raise _unreadable(name, "there is no such file") from None
    except IsADirectoryError:
        raise _unreadable(name, "this is a directory; give the path of a file") from None
    except OSError as error:
        raise _unreadable(name, f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise _unreadable(name, "this is not the path of a file: it has a null character") from None
    if len(content) > largest:
        raise _error(name, None, f"this has more than {largest} bytes and is hardly a configuration file")
    try:
        return without_mark(content).decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _error(name, line, "the text is not UTF-8; save the file in that encoding") from None


def _syntax_error(name: str, text: str, message: str) -> ConfigError:
    at_line, at_end = _AT_LINE.fullmatch(message), _AT_END.fullmatch(message)
    if at_line is not None:
        problem, line, position = at_line[1], int(at_line[2]), f" (column {at_line[3]})"
    elif at_end is not None:
        problem, line, position = at_end[1], text.rstrip().count("\n") + 1, " (at the end of the file)"
    else:
        return _error(name, None, f"not TOML: {message}")
    clearer = next((words for start, words in _CLEARER.items() if problem.startswith(start)), problem)
    return _error(name, line, f"not TOML: {clearer}{position}")


def _error(name: str, line: int | None, message: str) -> ConfigError:
    return ConfigError([ConfigProblem(name, line, "", message)])


def _unreadable(name: str, message: str) -> FileUnreadable:
    return FileUnreadable([ConfigProblem(name, None, "", message)])


# The line of each key of a TOML document: ``tomllib`` returns values without lines.
#
# ``tomllib`` has accepted the text before, so the scanner checks nothing. It follows keys and skips values.


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


# Writing values and keys as TOML, for messages and for the generated files.


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST = 60


def literal(value: object) -> str:
    """Return a value as TOML. Long strings are cut; tables, and arrays that are long or hold tables, are only named."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "...")
        case int():
            # Python refuses to print integers of thousands of digits, which TOML can hold in hexadecimal.
            return str(value) if value.bit_length() <= 128 else "an integer of more than 128 bits"
        case float():
            return str(value)
        case dict():
            return "a table"
        case []:
            return "[]"
        case list():
            if not value:
                return "[]"
            nested = any(isinstance(item, dict | list) for item in value)
            text = "" if nested else f"[{', '.join(map(literal, value[:_LONGEST]))}]"
            return text if 0 < len(text) <= _LONGEST else "an array"
        case _:  # dates and times
            return str(value)


def written(value: object) -> str:
    """Return a value of an option's description as TOML. A table is written as a whole."""
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{dotted([key])} = {written(item)}' for key, item in value.items())} }}" if value else "{}"
        )
    return literal(value)


def dotted(path: Iterable[str]) -> str:
    """Return the dotted key of a path, with quotes where TOML needs them."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else quoted(part) for part in path)


def quoted(text: str) -> str:
    """Return a text as a TOML string, whole."""
    # JSON escapes fewer characters than TOML has to, and none of those that only a terminal acts on.
    return "".join(map(_escaped, json.dumps(text, ensure_ascii=False)))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 1 << 16 else f"\\U{ord(character):08x}"
