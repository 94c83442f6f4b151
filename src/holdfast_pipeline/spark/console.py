"""The output of Spark's processes: kept away from the console.

Warnings, logs and stack traces are for people who examine Spark itself. The last lines are kept, because they may
explain a failed start. A log4j2.properties of the user still configures Spark's log files.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

_KEPT_LINES = 200
_READ_SIZE = 1 << 16


class SparkOutput:
    """The output of the processes that start inside :meth:`captured`."""

    def __init__(self) -> None:
        self._kept: deque[str] = deque(maxlen=_KEPT_LINES)

    @property
    def lines(self) -> list[str]:
        """The last lines, the oldest first."""
        return list(self._kept)

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Redirect standard output and standard error to a pipe. Processes that start now inherit it.

        This process must not write anything meanwhile. A thread reads the pipe until the last process ends.
        """
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

    def _read(self, reading_end: int) -> None:
        rest = b""
        with open(reading_end, "rb", buffering=0) as pipe:
            while piece := pipe.read(_READ_SIZE):
                *lines, rest = (rest + piece)[-_READ_SIZE:].split(b"\n")
                self._kept.extend(line.decode(errors="replace") for line in lines if not line.startswith(b"\r"))
