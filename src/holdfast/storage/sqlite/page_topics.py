"""Signposts: topics that stand in the pages of a damaged SQLite file, whether a way leads there or not.

They are but places to look at: what is there is read by SQLite, which knows what belongs to the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from holdfast.storage.sqlite.page_counts import page_size

#: pages of tables without rowid, as is ``retained``: the length of their header, and of what comes before a cell
_LEAF, _INTERIOR = 0x0A, 0x02
_SHAPES = {_LEAF: (8, 0), _INTERIOR: (12, 4)}
_LOG_HEADER = 32
_FRAME_HEADER = 24


def topics_in_pages(path: Path) -> list[bytes]:
    """Return topics in order: the first of each page that is a leaf, all of the others; also those in the log.

    Long ones may be cut off. Raises OSError.
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
    places = (int.from_bytes(page[place : place + 2], "big") for place in range(header, header + 2 * cells, 2))
    return {topic for place in places if (topic := _topic(page, place + before))}


def _topic(page: bytes, place: int) -> bytes:
    """Return the first column of the record in a cell, nothing where that is no text."""
    _, record = _varint(page, place)
    header_length, types = _varint(page, record)
    kind, _ = _varint(page, types)
    if kind < 13 or kind % 2 == 0:
        return b""
    begin = record + header_length
    return page[begin : begin + (kind - 13) // 2]


def _varint(page: bytes, place: int) -> tuple[int, int]:
    """Return an integer of variable length, and the place behind it."""
    value = 0
    for byte in page[place : place + 9]:
        place += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, place
