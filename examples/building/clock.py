"""The broker's time of day while a day is played: the devices set it, in a file that both processes map into memory.

So the broker stores each message, Will and expiry at its time of the day, and its history has the times of that day.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct

#: The environment variable with the path of the file, for the broker.
VARIABLE = "HOLDFAST_DAY_CLOCK"
_MILLISECONDS = Struct("=q")


class DayClock:
    """A time in milliseconds since the epoch, in a file. One process sets it, others read it."""

    def __init__(self, file: Path, at: int | None = None) -> None:
        """Open the file. With ``at`` the file is made new, and has this time."""
        if at is not None:
            file.write_bytes(_MILLISECONDS.pack(at))
        with file.open("r+b") as opened:
            self._mapped = mmap.mmap(opened.fileno(), _MILLISECONDS.size)

    def now(self) -> int:
        """Return the time in milliseconds since the epoch."""
        at: int = _MILLISECONDS.unpack_from(self._mapped)[0]
        return at

    def set(self, at: int) -> None:
        """Set the time, in milliseconds since the epoch. It never goes back."""
        _MILLISECONDS.pack_into(self._mapped, 0, max(at, self.now()))
