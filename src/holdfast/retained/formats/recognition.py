"""Which program wrote a file of retained messages: its first bytes tell.

=====================================  ==================================================
first bytes                            file
=====================================  ==================================================
``00 B5 00 "mosquitto db"``            ``mosquitto.db``
``"SQLite format 3"``                  the database of mosquitto's persist-sqlite plugin
``1F 8B``                              the archive of ``emqx ctl data export``
``{`` alone in its line                one document: ``mosquitto_db_dump --json``, or an
                                       answer of EMQX's API that was laid out for people
text                                   lines of JSON
=====================================  ==================================================

Lines are told one by one, so a file may have lines of several programs: ``payloadlen`` is in those of
``mosquitto_sub -F %j`` only, and ``msgid``, ``publish_at`` and ``data`` in EMQX's answers only. All other lines are
those of an export.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from holdfast.retained.formats import emqx, emqx_archive, mosquitto_db, mosquitto_dump, mosquitto_sqlite, ndjson
from holdfast.retained.formats.file_entry import FileEntry, UnreadableFile

#: So many bytes of a file are enough to recognise it.
ENOUGH = 4096
_OF_OTHERS = (b'"payloadlen"', b'"msgid"', b'"publish_at"', b'"data"')
_OF_EMQX = ("msgid", "publish_at", emqx.PAGE)


class FileKind(Enum):
    """The kinds of files; the values name them to people."""

    LINES = "lines of JSON"
    MOSQUITTO_DB = "a mosquitto.db"
    MOSQUITTO_SQLITE = "a database of mosquitto's persist-sqlite plugin"
    MOSQUITTO_DUMP = "a dump of mosquitto_db_dump --json"
    EMQX_ANSWER = "an answer of EMQX's API"
    EMQX_ARCHIVE = "an archive of emqx ctl data export"


_READERS = {
    FileKind.MOSQUITTO_DB: mosquitto_db.messages,
    FileKind.MOSQUITTO_SQLITE: mosquitto_sqlite.messages,
    FileKind.MOSQUITTO_DUMP: mosquitto_dump.messages,
    FileKind.EMQX_ANSWER: emqx.page_messages,
    FileKind.EMQX_ARCHIVE: emqx_archive.messages,
}
_MAGIC = {
    mosquitto_db.MAGIC: FileKind.MOSQUITTO_DB,
    mosquitto_sqlite.MAGIC: FileKind.MOSQUITTO_SQLITE,
    emqx_archive.MAGIC: FileKind.EMQX_ARCHIVE,
}


def kind_of(head: bytes) -> FileKind:
    """Return the kind of a file that begins with these bytes. Raises :class:`UnreadableFile` for an unknown one."""
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if b"\0" in head:
        raise UnreadableFile(
            "this is no file of retained messages: lines of holdfast retainer export, of mosquitto_sub -F %j or of "
            "EMQX's API, a mosquitto.db, a database of persist-sqlite, or an archive of emqx ctl data export"
        )
    text = head.lstrip()
    if not text.startswith(b"{") or text.partition(b"\n")[0].strip() != b"{":
        return FileKind.LINES
    # the first name of the document
    begins = text[1:].lstrip().startswith(f'"{mosquitto_dump.MESSAGES}"'.encode())
    return FileKind.MOSQUITTO_DUMP if begins else FileKind.EMQX_ANSWER


def messages(path: Path, kind: FileKind) -> Iterator[FileEntry]:
    """Yield the retained messages of a file that has no lines. Raises :class:`UnreadableFile`."""
    return _READERS[kind](path)


def foreign_entries(place: str, line: bytes) -> Iterator[FileEntry] | None:
    """Return the entries of a line that another program wrote, None for a line of an export."""
    if not any(name in line for name in _OF_OTHERS):  # spares the lines of an export the decoding
        return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None  # the reader of an export says why
    if not isinstance(said, dict):
        return None
    if "payloadlen" in said:
        return iter((ndjson.entry_of(place, line),))
    if any(name in said for name in _OF_EMQX):
        return emqx.entries_of(place, line)
    return None
