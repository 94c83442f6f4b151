"""Logging for modules that Spark's workers import too, and the two limits on lines.

A :class:`LogThrottle` limits lines on a few subjects, such as "the disk is full": one line for each in some seconds. A
:class:`LineLimit` limits an amount: the lines of one kind in a window, whoever causes them. Both count what they leave
out.

Twisted's logger is imported with the first message. Workers open databases for reading, and only a broker's process
logs anything about them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class LazyLog:
    """Writes to Twisted's log, under a namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def critical(self, template: str, /, **values: object) -> None:
        """Log a failure after which the broker cannot work normally."""
        self._write("critical", template, values)

    def error(self, template: str, /, **values: object) -> None:
        """Log a failure."""
        self._write("error", template, values)

    def warn(self, template: str, /, **values: object) -> None:
        """Log a warning."""
        self._write("warn", template, values)

    def _write(self, level: str, template: str, values: dict[str, object]) -> None:
        from twisted.logger import Logger, LogLevel

        Logger(namespace=self._namespace, source=self).emit(LogLevel.lookupByName(level), template, **values)


class ErrorLog(Protocol):
    """A logger."""

    @property
    def error(self) -> Callable[..., None]:
        """Logs a failure."""


class LogThrottle:
    """Logs at most one line for each subject in ``interval`` seconds, and counts the lines that it leaves out.

    The lines are errors, unless ``write`` is the logger's method for another level.
    """

    def __init__(
        self,
        log: ErrorLog,
        seconds: Callable[[], float],
        interval: float = 10.0,
        write: Callable[..., None] | None = None,
    ) -> None:
        self._write = write or log.error
        self._seconds = seconds
        self._interval = interval
        self._quiet_until: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def log(self, subject: str, message: str) -> None:
        """Log the message, unless a line on this subject was logged within the interval."""
        now = self._seconds()
        if now < self._quiet_until.get(subject, now):
            self._left_out[subject] = self._left_out.get(subject, 0) + 1
            return
        self._quiet_until[subject] = now + self._interval
        left_out = self._left_out.pop(subject, 0)
        if left_out:
            self._write("{message} ({left_out} more like it before)", message=message, left_out=left_out)
        else:
            self._write("{message}", message=message)


class LineLimit:
    """Allows ``most`` lines in a window of so many seconds, and ``most_of_group`` of each group, such as an address.

    A window begins with its first line. Only groups with a written line are remembered, so memory is bounded.
    """

    def __init__(self, most: int, window: float, most_of_group: int | None = None) -> None:
        self._most = most
        self._window = window
        self._most_of_group = most if most_of_group is None else most_of_group
        self._began = 0.0
        self._count = 0
        self._groups: dict[str, int] = {}
        self._left_out = 0

    def allows(self, group: str, now: float) -> bool:
        """Count a line of this group, and tell whether it may be written."""
        if now - self._began >= self._window:
            self._began, self._count = now, 0
            self._groups.clear()
        of_group = self._groups.get(group, 0)
        if self._count >= self._most or of_group >= self._most_of_group:
            self._left_out += 1
            return False
        self._count += 1
        self._groups[group] = of_group + 1
        return True

    def take_left_out(self) -> int:
        """Return how many lines were left out since the last call."""
        count, self._left_out = self._left_out, 0
        return count
