"""Counts the pages of an SQLite file and of its log, without reading the pages.

SQLite itself does not check on opening that all pages are present. On closing it moves the log into the file, after
which the missing pages are holes that look like pages. So the broker counts before SQLite opens the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

HEADER = b"SQLite format 3\0"
_HEADER_LENGTH = 100
_LOG_HEADER_LENGTH = 32
_FRAME_HEADER_LENGTH = 24
_SHORTEST = 512
#: SQLite never uses the page at this offset, because it puts its locks there.
_LOCKS = 1 << 30


def missing_pages(path: Path) -> int:
    """Return the number of pages of the database that are neither in its file nor in its write-ahead log.

    The header in the file comes from a commit that was moved from the log at least in part. So all of its pages are in
    the file or still in the log. Only for a file that is too short, the headers of all frames of the log are read.
    Raises OSError.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_LENGTH)
        size = file.seek(0, 2)
    if len(header) < _HEADER_LENGTH:
        return 1 if header else 0
    length = page_size(header)
    # Otherwise an old version of SQLite has changed the file, but not the count.
    counted = header[24:28] == header[92:96]
    if not length or not counted:
        return 0  # SQLite itself will find a bad page size
    pages = int.from_bytes(header[28:32], "big")
    present = size // length
    if present >= pages or path.with_name(path.name + "-journal").exists():
        return 0
    logged = _logged(path.with_name(path.name + "-wal"), length)
    locks = _LOCKS // length + 1
    missing = pages - present - (present < locks <= pages)
    return missing - sum(present < page <= pages for page in logged)


def is_logged(path: Path, number: int) -> bool:
    """Tell whether the write-ahead log at ``path`` has more than ``number`` pages. Raises OSError.

    The file does not become shorter when the log begins anew, but the frames of the earlier log have another salt.
    """
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return False
    with file:
        header = file.read(_LOG_HEADER_LENGTH)
        length = int.from_bytes(header[8:12], "big")
        file.seek(_LOG_HEADER_LENGTH + number * (_FRAME_HEADER_LENGTH + length))
        salt = file.read(_FRAME_HEADER_LENGTH)[8:16]
    return bool(salt) and salt == header[16:24]


def page_size(header: bytes) -> int:
    """Return the length of a page in bytes, from a header of 18 bytes or more; 0 if the header is not valid."""
    size = int.from_bytes(header[16:18], "big")
    return 65_536 if size == 1 else size if size >= _SHORTEST else 0


def _logged(path: Path, length: int) -> set[int]:
    """Return the numbers of the pages in a write-ahead log."""
    found: set[int] = set()
    if path.exists():
        with path.open("rb") as log:
            salt = log.read(_LOG_HEADER_LENGTH)[16:24]
            while (frame := _frame(log, length)) is not None and frame[8:16] == salt:
                found.add(int.from_bytes(frame[:4], "big"))
    return found


def _frame(log: BinaryIO, length: int) -> bytes | None:
    header = log.read(_FRAME_HEADER_LENGTH)
    if len(header) < _FRAME_HEADER_LENGTH:
        return None
    log.seek(length, 1)
    return header
