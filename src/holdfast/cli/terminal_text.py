"""Text from clients, made safe for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text in one line, with control characters written as escapes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
