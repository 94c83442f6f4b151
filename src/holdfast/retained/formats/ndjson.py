"""JSON lines of ``holdfast retainer export`` and of ``mosquitto_sub --retained-only -F %j``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.retained.fields import BadRecord
from holdfast.retained.formats.file_entry import FileEntry, properties_json
from holdfast.retained.formats.lines import lines
from holdfast.retained.records import message_of
from holdfast.retained.store.rows import json_of

#: Used for a missing time: the sink sets the time of the import.
_NO_TIME = -1


def messages(path: Path, start: int = 0, end: int | None = None) -> Iterator[FileEntry]:
    """Yield an entry for each line that begins in a range of bytes of a file."""
    for place, line in lines(path, start, end):
        yield FileEntry(place, problem="this line is too long") if line is None else entry_of(place, line)


def entry_of(place: str, line: bytes) -> FileEntry:
    """Return the entry of a line."""
    try:
        said = json.loads(line)
        if isinstance(said, dict) and "payloadlen" in said:
            return FileEntry(place, _of_mosquitto(said))
        message = message_of(line, _NO_TIME)
    except BadRecord as error:
        topic = said.get("topic") if isinstance(said, dict) else None
        return FileEntry(place, {"topic": topic} if isinstance(topic, str) else None, str(error))
    except (ValueError, RecursionError) as error:
        return FileEntry(place, problem=f"this is not JSON: {str(error)[:100]}")
    return FileEntry(
        place,
        {
            "topic": message.topic,
            "payload": message.payload,
            "qos": message.qos,
            "client_id": message.client_id,
            "username": message.username,
            "stored_at": None if message.stored_at == _NO_TIME else message.stored_at,
            "expires_at": message.expires_at,
            "properties_json": json_of(message.properties),
            "revision": message.revision,
        },
    )


def _of_mosquitto(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message in a line of mosquitto_sub, received at ``tst``. Raises :class:`BadRecord`."""
    payload = said.get("payload")
    encoded = payload.encode(errors="surrogatepass") if isinstance(payload, str) else b""
    if len(encoded) != said["payloadlen"]:
        raise BadRecord(
            f"payload: has {len(encoded)} bytes, but payloadlen is {said['payloadlen']!r}: it is not text; "
            "import binary payloads from mosquitto.db"
        )
    properties = said.get("properties") or {}
    if not isinstance(properties, dict):
        raise BadRecord("properties: is not a JSON object")
    stored_at = _time(said.get("tst"))
    expiry = properties.get("message-expiry-interval")
    if expiry is not None and (not isinstance(expiry, int) or stored_at is None):
        raise BadRecord("properties.message-expiry-interval: is not a whole number of seconds since tst")
    return {
        "topic": said.get("topic"),
        "payload": encoded,
        "qos": said.get("qos"),
        "stored_at": stored_at,
        "expires_at": None if expiry is None or stored_at is None else stored_at + 1000 * expiry,
        "properties_json": _properties(properties),
    }


def _time(text: Any) -> int | None:
    if text is None:
        return None
    try:  # mosquitto writes both Z and the offset: 2026-11-21T14:42:45.936Z+0100
        moment = datetime.fromisoformat(text.replace("Z+", "+").replace("Z-", "-"))
        return round(moment.timestamp() * 1000)
    except (AttributeError, ValueError, OverflowError):
        raise BadRecord("tst: is not a time") from None


def _properties(given: Mapping[str, Any]) -> str | None:
    users = given.get("user-properties") or []
    pairs = []
    for each in users if isinstance(users, list) else [users]:
        if not isinstance(each, dict):
            raise BadRecord("properties.user-properties: is not a list of objects")
        pairs += [[name, value] for name, value in each.items()]
    known = {
        "payload_format_indicator": given.get("payload-format-indicator"),
        "content_type": given.get("content-type"),
        "response_topic": given.get("response-topic"),
        "user_properties": pairs,
    }
    if given.get("correlation-data") is not None:
        raise BadRecord("properties.correlation-data: may be binary, and these lines do not show that")
    return properties_json(known)
