"""Answers of EMQX's API, one a line, or one on several lines. An answer has one retained message, or a page of them."""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.retained.formats.file_entry import FileEntry
from holdfast.retained.formats.json_elements import elements
from holdfast.retained.formats.lines import lines

#: The array with the messages of a page.
PAGE = "data"
#: EMQX's values for an unknown publisher.
_UNKNOWN = (None, "", "undefined")


def messages(path: Path, start: int = 0, end: int | None = None) -> Iterator[FileEntry]:
    """Yield the messages in the lines that begin in a range of bytes of a file."""
    for place, line in lines(path, start, end):
        if line is None:
            yield FileEntry(place, problem="this line is too long")
            continue
        yield from entries_of(place, line)


def entries_of(place: str, line: bytes) -> Iterator[FileEntry]:
    """Yield the entries of one answer."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        yield FileEntry(place, problem=f"this is not JSON: {str(error)[:100]}")
        return
    page = said[PAGE] if isinstance(said, dict) and isinstance(said.get(PAGE), list) else [said]
    for number, one in enumerate(page):
        yield _found(place if said is one else f"{place}, message {number + 1}", one)


def page_messages(path: Path) -> Iterator[FileEntry]:
    """Yield the messages of one answer on several lines. Raises :class:`UnreadableFile`."""
    for name, number, one in elements(path):
        if name == PAGE and number:
            yield _found(f"message {number}", one)


def _found(place: str, said: Any) -> FileEntry:
    if not isinstance(said, dict) or "topic" not in said:
        return FileEntry(place, problem="this is not a message: an object with a topic and a payload")
    if not isinstance(said.get("payload"), str):
        return FileEntry(
            place, problem="payload: is missing, as in lists and in messages above 1 MB; ask for /message/TOPIC"
        )
    try:
        payload = b64decode(said["payload"], validate=True)
    except (binascii.Error, ValueError):
        return FileEntry(place, problem="payload: is not base64")
    try:
        stored_at = _time(said.get("publish_at"))
    except (TypeError, ValueError, OverflowError):
        return FileEntry(place, problem="publish_at: is not a time")
    client_id, username = said.get("from_clientid"), said.get("from_username")
    return FileEntry(
        place,
        {
            "topic": said["topic"],
            "payload": payload,
            "qos": said.get("qos"),
            "client_id": None if client_id in _UNKNOWN else client_id,
            "username": None if username in _UNKNOWN else username,
            "stored_at": stored_at,
        },
    )


def _time(text: Any) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1000)
