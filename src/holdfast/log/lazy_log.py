"""A log for modules that Spark's workers import too: Twisted's logger is imported with the first message.

Workers open databases for reading, and only a broker's process logs anything about them.
"""

from __future__ import annotations


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
