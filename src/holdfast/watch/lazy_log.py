"""Logging for modules that Spark's workers import too: Twisted's logger is imported with the first message.

Workers open databases for reading, and only a broker's process logs anything about them.
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
