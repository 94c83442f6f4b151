"""Reads the HOCON that EMQX writes: objects, arrays and single values, without substitutions and includes.

::

    authentication = [
      {
        backend = built_in_database
        password_hash_algorithm {name = sha256, salt_position = prefix}
      }
    ]
    listeners.tcp.default.bind = "0.0.0.0:1883"

Objects become ``dict``, arrays ``list``, and single values their text: readers compare words. Two objects of one name
are merged; a later single value takes the place of an earlier one.
"""

from __future__ import annotations

import re
from typing import Any

_DEEPEST = 64
_SPACE = re.compile(r"(?:[\s,]|#[^\n]*|//[^\n]*)*")
_QUOTED = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_TRIPLE = re.compile(r'"""(.*?)"""(?!")', re.DOTALL)
_WORD = re.compile(r"[^\s,{}\[\]:=#\"]+")
#: A value without quotes goes to the end of its line, or to what ends it.
_TEXT = re.compile(r"(?:[^\n,{}\[\]#\"/]|/(?!/))+")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class BadHocon(ValueError):
    """The text is not HOCON, or of a kind that is not read; the text says where."""


def read_hocon(text: str) -> dict[str, Any]:
    """Return the outermost object. Raises :class:`BadHocon`."""
    try:
        return _Reader(text).members(end="", depth=0)
    except RecursionError:
        raise BadHocon("it is nested too deeply") from None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def members(self, end: str, depth: int) -> dict[str, Any]:
        """Return the members of an object up to its end."""
        if depth > _DEEPEST:
            raise self._wrong("it is nested too deeply")
        found: dict[str, Any] = {}
        while self._more(end):
            if end == "" and self._text[self._at] == "{":
                self._at += 1
                _merge(found, self.members("}", depth + 1))
                continue
            path = self._path()
            self._space()
            if self._text[self._at : self._at + 1] in ("=", ":"):
                self._at += 1
                self._space()
            elif self._text[self._at : self._at + 1] != "{":
                raise self._wrong("a value is missing after the name")
            value = self._value(depth)
            for name in reversed(path[1:]):
                value = {name: value}
            _merge(found, {path[0]: value})
        return found

    def _value(self, depth: int) -> Any:
        sign = self._text[self._at : self._at + 1]
        if sign == "{":
            self._at += 1
            return self.members("}", depth + 1)
        if sign == "[":
            if depth >= _DEEPEST:
                raise self._wrong("it is nested too deeply")
            self._at += 1
            listed = []
            while self._more("]"):
                listed.append(self._value(depth + 1))
            return listed
        if (triple := _TRIPLE.match(self._text, self._at)) is not None:
            self._at = triple.end()
            return triple[1]
        if (quoted := _QUOTED.match(self._text, self._at)) is not None:
            self._at = quoted.end()
            return _unescaped(quoted[1])
        plain = _TEXT.match(self._text, self._at)
        if plain is None:
            raise self._wrong("a value is missing")
        self._at = plain.end()
        return plain[0].strip()

    def _path(self) -> list[str]:
        """Return the parts of a name: a.b."c.d"."""
        parts = []
        while True:
            quoted = _QUOTED.match(self._text, self._at)
            word = quoted or _WORD.match(self._text, self._at)
            if word is None:
                raise self._wrong("a name is missing")
            self._at = word.end()
            if quoted is not None:
                parts.append(_unescaped(quoted[1]))
            else:
                parts += [part for part in word[0].split(".") if part]
            if not (word[0].endswith(".") or self._text[self._at : self._at + 1] == "."):
                break
            self._at += self._text[self._at : self._at + 1] == "."
        if not 0 < len(parts) <= _DEEPEST:
            raise self._wrong("a name is missing, or has too many parts")
        return parts

    def _more(self, end: str) -> bool:
        """Skip space and the end sign; return whether something else comes."""
        self._space()
        if self._at >= len(self._text):
            if end:
                raise self._wrong(f"{end} is missing")
            return False
        if end and self._text[self._at] == end:
            self._at += 1
            return False
        return True

    def _space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _wrong(self, what: str) -> BadHocon:
        return BadHocon(f"line {self._text.count(chr(10), 0, self._at) + 1}: {what}")


def _merge(into: dict[str, Any], found: dict[str, Any]) -> None:
    for name, value in found.items():
        present = into.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            _merge(present, value)
        else:
            into[name] = value


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(one, text)
