"""Terms of Erlang in its external format, as ``term_to_binary`` writes them, read within bounds.

How it works. A term is a byte for its kind, then its parts, which are terms again. ``{log_header, 7}`` is::

    83                                   131: a term follows
    68 02                                a tuple of two
    77 0a 6c 6f 67 5f ... 65 72          the atom log_header
    61 07                                the number 7

Atoms become :class:`Atom`, binaries ``bytes``, tuples ``tuple``, lists ``list``. A map becomes a ``dict`` of its keys
that are atoms or binaries; other keys are left out. Numbers are kept up to 2040 bits. Processes, references, ports and
functions become :data:`OPAQUE`: they mean nothing outside their node.

The bounds: a term may have ``_MOST_PARTS`` parts in ``_DEEPEST`` levels. So its memory is its own length and a constant
more, whatever its bytes are. Compressed terms are refused: no log has one, and they may unpack to any size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

#: A term as Python's values.
Term = Any
_MOST_PARTS = 200_000
_DEEPEST = 64
_VERSION = 131
_COMPRESSED = 80


class BadTerm(ValueError):
    """These bytes are not a term, or one beyond the bounds; the text says why."""


class Atom(str):
    """An atom."""

    __slots__ = ()


class _Opaque:
    def __repr__(self) -> str:
        return "OPAQUE"


OPAQUE: Final = _Opaque()


def term_in(data: bytes) -> Term:
    """Return the term that the bytes are. Raises :class:`BadTerm`."""
    reader = _Reader(data)
    try:
        found = reader.first()
    except (struct.error, IndexError):
        raise BadTerm("the term is cut short") from None
    if reader.at != len(data):
        raise BadTerm("something follows the term")
    return found


class _Reader:
    """Reads terms at ``at``."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self._left = _MOST_PARTS
        self._depth = 0

    def first(self) -> Term:
        if self._number(">B") != _VERSION:
            raise BadTerm("this is not a term of Erlang")
        if self._data[1] == _COMPRESSED:
            raise BadTerm("the term is compressed, and such terms are not read")
        return self._term()

    def _term(self) -> Term:
        self._spend(1)
        kind = self._number(">B")
        try:
            read = _KINDS[kind]
        except KeyError:
            raise BadTerm(f"byte {self.at - 1} of the term: there is no kind {kind}") from None
        if self._depth == _DEEPEST:
            raise BadTerm("the term is nested too deeply")
        self._depth += 1
        found = read(self)
        self._depth -= 1
        return found

    def _spend(self, parts: int) -> None:
        self._left -= parts
        if self._left < 0:
            raise BadTerm(f"the term has more than {_MOST_PARTS} parts")

    def _number(self, form: str) -> int:
        number: int = struct.unpack_from(form, self._data, self.at)[0]
        self.at += struct.calcsize(form)
        return number

    def _bytes(self, size: int) -> bytes:
        found = self._data[self.at : self.at + size]
        if len(found) < size:
            raise BadTerm("the term is cut short")
        self.at += size
        return found

    def _terms(self, count: int) -> list[Term]:
        if count > len(self._data) - self.at:  # each has a byte at least
            raise BadTerm("the term is cut short")
        if count > self._left:
            raise BadTerm(f"the term has more than {_MOST_PARTS} parts")
        return [self._term() for _ in range(count)]

    def _atom(self, form: str, encoding: str) -> Atom:
        try:
            return Atom(self._bytes(self._number(form)).decode(encoding))
        except UnicodeDecodeError:
            raise BadTerm("an atom is not UTF-8") from None

    def _big(self, form: str) -> int:
        size = self._number(form)
        if size > 0xFF:
            raise BadTerm("a number has more than 2040 bits")
        sign = self._number(">B")
        number = int.from_bytes(self._bytes(size), "little")
        return -number if sign else number

    def _float(self) -> float:
        found: float = struct.unpack(">d", self._bytes(8))[0]
        return found

    def _old_float(self) -> float:
        try:
            return float(self._bytes(31).rstrip(b"\0"))
        except ValueError:
            raise BadTerm("a number is not one") from None

    def _string(self) -> list[Term]:
        """Return a list of small numbers, which has a form of its own."""
        found = self._bytes(self._number(">H"))
        self._spend(len(found))
        return list(found)

    def _nil(self) -> list[Term]:
        return []

    def _list(self) -> list[Term]:
        found = self._terms(self._number(">I"))
        rest = self._term()
        return found if rest == [] else [*found, rest]

    def _map(self) -> dict[Term, Term]:
        found = {}
        for _ in range(self._number(">I")):
            name, value = self._term(), self._term()
            if isinstance(name, Atom | bytes):  # their hashes are salted: no file can make them collide
                found[name] = value
        return found

    def _bits(self) -> bytes:
        size = self._number(">I")
        self._number(">B")
        return self._bytes(size)

    def _opaque(self, size: int, node: bool = True) -> Term:
        """Skip the node of a process, port or reference, and its numbers."""
        if node:
            self._term()
        self._bytes(size)
        return OPAQUE

    def _reference(self, creation: int) -> Term:
        count = self._number(">H")
        return self._opaque(creation + 4 * count)

    def _export(self) -> Term:
        self._terms(3)
        return OPAQUE

    def _function(self) -> Term:
        size = self._number(">I")  # with its own four bytes
        return self._opaque(max(size - 4, 0), node=False)


_KINDS: dict[int, Callable[[_Reader], Term]] = {
    70: _Reader._float,
    77: _Reader._bits,
    88: lambda self: self._opaque(12),
    89: lambda self: self._opaque(8),
    90: lambda self: self._reference(4),
    97: lambda self: self._number(">B"),
    98: lambda self: self._number(">i"),
    99: _Reader._old_float,
    100: lambda self: self._atom(">H", "latin-1"),
    101: lambda self: self._opaque(5),
    102: lambda self: self._opaque(5),
    103: lambda self: self._opaque(9),
    104: lambda self: tuple(self._terms(self._number(">B"))),
    105: lambda self: tuple(self._terms(self._number(">I"))),
    106: _Reader._nil,
    107: _Reader._string,
    108: _Reader._list,
    109: lambda self: self._bytes(self._number(">I")),
    110: lambda self: self._big(">B"),
    111: lambda self: self._big(">I"),
    112: _Reader._function,
    113: _Reader._export,
    114: lambda self: self._reference(1),
    115: lambda self: self._atom(">B", "latin-1"),
    116: _Reader._map,
    118: lambda self: self._atom(">H", "utf-8"),
    119: lambda self: self._atom(">B", "utf-8"),
    120: lambda self: self._opaque(12),
}
