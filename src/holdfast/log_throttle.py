"""LogThrottle: log lines that do not flood the log while a fault lasts."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger


class LogThrottle:
    """Logs at most one line per subject and ``interval`` seconds; says how many it left out.

    The lines are errors, unless ``write`` is the log's method for another level.
    """

    def __init__(
        self,
        log: Logger,
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
        """Log the message, unless one on this subject was logged just before."""
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
