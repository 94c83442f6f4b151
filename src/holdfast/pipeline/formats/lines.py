"""Files of lines, which several tasks can read at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

#: A longer line is not the message of any broker: MQTT's longest is 256 MB, in base64.
_LONGEST_LINE = 400 << 20
_PIECE = 1 << 20


def lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[tuple[str, bytes | None]]:
    """Yield the lines that begin in a range of bytes of a file, each with its place; None for one that is too long.

    Empty lines are nothing.
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
