"""Finds topics in the raw pages of a damaged SQLite file, also in pages that SQLite cannot reach any more.

The topics are only starting points for :mod:`holdfast.storage.sqlite.salvage`. SQLite itself reads the rows there,
since only SQLite knows whether they still belong to the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from holdfast.storage.sqlite.page_counts import page_size

#: for the two kinds of pages of a table without rowid: the length of the page header, and of the bytes before a record
_LEAF, _INTERIOR = 0x0A, 0x02
_SHAPES = {_LEAF: (8, 0), _INTERIOR: (12, 4)}
_LOG_HEADER = 32
_FRAME_HEADER = 24


def topics_in_pages(path: Path) -> list[bytes]:
    """Return topics in order: the first topic of each leaf page, and all topics of the other pages; also from the log.

    Long topics may be cut off. Raises OSError.
    """
    found: set[bytes] = set()
    with path.open("rb") as file:
        length = page_size(file.read(18))
        if not length:
            return []
        _collect(file, 0, 0, length, found)
    log = path.with_name(path.name + "-wal")
    if log.exists():
        with log.open("rb") as file:
            _collect(file, _LOG_HEADER, _FRAME_HEADER, length, found)
    return sorted(found)


def _collect(file: BinaryIO, start: int, skipped: int, length: int, found: set[bytes]) -> None:
    file.seek(start)
    while len(page := file.read(skipped + length)[skipped:]) == length:
        found.update(_topics(page))


def _topics(page: bytes) -> set[bytes]:
    shape = _SHAPES.get(page[0])
    if shape is None:
        return set()
    header, before = shape
    cells = 1 if page[0] == _LEAF else int.from_bytes(page[3:5], "big")
    offsets = (int.from_bytes(page[at : at + 2], "big") for at in range(header, header + 2 * cells, 2))
    return {topic for offset in offsets if (topic := _topic(page, offset + before))}


def _topic(page: bytes, position: int) -> bytes:
    """Return the first column of the record in a cell, b"" if it is not a text."""
    _, record = _varint(page, position)
    header_length, types = _varint(page, record)
    kind, _ = _varint(page, types)
    if kind < 13 or kind % 2 == 0:
        return b""
    begin = record + header_length
    return page[begin : begin + (kind - 13) // 2]


def _varint(page: bytes, position: int) -> tuple[int, int]:
    """Return an SQLite varint and the position after it: the highest bits come first, unlike in MQTT."""
    value = 0
    for byte in page[position : position + 9]:
        position += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, position
