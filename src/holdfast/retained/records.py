"""Retained messages as JSON objects: the lines of an export, and the shapes of the API's answers and requests."""

from __future__ import annotations

import csv
import io
import json
import re
from base64 import b64encode
from typing import Any

from attrs import frozen

from holdfast.core.messages import ApplicationMessage, RetainedMessage
from holdfast.core.terminal import printable, safe_json
from holdfast.core.units import LATEST, date_of
from holdfast.retained.fields import check_payload, checked_properties, fields_in, fields_of
from holdfast.retained.store.rows import json_of
from holdfast.retained.store.values import ListedMessage
from holdfast.wire.properties import NO_PROPERTIES, Properties

#: The API shows payloads up to this size with a message, as EMQX does.
LARGEST_SHOWN = 1 << 20
_MOST_SECONDS = 0xFFFFFFFF


def record_of(message: RetainedMessage) -> dict[str, Any]:
    """Return a whole message, so that :func:`message_of` can read it again."""
    return {
        "topic": message.topic,
        "payload": b64encode(message.payload).decode(),
        "qos": message.qos,
        "properties": properties_of(message.properties),
        "client_id": message.client_id,
        "username": message.username,
        "stored_at": message.stored_at,
        "expires_at": message.expires_at,
        "revision": str(message.revision),
    }


def line_of(message: RetainedMessage) -> bytes:
    """Return the record as a line."""
    return safe_json(record_of(message), (",", ":")).encode() + b"\n"


def summary_of(listed: ListedMessage) -> dict[str, Any]:
    """Return the fields that EMQX shows of a message, and its size, expiry, properties and revision."""
    message = listed.message
    return {
        "msgid": f"{message.revision:016X}",
        "topic": message.topic,
        "qos": message.qos,
        "publish_at": date_of(message.stored_at),
        "from_clientid": message.client_id,
        "from_username": message.username,
        "size": listed.size,
        "expiry_at": None if message.expires_at is None else date_of(message.expires_at),
        "properties": properties_of(message.properties),
        "revision": str(message.revision),
    }


def detail_of(listed: ListedMessage) -> dict[str, Any]:
    """Return the summary and, unless it is too large, the payload."""
    if listed.size > LARGEST_SHOWN:
        return summary_of(listed)
    return {**summary_of(listed), "payload": b64encode(listed.message.payload).decode()}


def message_of(line: bytes, now: int, latest: int = LATEST) -> RetainedMessage:
    """Return the message in a line of an export; only topic and payload are required.

    A line without ``stored_at`` gets ``now``; ``latest`` is the highest ``stored_at`` allowed. Both are in
    milliseconds since the epoch. Raises :class:`BadRecord`.
    """
    fields = fields_in(line)
    message = RetainedMessage(
        fields.topic(),
        fields.base64("payload", required=True),
        fields.qos(),
        checked_properties(fields.table("properties")),
        fields.text("client_id"),
        fields.text("username"),
        now if (stored_at := fields.stored_at(latest)) is None else stored_at,
        fields.expires_at(),
        fields.revision(),
    )
    fields.finish()
    check_payload(message.payload)
    return message


@frozen
class RetainRequest:
    """A request to retain a message. A ``quiet`` one is not sent to present subscribers."""

    message: ApplicationMessage
    quiet: bool


def request_of(found: object, now: int) -> RetainRequest:
    """Return the request in a JSON object. Its shape is that of EMQX's requests to publish.

    Raises :class:`BadRecord`.
    """
    fields = fields_of(found)
    topic = fields.topic()
    encoding = fields.text("payload_encoding") or "plain"
    if encoding == "base64":
        payload = fields.base64("payload", required=True)
    elif encoding == "plain":
        payload = str(fields.characters("payload", required=True)).encode()
    else:
        raise fields.bad("payload_encoding", "is plain or base64")
    qos = fields.qos()
    quiet = fields.flag("quiet")
    table = fields.table("properties")
    expiry = table.whole("message_expiry_interval", 0, _MOST_SECONDS)
    properties = checked_properties(table)
    fields.finish()
    check_payload(payload)
    expires_at = None if expiry is None else now + 1000 * expiry
    message = ApplicationMessage(topic, payload, qos, True, properties=properties, expires_at=expires_at)
    return RetainRequest(message, quiet)


def properties_of(properties: Properties) -> dict[str, Any]:
    """Return properties as a JSON object."""
    shown: dict[str, Any] = {} if properties is NO_PROPERTIES else json.loads(json_of(properties))
    return shown


def properties_in(text: str) -> Properties:
    """Return the properties in a JSON object, as :func:`properties_of` makes it. Raises :class:`BadRecord`."""
    return checked_properties(fields_in(text.encode(errors="surrogatepass"), "properties."))


# Retained messages as lines of CSV (RFC 4180) that are safe to open in a spreadsheet.
#
# Clients choose topics, payloads and names. A cell that a spreadsheet would read as a formula gets an apostrophe before
# it, which spreadsheets take as "this is text"; numbers stay as they are. Control characters and invisible ones are
# written as escapes, so each message is one line::
#
#     =HYPERLINK("http://x")     '=HYPERLINK("http://x")
#     -12.5                      -12.5
#     a line\nanother            a line\nanother (a backslash and an n)
#
# A payload that is not UTF-8, or too long for a cell, is written in base64, as the column ``payload_encoding`` says.
# CSV is for people and spreadsheets: only lines of JSON can be imported again.


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


def csv_line_of(message: RetainedMessage) -> bytes:
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
