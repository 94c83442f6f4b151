"""The output of Spark's processes: kept away from the console, except for the progress of jobs.

Warnings, logs and stack traces are for people who examine Spark itself. The last lines are kept, because they may
explain a failed start. A log4j2.properties of the user still configures Spark's log files.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

_KEPT_LINES = 200
_READ_SIZE = 1 << 16
#: Spark's progress bars of the running stages, or the blanks with which it removes them.
_PROGRESS = re.compile(rb"\r(?:(?:\[Stage \d+:[=> ]*\(\d+ \+ \d+\) / \d+\] *)+| *)")
_CLEAR_LINE = b"\r\x1b[K"


class SparkOutput:
    """The output of the processes that start inside :meth:`captured`.

    If standard error is a terminal, the progress of jobs is shown there.
    """

    def __init__(self) -> None:
        # A copy of the descriptor: standard error itself is redirected while Spark starts.
        self._terminal = os.dup(2) if os.isatty(2) else None
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)
        self._progress_shown = False

    @property
    def lines(self) -> list[str]:
        """The last lines, the oldest first."""
        return list(self._kept)

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Redirect standard output and standard error to a pipe. Processes that start now inherit it.

        This process must not write anything meanwhile. A thread reads the pipe until the last process ends.
        """
        self._show(_CLEAR_LINE + b"starting Spark")
        sys.stdout.flush()
        sys.stderr.flush()
        reading_end, writing_end = os.pipe()
        originals = [os.dup(1), os.dup(2)]
        for number in (1, 2):
            os.dup2(writing_end, number)
        os.close(writing_end)
        Thread(target=self._read, args=(reading_end,), name="spark output", daemon=True).start()
        try:
            yield
        finally:
            for number, original in zip((1, 2), originals, strict=True):
                os.dup2(original, number)
                os.close(original)

    def clear_progress(self) -> None:
        """Remove the progress from the terminal, so that something else can be written there."""
        if self._progress_shown:
            self._show(_CLEAR_LINE)
            self._progress_shown = False

    def _read(self, reading_end: int) -> None:
        rest = b""
        with open(reading_end, "rb", buffering=0) as pipe:
            while piece := pipe.read(_READ_SIZE):
                for bar in progress_in(piece):
                    self._show(bar)
                *lines, rest = (rest + piece)[-_READ_SIZE:].split(b"\n")
                self._kept.extend(line.decode(errors="replace") for line in lines if not line.startswith(b"\r"))

    def _show(self, text: bytes) -> None:
        if self._terminal is not None:
            os.write(self._terminal, text)
            self._progress_shown = bool(text.strip())


def progress_in(piece: bytes) -> list[bytes]:
    """Return the progress bars in a piece of Spark's output."""
    return _PROGRESS.findall(piece)
