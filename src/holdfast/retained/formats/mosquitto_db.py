"""``mosquitto.db``, the persistence file of mosquitto (versions 2 to 6 of the format: mosquitto 0.15 to 2.1).

How it works. After a header follow chunks, each with a type and a length. A chunk of type 2 is a message with an id. A
chunk of type 4 has the id of a retained message::

    header    00 B5 00 "mosquitto db", four bytes, the version
    1         the last id that was used, and the size of an id
    2         message 8: topic "a/b", payload "21.5"
    4         message 8 is retained

In versions 5 and 6, a chunk begins with all its fixed fields, and its strings follow. In versions 2 to 4, fields and
strings alternate. Integers are in network order, except ids and times: these have the order of the machine that wrote
the file. The last id shows this order: it is a small number, so the order that gives the smaller value is the right
one. The file has no time of storing.

The file is read once. Chunks of type 2 come first, so the reader notes only their offsets, and goes back for the
retained ones: most messages in the file may be queued, not retained. The offsets are in a temporary file.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile
from holdfast.retained.store.rows import json_of
from holdfast.wire.datatypes import MalformedPacket, ProtocolError
from holdfast.wire.properties import NO_PROPERTIES, Properties
from holdfast.wire.property_codec import decode_properties

MAGIC = b"\x00\xb5\x00mosquitto db"
_OLDEST, _FIXED_FIRST, _NEWEST = 2, 5, 6
_HEADER = struct.Struct(">II")
#: Type and length, in versions 5 and 6 and before.
_CHUNK, _OLD_CHUNK = struct.Struct(">II"), struct.Struct(">HI")
_CONFIGURATION, _MESSAGE, _RETAINED = 1, 2, 4
_ID_SIZE = 8
#: After id and time: lengths of payload, Client Identifier, user name and topic, with the Packet Identifier before them
#: and the port behind them; QoS and RETAIN.
_FIELDS = struct.Struct(">IHHHHHBB")
_FIXED = 2 * _ID_SIZE + _FIELDS.size
#: The longest chunk: MQTT's longest payload has 256 MB.
_LONGEST = (256 << 20) + (1 << 20)


class _Chunk(NamedTuple):
    kind: int
    place: int
    body: int
    length: int


class BadChunk(ValueError):
    """A chunk is not a message; the text says why."""


def messages(path: Path) -> Iterator[FileEntry]:
    """Yield the retained messages. Raises :class:`UnreadableFile` for another kind of file, or for one cut short."""
    with path.open("rb") as file, closing(MosquittoFile(file, path.stat().st_size)) as found:
        for chunk in found.chunks():
            if chunk.kind == _RETAINED:
                number = found.number_of(chunk)
                yield _retained(found, f"byte {chunk.place}", number)


class MosquittoFile:
    """The chunks of a file, and its messages by their ids. Raises :class:`UnreadableFile`."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self.version = _version_of(file)
        self._chunk = _CHUNK if self.version >= _FIXED_FIRST else _OLD_CHUNK
        self._order = ""
        self._offsets = sqlite3.connect("", isolation_level=None)  # a file that SQLite removes at the end
        self._offsets.execute("CREATE TABLE messages (number INTEGER PRIMARY KEY, body INTEGER, length INTEGER)")
        self._offsets.execute("BEGIN")

    def chunks(self) -> Iterator[_Chunk]:
        """Yield all chunks but the first one and messages; the offsets of the messages before are known then."""
        place = self._file.tell()
        while True:
            self._file.seek(place)
            head = self._file.read(self._chunk.size)
            if not head:
                return
            if len(head) < self._chunk.size:
                raise UnreadableFile(f"byte {place}: the file ends in the middle of a chunk's head")
            kind, length = self._chunk.unpack(head)
            chunk = _Chunk(kind, place, place + len(head), length)
            if length > _LONGEST or chunk.body + length > self._size:
                raise UnreadableFile(f"byte {place}: a chunk of {length} bytes is longer than the rest of the file")
            if kind == _CONFIGURATION:
                self._configure(chunk)
            elif not self._order:
                raise UnreadableFile(f"byte {place}: the chunk with the last id is missing before this one")
            elif kind == _MESSAGE:
                self._note(chunk)
            else:
                yield chunk
            place = chunk.body + length

    def number_of(self, chunk: _Chunk) -> int:
        """Return the id at the beginning of a chunk."""
        if chunk.length < _ID_SIZE:
            raise UnreadableFile(f"byte {chunk.place}: a chunk of {chunk.length} bytes is too short to name a message")
        return self.number(self.read(chunk.body, _ID_SIZE))

    def message(self, number: int) -> tuple[int, Mapping[str, Any]] | None:
        """Return the offset and the fields of a message, None if it is not in the file. Raises :class:`BadChunk`."""
        found = self._offsets.execute("SELECT body, length FROM messages WHERE number = ?", (number,)).fetchone()
        if found is None:
            return None
        body, length = found
        try:
            return body, (self._fields if self.version >= _FIXED_FIRST else self._old_fields)(self.read(body, length))
        except UnicodeDecodeError as error:
            raise BadChunk(f"byte {body}: this message's strings are not UTF-8 ({error.reason})") from error
        except struct.error as error:
            raise BadChunk(f"byte {body}: the parts of this message are longer than the message") from error
        except (MalformedPacket, ProtocolError, ValueError) as error:
            raise BadChunk(f"byte {body}: this message's properties: {error}") from error

    def close(self) -> None:
        """Remove the temporary file."""
        self._offsets.close()

    def read(self, place: int, length: int) -> bytes:
        """Return bytes of the file."""
        self._file.seek(place)
        return self._file.read(length)

    def _configure(self, chunk: _Chunk) -> None:
        """Read the size of ids and their byte order."""
        data = self.read(chunk.body, chunk.length)
        try:
            if self.version >= _FIXED_FIRST:
                last, size = data[:_ID_SIZE], data[_ID_SIZE + 1]
            else:
                last, size = data[2 : 2 + _ID_SIZE], data[1]
        except IndexError:
            raise UnreadableFile(f"byte {chunk.place}: the chunk with the last id is too short") from None
        if size != _ID_SIZE or len(last) < _ID_SIZE:
            raise UnreadableFile(f"byte {chunk.place}: ids have {size} bytes; only those of {_ID_SIZE} can be read")
        self._order = ">" if int.from_bytes(last, "big") < int.from_bytes(last, "little") else "<"

    def _note(self, chunk: _Chunk) -> None:
        if chunk.length < (_FIXED if self.version >= _FIXED_FIRST else _ID_SIZE):
            raise UnreadableFile(f"byte {chunk.place}: a message of {chunk.length} bytes is too short to be one")
        self._offsets.execute(
            "INSERT OR REPLACE INTO messages VALUES (?, ?, ?)", (self.number_of(chunk), chunk.body, chunk.length)
        )

    def number(self, data: bytes) -> int:
        """Return the id or the time that eight bytes are."""
        number: int = struct.unpack(f"{self._order}q", data)[0]
        return number

    def _fields(self, data: bytes) -> Mapping[str, Any]:
        """Return the fields of a message of versions 5 and 6."""
        expires = self.number(data[_ID_SIZE : 2 * _ID_SIZE])
        payload_size, _, client_size, user_size, topic_size, _, qos, _ = _FIELDS.unpack_from(data, 2 * _ID_SIZE)
        ends = [_FIXED]
        for part in (client_size, user_size, topic_size, payload_size):
            ends.append(ends[-1] + part)
        if ends[-1] > len(data):
            raise struct.error
        client, user, topic, payload = (data[start:end] for start, end in pairwise(ends))
        return {
            "topic": topic.decode(),
            "payload": payload,
            "qos": qos,
            "client_id": client.decode() or None,
            "username": user.decode() or None,
            "expires_at": expires * 1000 if expires > 0 else None,
            "properties_json": _properties(data[ends[-1] :]),
        }

    def _old_fields(self, data: bytes) -> Mapping[str, Any]:
        """Return the fields of a message of versions 2 to 4."""
        client, at = _string(data, _ID_SIZE)
        user = ""
        if self.version == _FIXED_FIRST - 1:
            user, at = _string(data, at)
            at += 2  # the port
        topic, at = _string(data, at + 4)  # after two Packet Identifiers
        qos, _, size = struct.unpack_from(">BBI", data, at)
        payload = data[at + 6 : at + 6 + size]
        if len(payload) < size:
            raise struct.error
        return {
            "topic": topic,
            "payload": payload,
            "qos": qos,
            "client_id": client or None,
            "username": user or None,
            "expires_at": None,
            "properties_json": None,
        }


def _string(data: bytes, at: int) -> tuple[str, int]:
    """Return the string at a position, and the position after it."""
    (size,) = struct.unpack_from(">H", data, at)
    end = at + 2 + size
    if end > len(data):
        raise struct.error
    return data[at + 2 : end].decode(), end


def _version_of(file: BinaryIO) -> int:
    head = file.read(len(MAGIC) + _HEADER.size)
    if len(head) < len(MAGIC) + _HEADER.size or not head.startswith(MAGIC):
        raise UnreadableFile("this is not a mosquitto.db")
    version: int = _HEADER.unpack(head[len(MAGIC) :])[1]
    if not _OLDEST <= version <= _NEWEST:
        raise UnreadableFile(
            f"this is version {version} of the format; {_OLDEST} to {_NEWEST} can be read: "
            "let mosquitto 2 save it again"
        )
    return version


def _retained(found: MosquittoFile, place: str, number: int) -> FileEntry:
    try:
        message = found.message(number)
    except BadChunk as error:
        return FileEntry(place, problem=str(error))
    if message is None:
        return FileEntry(place, problem="the message that is retained here is not in the file")
    return FileEntry(place, message[1])


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
