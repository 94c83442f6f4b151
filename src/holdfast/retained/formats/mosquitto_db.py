"""``mosquitto.db``, the persistence file of mosquitto 1.6 and 2.x (versions 5 and 6 of the format).

After a header follow chunks, each with a type and a length. A chunk of type 2 is a message with an id. A chunk of
type 4 has the id of a retained message. Integers are in network order, except ids and times: these have the order of
the machine that wrote the file, and only little-endian files can be read. The file has no time of storing.

The file is read once. Chunks of type 2 come first, so the reader notes only their offsets, and goes back for the
retained ones: most messages in the file may be queued, not retained.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile
from holdfast.retained.store.rows import json_of
from holdfast.wire.datatypes import MalformedPacket, ProtocolError
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import decode_properties

_MAGIC = b"\x00\xb5\x00mosquitto db"
_VERSIONS = (5, 6)
_HEADER = struct.Struct(">II")
_CHUNK = struct.Struct(">II")
_MESSAGE, _RETAINED = 2, 4
#: Id and time; lengths of payload, Client Identifier, user name and topic, with the Packet Identifier before them and
#: the port behind them; QoS and RETAIN.
_NATIVE = struct.Struct("<qq")
_FIELDS = struct.Struct(">IHHHHHBB")
_ID = struct.Struct("<q")
_FIXED = _NATIVE.size + _FIELDS.size
#: The longest chunk: MQTT's longest payload has 256 MB.
_LONGEST = (256 << 20) + (1 << 20)


def messages(path: Path) -> Iterator[FileEntry]:
    """Yield the retained messages. Raises :class:`UnreadableFile` for another kind of file, or for one cut short."""
    with path.open("rb") as file:
        _check_version(file)
        size = path.stat().st_size
        offsets: dict[int, tuple[int, int]] = {}
        while head := file.read(_CHUNK.size):
            place = file.tell() - len(head)
            if len(head) < _CHUNK.size:
                raise UnreadableFile(f"byte {place}: the file ends in the middle of a chunk's head")
            kind, length = _CHUNK.unpack(head)
            body = file.tell()
            if length > _LONGEST or body + length > size:
                raise UnreadableFile(f"byte {place}: a chunk of {length} bytes is longer than the rest of the file")
            if kind == _MESSAGE:
                if length < _FIXED:
                    raise UnreadableFile(f"byte {place}: a message of {length} bytes is too short to be one")
                (number,) = _ID.unpack(file.read(_ID.size))
                offsets[number] = body, length
            elif kind == _RETAINED:
                if length < _ID.size:
                    raise UnreadableFile(f"byte {place}: a chunk of {length} bytes is too short to name a message")
                (number,) = _ID.unpack(file.read(_ID.size))
                yield _retained(file, f"byte {place}", offsets.get(number))
            file.seek(body + length)


def _check_version(file: BinaryIO) -> None:
    head = file.read(len(_MAGIC) + _HEADER.size)
    if len(head) < len(_MAGIC) + _HEADER.size or not head.startswith(_MAGIC):
        raise UnreadableFile("this is not a mosquitto.db")
    version: int = _HEADER.unpack(head[len(_MAGIC) :])[1]
    if version not in _VERSIONS:
        raise UnreadableFile(
            f"this is version {version} of the format; {' and '.join(map(str, _VERSIONS))} can be read: "
            "let a newer mosquitto (1.6 or later) save it again"
        )


def _retained(file: BinaryIO, place: str, message: tuple[int, int] | None) -> FileEntry:
    if message is None:
        return FileEntry(place, problem="the message that is retained here is not in the file")
    offset, length = message
    file.seek(offset)
    data = file.read(length)
    _, expires = _NATIVE.unpack_from(data)
    payload_size, _, client_size, user_size, topic_size, _, qos, _ = _FIELDS.unpack_from(data, _NATIVE.size)
    ends = [_FIXED]
    for part in (client_size, user_size, topic_size, payload_size):
        ends.append(ends[-1] + part)
    if ends[-1] > len(data):
        return FileEntry(place, problem=f"byte {offset}: the parts of this message are longer than the message")
    client, user, topic, payload = (data[start:end] for start, end in pairwise(ends))
    try:
        given = {
            "topic": topic.decode(),
            "payload": payload,
            "qos": qos,
            "client_id": client.decode() or None,
            "username": user.decode() or None,
            "expires_at": expires * 1000 if expires > 0 else None,
            "properties_json": _properties(data[ends[-1] :]),
        }
    except UnicodeDecodeError as error:
        return FileEntry(place, problem=f"byte {offset}: this message's strings are not UTF-8 ({error.reason})")
    except (MalformedPacket, ProtocolError, ValueError) as error:
        return FileEntry(place, problem=f"byte {offset}: this message's properties: {error}")
    return FileEntry(place, given)


def _properties(data: bytes) -> str | None:
    if not data:
        return None
    properties = decode_properties(data)
    kept = Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=properties.user_properties,
    )
    return None if kept == NO_PROPERTIES else json_of(kept)
