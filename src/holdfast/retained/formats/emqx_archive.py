"""The archive of ``emqx ctl data export``: the tables of EMQX 5, and its configuration.

How it works. The archive is a ``tar`` in ``gzip``. It is read in one pass, and nothing is unpacked to disk::

    emqx-export-2026-11-21-10-00-00.000/META.hocon
    emqx-export-2026-11-21-10-00-00.000/cluster.hocon
    emqx-export-2026-11-21-10-00-00.000/mnesia/emqx_retainer_message

A table is a backup of Mnesia: a ``disk_log`` of terms (:mod:`holdfast.retained.formats.erlang_terms`). After eight
bytes, each term has its length and four bytes of magic before it; from 65528 bytes on, also the MD5 of its length. The
first term is a header, then come ``{schema, Table, Properties}`` and the records. A record of retained messages is
``{emqx_retainer_message, Words, Message, ExpiresAt}``, with the time of publishing in the message.

No more than one record is in memory. Everything that does not end where it should makes the archive unreadable.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from typing import Any, Protocol

from holdfast.retained.formats.erlang_terms import Atom, BadTerm, Term, term_in
from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile, properties_json

MAGIC = b"\x1f\x8b"
RETAINED = "emqx_retainer_message"
_BLOCK = 512
_PIECE = 1 << 20
#: Offset and length of the fields of a header of tar.
_NAME, _SIZE, _CHECKSUM, _PREFIX = (0, 100), (124, 12), (148, 8), (345, 155)
_KIND = 156
_REGULAR = b"0\0"
_LOG = (b"\x01\x02\x03\x04\x06\x07\x08\x09", b"\x01\x02\x03\x04\x63\x58\x4d\x0b")
_ITEM = struct.Struct(">II")
_OLD_ITEM_MAGIC, _ITEM_MAGIC = 203_500_599, 1_649_888_321
_WITH_MD5 = 65_528
#: MQTT's longest payload has 256 MB.
_LONGEST = (256 << 20) + (1 << 20)
_RECORD = 4
#: id, qos, from, flags, headers, topic, payload and timestamp follow the name; ``extra`` came later.
_MESSAGE = 9
#: The properties that are kept: EMQX's names and ours.
_KEPT = {
    "Payload-Format-Indicator": "payload_format_indicator",
    "Content-Type": "content_type",
    "Response-Topic": "response_topic",
}


class Source(Protocol):
    """Bytes that are read once, from the first to the last."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, fewer at the end only."""


