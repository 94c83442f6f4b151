r"""Retained messages as lines of CSV (RFC 4180) that are safe to open in a spreadsheet.

Clients choose topics, payloads and names. A cell that a spreadsheet would read as a formula gets an apostrophe before
it, which spreadsheets take as "this is text"; numbers stay as they are. Control characters and invisible ones are
written as escapes, so each message is one line::

    =HYPERLINK("http://x")     '=HYPERLINK("http://x")
    -12.5                      -12.5
    a line\nanother            a line\nanother (a backslash and an n)

A payload that is not UTF-8, or too long for a cell, is written in base64, as the column ``payload_encoding`` says. CSV
is for people and spreadsheets: only lines of JSON can be imported again.
"""

from __future__ import annotations

import csv
import io
import json
import re
from base64 import b64encode

from holdfast.messages import RetainedMessage
from holdfast.retained.dates import date_of
from holdfast.retained.records import properties_of
from holdfast.terminal_text import printable

COLUMNS = (
    "topic", "payload", "payload_encoding", "qos", "stored_at", "expires_at", "client_id", "username", "properties",
    "revision",
)  # fmt: skip
#: What begins a formula in one of the usual spreadsheets, also in its full-width form.
_FORMULA = tuple("=+-@|%\uff1d\uff0b\uff0d\uff20")
#: The most bytes of a payload that is written as text: the most characters of a cell in the usual spreadsheets.
_LONGEST_TEXT = 32_767
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


def header() -> bytes:
    """Return the line with the names of the columns."""
    return _line(list(COLUMNS))


def line_of(message: RetainedMessage) -> bytes:
    """Return a message as a line."""
    text = _text_of(message.payload)
    encoding = "base64" if text is None else "text"
    payload = b64encode(message.payload).decode() if text is None else text
    properties = properties_of(message.properties)
    return _line(
        [
            message.topic,
            payload,
            encoding,
            str(message.qos),
            date_of(message.stored_at),
            "" if message.expires_at is None else date_of(message.expires_at),
            message.client_id or "",
            message.username or "",
            json.dumps(properties, ensure_ascii=False) if properties else "",
            str(message.revision),
        ]
    )


def _text_of(payload: bytes) -> str | None:
    """Return the text of a payload, None if it is not UTF-8 or too long."""
    try:
        return payload.decode() if len(payload) <= _LONGEST_TEXT else None
    except UnicodeDecodeError:
        return None


def cell_of(text: str) -> str:
    """Return a cell that has no effect in a spreadsheet, a terminal or an editor."""
    shown = printable(text)
    if _NUMBER.fullmatch(shown):
        return shown
    # Some programs ignore spaces before a formula, and an apostrophe would disappear.
    return f"'{shown}" if shown.lstrip().startswith((*_FORMULA, "'")) else shown


def _line(cells: list[str]) -> bytes:
    # All cells are in quotes: a program that takes another separator than the comma does not split them.
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow([cell_of(cell) for cell in cells])
    return line.getvalue().encode(errors="surrogatepass")
