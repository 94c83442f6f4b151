"""Numbers, sizes, times and topics for people. Pure.

Clients choose the text of topics, so it is shown as :mod:`holdfast.core.terminal` does.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from holdfast.core import terminal
from holdfast.core.terminal import printable

_SIZES = ("bytes", "KB", "MB", "GB", "TB", "PB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_CUT = "…"
#: Characters of a type that are read.
_LONGEST = 1000

#: The parts of Spark's text of a type: names of fields, what holds others, and types.
_TOKEN = re.compile(r"(?:`[^`]*`|[^<>,:\s]+): |OBJECT<|ARRAY<|>|, |\w+(?:\(\d+,\s*\d+\))?|.")
_KINDS = {
    "STRING": "text", "BIGINT": "number", "DOUBLE": "number", "DECIMAL": "number", "BOOLEAN": "true or false",
    "VOID": "null", "VARIANT": "anything", "OBJECT": "{}",
}  # fmt: skip


def visible(text: str, longest: int = 120) -> str:
    """Return a text with escapes such as ``\\x1b`` and ``\\u202e`` for control characters and invisible ones.

    The middle of a text with more than ``longest`` characters is cut out.
    """
    if len(text) > longest:
        half = (longest - 1) // 2
        text = text[: longest - 1 - half] + _CUT + text[len(text) - half :]
    return printable(text)


def number(value: float) -> str:
    """Return a count with separators: 1,234,567."""
    return f"{value:,.0f}"


def quantity(value: float) -> str:
    """Return a measured value with at most six digits: 21.5, 1,013.25, 1.2e+12."""
    return f"{value:,.6g}"


def counted(value: int, noun: str) -> str:
    """Return a count with its noun: 1 message, 2,000 messages."""
    return terminal.counted(value, noun, number(value))


def short(value: float) -> str:
    """Return a short form of a count: 950, 1.2k, 12k, 3.4M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit * 0.9995:
            scaled = value / unit
            return f"{scaled:.1f}".removesuffix(".0") + name if scaled < 99.95 else f"{scaled:.0f}{name}"
    return f"{value:.0f}"


def size(count: float) -> str:
    """Return a number of bytes in the largest unit that fits (powers of 1024): 1 byte, 1.5 MB."""
    if f"{count:.0f}" == "1":
        return "1 byte"
    for name in _SIZES:
        if count < 1023.95 or name == _SIZES[-1]:
            break
        count /= 1024
    return f"{count:.0f} {name}" if name == _SIZES[0] or count >= 99.95 else f"{count:.1f} {name}"


def words(schema: str) -> str:
    """Return Spark's type of JSON values in words: {"at": text, "level": number, "on": [true or false]}.

    A long one is cut: clients choose the names of fields.
    """
    closing: list[str] = []
    said = ""
    for part in _TOKEN.findall(schema[:_LONGEST]):
        if part.endswith(": "):
            said += f'"{part[:-2].strip("`")}": '
        elif part in ("OBJECT<", "ARRAY<"):
            closing.append("}" if part == "OBJECT<" else "]")
            said += "{" if part == "OBJECT<" else "["
        elif part == ">" and closing:
            said += closing.pop()
        else:
            said += _KINDS.get(part.partition("(")[0], part)
    return f"{said}{_CUT}" if len(schema) > _LONGEST else said


def span(seconds: float) -> str:
    """Return a time span by its two largest units: 3 d 4 h, 12 s, 0.3 s."""
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    for position, (length, name) in enumerate(_SPANS):
        if whole >= length:
            rest = _SPANS[position + 1 : position + 2]
            more = f" {whole % length // rest[0][0]} {rest[0][1]}" if rest and whole % length >= rest[0][0] else ""
            return f"{whole // length:,} {name}{more}"
    return "0 s"


def rough(seconds: float) -> str:
    """Return a time span by its largest unit: 3 d, 24 min, 0.3 s."""
    for length, name in _SPANS:
        if round(seconds) >= max(length, 10):
            return f"{round(seconds / length):,} {name}"
    return span(seconds)


def moment(milliseconds: int) -> str:
    """Return a time, in milliseconds since the epoch, to the minute in UTC: 2026-01-31 13:05 UTC."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def share(part: float, whole: float) -> str:
    """Return a part of a whole as a percentage: 12 %, 0.3 %, < 0.1 %."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"