class Member:
    """One file of the archive. It can be read until the next one is taken."""

    def __init__(self, source: Source, name: str, size: int) -> None:
        self._source = source
        #: its path below the folder of the export
        self.name = name
        self.size = size
        self._left = size

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, fewer at the end only. Raises :class:`UnreadableFile` if the archive is cut short."""
        wanted = min(size, self._left)
        found = _read(self._source, wanted)
        if len(found) < wanted:
            raise UnreadableFile(f"{self.name}: the archive ends in the middle of this file")
        self._left -= wanted
        return found

    def skip(self) -> None:
        """Pass what is left of it, and the padding behind it."""
        while self._left:
            self.read(_PIECE)
        _read(self._source, -self.size % _BLOCK)


def members(path: Path) -> Iterator[Member]:
    """Yield the files of an archive. Raises :class:`UnreadableFile`."""
    with gzip.open(path, "rb") as source:
        while True:
            block = _read(source, _BLOCK)
            if not block.strip(b"\0"):
                return
            if len(block) < _BLOCK:
                raise UnreadableFile("the archive ends in the middle of a header")
            member = _member(source, block)
            if block[_KIND : _KIND + 1] in (b"0", b"\0"):
                yield member
            member.skip()


def messages(path: Path) -> Iterator[FileEntry]:
    """Yield the retained messages. Raises :class:`UnreadableFile` for another archive, or for one cut short."""
    is_export = False
    for member in members(path):
        is_export = is_export or member.name in ("META.hocon", "cluster.hocon") or member.name.startswith("mnesia/")
        if member.name == f"mnesia/{RETAINED}":
            for number, record in records(member):
                yield _found(f"{member.name}, record {number}", record)
    if not is_export:
        raise UnreadableFile("this archive is not one of emqx ctl data export: it has no META.hocon and no mnesia/")


def records(member: Member) -> Iterator[tuple[int, Term]]:
    """Yield the records of a table with their numbers, from 1 on; those that are not terms as :class:`BadTerm`.

    Raises :class:`UnreadableFile`.
    """
    if member.read(len(_LOG[0])) not in _LOG:
        raise UnreadableFile(f"{member.name}: this is not a backup of Mnesia: it is no disk_log")
    number = -1
    while head := member.read(_ITEM.size):
        number += 1
        place = f"{member.name}, item {number}"
        if len(head) < _ITEM.size:
            raise UnreadableFile(f"{place}: the table ends here in the middle")
        size, magic = _ITEM.unpack(head)
        if magic not in (_ITEM_MAGIC, _OLD_ITEM_MAGIC) or size > _LONGEST:
            raise UnreadableFile(f"{place}: there is no item of a disk_log here; the table is damaged")
        if magic == _ITEM_MAGIC and size >= _WITH_MD5:
            wanted = md5(head[:4], usedforsecurity=False).digest()
            if member.read(len(wanted)) != wanted:
                raise UnreadableFile(f"{place}: the length of this item is damaged")
        data = member.read(size)
        if len(data) < size:
            raise UnreadableFile(f"{place}: the table ends here in the middle")
        try:
            term = term_in(data)
        except BadTerm as error:
            term = error
        if number == 0:
            if not (isinstance(term, tuple) and term[:2] == (Atom("log_header"), Atom("backup_log"))):
                raise UnreadableFile(f"{member.name}: this is not a backup of Mnesia: its header is missing")
        elif not (isinstance(term, tuple) and term[:1] == (Atom("schema"),)):
            yield number, term


def _member(source: Source, block: bytes) -> Member:
    def text(field: tuple[int, int]) -> bytes:
        start, size = field
        return block[start : start + size].partition(b"\0")[0]

    start, size = _CHECKSUM
    found = sum(block) - sum(block[start : start + size]) + size * ord(" ")
    try:
        wanted = int(text(_CHECKSUM).strip() or b"0", 8)
        length = int(text(_SIZE).strip() or b"0", 8)
    except ValueError:
        wanted = length = -1
    if wanted != found or length < 0:
        raise UnreadableFile("this is not an archive of tar, or it is damaged")
    whole = b"/".join(part for part in (text(_PREFIX), text(_NAME)) if part).decode(errors="replace")
    return Member(source, whole.removeprefix("./").partition("/")[2], length)


def _read(source: Source, size: int) -> bytes:
    try:
        return source.read(size) if size else b""
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UnreadableFile(f"this is not gzip, or it is damaged ({error})") from error


def _found(place: str, record: Term) -> FileEntry:
    if isinstance(record, BadTerm):
        return FileEntry(place, problem=str(record))
    if not (isinstance(record, tuple) and len(record) == _RECORD and record[0] == RETAINED):
        return FileEntry(place, problem="this is not a record of a retained message")
    _, _, message, expires_at = record
    if not (isinstance(message, tuple) and len(message) >= _MESSAGE and message[0] == "message"):
        return FileEntry(place, problem="this record has no message")
    _, _, qos, publisher, _, headers, topic, payload, stored_at = message[:_MESSAGE]
    if not (isinstance(topic, bytes) and isinstance(payload, bytes)):
        return FileEntry(place, problem="topic and payload are not both binaries")
    headers = headers if isinstance(headers, dict) else {}
    try:
        fields = {
            "topic": topic.decode(),
            "payload": payload,
            "qos": qos,
            "client_id": _text(publisher),
            "username": _text(headers.get(Atom("username"))),
            "stored_at": stored_at,
            "expires_at": expires_at or None,
            "properties_json": _properties(headers.get(Atom("properties"))),
        }
    except UnicodeDecodeError as error:
        return FileEntry(place, problem=f"a string of this message is not UTF-8 ({error.reason})")
    except (TypeError, ValueError):
        return FileEntry(place, problem="the properties of this message are not those of MQTT")
    return FileEntry(place, fields)


def _text(value: Term) -> str | None:
    """Return the text of a binary; atoms such as ``undefined`` name no publisher."""
    return value.decode() if isinstance(value, bytes) and value else None


def _properties(given: Term) -> str | None:
    if not isinstance(given, dict):
        return None
    found: dict[str, Any] = {}
    for theirs, ours in _KEPT.items():
        value = given.get(Atom(theirs))
        found[ours] = value.decode() if isinstance(value, bytes) else value
    data = given.get(Atom("Correlation-Data"))
    if isinstance(data, bytes):
        found["correlation_data"] = b64encode(data).decode()
    pairs = given.get(Atom("User-Property"))
    found["user_properties"] = [
        [part.decode() if isinstance(part, bytes) else part for part in pair] if isinstance(pair, tuple) else pair
        for pair in (pairs if isinstance(pairs, list) else [])
    ]
    return properties_json(found)
