"""What Spark's processes say on the console: kept away from it, but for the progress of a job.

Their warnings, logs and stack traces are for those who look into Spark itself. The last of it is kept, for it may tell
why there was no session. What a log4j2.properties of the user's own sends to files goes there as ever.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

#: Lines that are kept, and bytes taken at once.
_LINES, _PIECE = 200, 1 << 16
#: A bar of each stage that runs, or the blanks that wipe it.
_PROGRESS = re.compile(rb"\r(?:(?:\[Stage \d+:[=> ]*\(\d+ \+ \d+\) / \d+\] *)+| *)")
_WIPED = b"\r\x1b[K"


class Chatter:
    """What the processes started within :meth:`diverted` write to standard output and standard error.

    Progress is shown where standard error is a terminal.
    """

    def __init__(self) -> None:
        # Its own name for the terminal: standard error is diverted for a while.
        self._terminal = os.dup(2) if os.isatty(2) else None
        self._kept: deque[str] = deque(maxlen=_LINES)
        self._drawn = False

    @contextmanager
    def diverted(self) -> Iterator[None]:
        """Start processes that write here; this process should not write anything meanwhile."""
        sys.stdout.flush()
        sys.stderr.flush()
        reading, writing = os.pipe()
        standard = [os.dup(1), os.dup(2)]
        for number in (1, 2):
            os.dup2(writing, number)
        os.close(writing)
        Thread(target=self._take, args=(reading,), name="chatter", daemon=True).start()
        try:
            yield
        finally:
            for number, kept in zip((1, 2), standard, strict=True):
                os.dup2(kept, number)
                os.close(kept)

    @property
    def lines(self) -> list[str]:
        """The last lines, the oldest first."""
        return list(self._kept)

    def draw(self, what: str) -> None:
        """Show on the terminal what is going on, until something else is."""
        if self._terminal is not None:
            os.write(self._terminal, _WIPED + what.encode())
            self._drawn = True

    def wipe(self) -> None:
        """Remove the progress from the terminal: something else is to be written there."""
        if self._drawn:
            self.draw("")
            self._drawn = False

    def _take(self, reading: int) -> None:
        rest = b""
        with open(reading, "rb", buffering=0) as pipe:
            while piece := pipe.read(_PIECE):
                self._show(piece)
                *lines, rest = (rest + piece)[-_PIECE:].split(b"\n")
                self._kept.extend(line.decode(errors="replace") for line in lines if not line.startswith(b"\r"))

    def _show(self, piece: bytes) -> None:
        if self._terminal is None:
            return
        for found in progress_in(piece):
            self._drawn = bool(found.strip())
            os.write(self._terminal, found)


def progress_in(piece: bytes) -> list[bytes]:
    """Return what shows the progress of a job among what is written."""
    return _PROGRESS.findall(piece)
