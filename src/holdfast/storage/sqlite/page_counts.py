"""The extent of an SQLite file: whether it has all the pages it says it has, told without reading them.

SQLite itself finds only a part of what is missing when it opens a file, and moves the log into it when it closes it:
after that, holes pass for pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

HEADER = b"SQLite format 3\0"
_HEADER_LENGTH = 100
_LOG_HEADER_LENGTH = 32
_FRAME_HEADER_LENGTH = 24
_SHORTEST = 512
#: The page at this offset is never used: SQLite puts its locks there.
_LOCKS = 1 << 30


def missing_pages(path: Path) -> int:
    """Return how many pages of the database are neither in its file nor in its write-ahead log.

    The header in the file is that of a commit which has been checkpointed at least in part: all of its pages are in
    the file, or still in the log. Takes as long as it takes to look at the log's frame headers, and that only for a
    file that is short. Raises OSError.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_LENGTH)
        size = file.seek(0, 2)
    if len(header) < _HEADER_LENGTH:
        return 1 if header else 0
    length = page_size(header)
    counted = header[24:28] == header[92:96]  # else an old program has changed it, and not the count
    if not length or not counted:
        return 0  # the former is for SQLite to judge
    pages = int.from_bytes(header[28:32], "big")
    present = size // length
    if present >= pages or path.with_name(path.name + "-journal").exists():
        return 0
    logged = _logged(path.with_name(path.name + "-wal"), length)
    locks = _LOCKS // length + 1
    missing = pages - present - (present < locks <= pages)
    return missing - sum(present < page <= pages for page in logged)


def is_logged(path: Path, number: int) -> bool:
    """Tell whether the write-ahead log at ``path`` has more than so many pages. Raises OSError.

    The file does not become shorter when the log begins anew: frames of an earlier one have another salt.
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
    """Return the length of a page in bytes, from a header of 18 bytes or more; 0 where that makes no sense."""
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
