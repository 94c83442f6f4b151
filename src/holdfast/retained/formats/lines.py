"""Lines of a file, in ranges of bytes, so that several tasks can read one file at once.

A line belongs to the range in which it begins. A range that begins within a line skips the rest of this line: it starts
one byte earlier and reads to the next end of a line, so a line that begins exactly at its start is not lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

#: The longest line: MQTT's longest message has 256 MB, and about 350 MB in base64.
_LONGEST_LINE = 400 << 20
_PIECE = 1 << 20


def lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[tuple[str, bytes | None]]:
    """Yield the lines that begin in a range of bytes of a file, each with its place; None for a line that is too long.

    Empty lines are skipped.
    """
    with path.open("rb") as file:
        if start:
            file.seek(start - 1)
            _pass_line(file)
        while end is None or file.tell() < end:
            place = f"byte {file.tell()}"
            line = file.readline(_LONGEST_LINE)
            if not line:
                return
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                _pass_line(file)
                yield place, None
            elif line.strip():
                yield place, line


def _pass_line(file: BinaryIO) -> None:
    while (piece := file.readline(_PIECE)) and not piece.endswith(b"\n"):
        pass
