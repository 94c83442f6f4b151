"""A large JSON object of arrays, read element by element: no more of it is in memory than one element."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from holdfast.pipeline.formats.file_entry import UnreadableFile

_PIECE = 1 << 20
#: A longer element is not the message of any broker: MQTT's longest is 256 MB, in base64.
_LONGEST = 400 << 20
#: What is wrong this close to the end of what has been read may be right with more of it: a literal or an escape.
_SHORT = 16
_SPACE = " \t\r\n"


def elements(path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield each element of the arrays in an object: the array's name, the element's number from 1, the element.

    An array comes first with its name alone, as number 0. What is no array is passed over. Bytes that are no UTF-8 are
    surrogates. Raises :class:`UnreadableFile`.
    """
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        yield from _Text(file).elements()


class _Text:
    """What has been read and not been dealt with, from ``_at`` on."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._passed = 0  # characters dealt with and forgotten

    def elements(self) -> Iterator[tuple[str, int, Any]]:
        if self._peek() != "{":
            raise UnreadableFile("this is not a JSON object")
        self._at += 1
        while self._next_of("}"):
            name = self._value()
            if not isinstance(name, str) or self._peek() != ":":
                raise self._wrong("a name and a colon are missing")
            self._at += 1
            if self._peek() != "[":
                self._value()
                continue
            self._at += 1
            number = 0
            yield name, number, None
            while self._next_of("]"):
                number += 1
                yield name, number, self._value()
        if self._peek():
            raise self._wrong("something follows the object")

    def _next_of(self, end: str) -> bool:
        """Pass a comma, or the end; tell whether something comes."""
        first = self._text[self._at - 1] in "{["
        sign = self._peek()
        if sign == end:
            self._at += 1
            return False
        if first:
            return True
        if sign != ",":
            raise self._wrong("a comma is missing")
        self._at += 1
        if self._peek() == end:
            raise self._wrong("nothing follows the comma")
        return True

    def _peek(self) -> str:
        """Return the next character that is no space, "" at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more(_PIECE):
                return ""

    def _value(self) -> Any:
        """Decode what comes next, reading on until it is whole."""
        self._peek()
        piece = _PIECE
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _SHORT
                if not cut or len(self._text) - self._at > _LONGEST or not self._more(piece):
                    raise self._wrong(error.msg, error.pos) from error
            except RecursionError as error:
                raise self._wrong("it is nested too deeply") from error
            except ValueError as error:
                raise self._wrong("a number has too many digits") from error
            else:
                if end < len(self._text) or not self._more(piece):
                    self._at = end
                    return value
            piece *= 2  # what is decoded again and again is so no more than twice its length

    def _more(self, size: int) -> bool:
        """Read on, and forget what has been dealt with; tell whether there was anything."""
        piece = self._file.read(size)
        if not piece:
            return False
        forgotten = max(self._at - 1, 0)  # what comes after depends on the last sign
        self._text = self._text[forgotten:] + piece
        self._at -= forgotten
        self._passed += forgotten
        return True

    def _wrong(self, what: str, place: int | None = None) -> UnreadableFile:
        return UnreadableFile(
            f"character {self._passed + (self._at if place is None else place)}: this is not JSON: {what}"
        )
