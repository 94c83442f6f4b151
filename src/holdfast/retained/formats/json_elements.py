"""Read a large JSON object of arrays, element by element, with no more than about one element in memory.

How it works: ``json.JSONDecoder.raw_decode`` decodes one value at a position of a text. The text is the part of the
file that was read and not decoded yet. If a value is cut at the end of the text, more is read and the value is decoded
again. Each time twice as much is read, so no character is decoded more than about twice. A value that ends exactly at
the end of the text may be cut, too: ``12`` may be the beginning of ``123``. Such a value is accepted only after more
text was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from holdfast.retained.formats.file_entry import UnreadableFile

_PIECE = 1 << 20
#: The longest element: MQTT's longest message has 256 MB, and about 350 MB in base64.
_LONGEST = 400 << 20
#: An error so near to the end of the text may come from a literal or an escape that is cut there.
_SHORT = 16
_SPACE = " \t\r\n"


def elements(path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield each element of the arrays in an object: the array's name, the element's number from 1, the element.

    Each array begins with number 0 and None, so that empty arrays are seen, too. Other values are skipped. Bytes that
    are not UTF-8 become surrogates. Raises :class:`UnreadableFile`.
    """
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        yield from _Text(file).elements()


class _Text:
    """The part of the file that was read and not decoded yet, from ``_at`` on."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._passed = 0  # characters that were decoded and dropped

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
        """Skip a comma or the end sign; return whether another element follows."""
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
        """Return the next character that is not a space, "" at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more(_PIECE):
                return ""

    def _value(self) -> Any:
        """Decode the next value; read more until it is complete."""
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
            piece *= 2

    def _more(self, size: int) -> bool:
        """Read more and drop the decoded part; return False at the end of the file."""
        piece = self._file.read(size)
        if not piece:
            return False
        forgotten = max(self._at - 1, 0)  # _next_of() looks at the character before
        self._text = self._text[forgotten:] + piece
        self._at -= forgotten
        self._passed += forgotten
        return True

    def _wrong(self, what: str, place: int | None = None) -> UnreadableFile:
        return UnreadableFile(
            f"character {self._passed + (self._at if place is None else place)}: this is not JSON: {what}"
        )
