"""What all commands have in common towards a terminal: texts of clients made safe for it, and the exit statuses."""

from __future__ import annotations

import json
import unicodedata
from enum import IntEnum

# Text from clients, made safe for a terminal.
#
# Clients choose the text of topics, identifiers and payloads. Characters that move the cursor, change the direction of
# a line or are invisible are written as escapes (``\x1b``, ``\u202e``), so that no client can change the rest of the
# screen or add a line to a list. Every command prints through these functions, to a terminal and to a file alike.


#: Unicode's categories: controls, formats (also those of direction), surrogates, private use, unassigned, separators of
#: lines and of paragraphs.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Unicode's categories of characters that nobody sees in a name; the spaces that people tell apart, the usual one and
#: the wide one of Chinese and Japanese; and letters without a shape.
_UNSEEN = frozenset({"Cf", "Zl", "Zp", "Zs"})
_SPACES = " \u3000"
_SHAPELESS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"
#: Joins the parts of an emoji.
_JOINER = "\u200d"


def counted(count: int, noun: str, shown: str | None = None) -> str:
    """Return a count with its noun: 1 message, 2 messages, 2 entries; ``shown`` is the count in another form."""
    if count != 1:
        noun = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count if shown is None else shown} {noun}"


def printable(text: str) -> str:
    """Return the text in one line, with escapes for characters that a terminal obeys or does not show."""
    if text.isprintable():
        return text
    return text.translate(_SHOWN)


def printable_json(value: object) -> str:
    """Return a value as JSON in one line. The same characters are written as JSON's escapes, so the value is exact."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(json.dumps(one)[1:-1] if _is_hidden(one) else one for one in text)


def safe_json(value: object, separators: tuple[str, str] | None = None) -> str:
    """Return a value as JSON in one line, in ASCII if it has a character that a terminal obeys or does not show.

    It costs twice the time of plain JSON at most, whatever the value has: answers of the broker are made so.
    """
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    if text.isprintable():
        return text
    return json.dumps(value, separators=separators).replace("\x7f", "\\u007f")  # the one control that JSON allows


def hidden_character(text: str) -> str | None:
    """Return the first invisible character of a text as ``U+200B``, None if it has none.

    A control character is none of them: it has rules of its own.
    """
    if text.isascii():
        return None
    for one in text:
        if one in _SHAPELESS or (unicodedata.category(one) in _UNSEEN and one not in _SPACES):
            return f"U+{ord(one):04X}"
    return None


class _Shown(dict[int, str]):
    """What to write for each character. It learns: a table of all characters would delay each start."""

    _MOST = 4096

    def __missing__(self, code: int) -> str:
        one = chr(code)
        shown = _escaped(one) if _is_hidden(one) else one
        if len(self) < self._MOST:
            self[code] = shown
        return shown


def _is_hidden(one: str) -> bool:
    return one != _JOINER and unicodedata.category(one) in _HIDDEN


def _escaped(one: str) -> str:
    return one.encode("unicode_escape", "surrogatepass").decode()


_SHOWN = _Shown()


# The exit statuses of all commands.


class ExitStatus(IntEnum):
    """One convention for ``holdfast`` and ``holdfast-pipeline``."""

    #: all is done, and nothing was found
    DONE = 0
    #: the command could not do its work: also if a file is missing or cannot be read
    FAILED = 1
    #: the command line is wrong; nothing was tried
    USAGE = 2
    #: the work is done and found something to examine: problems, damage, differences, refused messages
    FOUND = 3
