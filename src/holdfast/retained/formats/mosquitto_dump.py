"""The output of ``mosquitto_db_dump --json`` of mosquitto 2.1 for a persistence file.

"base-messages" has the messages, each with an id ("storeid"). "retained-messages" has the ids of the retained ones.
Payloads are in base64; an empty payload is missing. The dump has no time of storing.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile
from holdfast.retained.formats.json_elements import elements
from holdfast.retained.formats.mosquitto_properties import BadProperties, properties_of

MESSAGES, _RETAINED = "base-messages", "retained-messages"


def messages(path: Path) -> Iterator[FileEntry]:
    """Yield the retained messages. Raises :class:`UnreadableFile` for another kind of file, or for one cut short.

    The file is read twice, because the ids of the retained messages come after all messages.
    """
    retained: dict[int, str] = {}
    names = set()
    for name, number, said in elements(path):
        names.add(name)
        if name == _RETAINED and number:
            identifier = said.get("storeid") if isinstance(said, dict) else None
            if isinstance(identifier, int):
                retained[identifier] = f"{_RETAINED} {number}"
            else:
                yield FileEntry(f"{_RETAINED} {number}", problem="storeid: is missing, or not a whole number")
    for name in (MESSAGES, _RETAINED):
        if name not in names:
            raise UnreadableFile(f'this is not what mosquitto_db_dump --json prints: there is no list "{name}"')
    for name, number, said in elements(path):
        if name == MESSAGES and isinstance(said, dict) and retained.pop(_id(said), None) is not None:
            yield _found(f"{MESSAGES} {number}", said)
    for place in retained.values():
        yield FileEntry(place, problem="the message that is retained here is not in the file")


def _id(said: Mapping[str, Any]) -> int:
    identifier = said.get("storeid")
    return identifier if isinstance(identifier, int) else -1


def _found(place: str, said: Mapping[str, Any]) -> FileEntry:
    expires = said.get("expiry-time", 0)
    if not isinstance(expires, int):
        return FileEntry(place, problem="expiry-time: is not a whole number of seconds")
    try:
        payload = b64decode(said.get("payload", ""), validate=True)
        properties = properties_of(said.get("properties"))
    except BadProperties as error:
        return FileEntry(place, problem=str(error))
    except (binascii.Error, TypeError, ValueError):
        return FileEntry(place, problem="payload: is not base64")
    return FileEntry(
        place,
        {
            "topic": said.get("topic"),
            "payload": payload,
            "qos": said.get("qos"),
            "client_id": said.get("clientid") or None,
            "username": said.get("username") or None,
            "expires_at": expires * 1000 if expires > 0 else None,
            "properties_json": properties,
        },
    )
