"""Lets an unexpected error end the connection that it concerns, and nothing else.

An error in the call of a timer, of a settled commit or of an authorizer's answer would otherwise be logged by somebody
who does not know the connection, or keep others from their calls; and the connection would hang.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from twisted.logger import Logger
from twisted.python.failure import Failure

_log = Logger()


def _log_late(failure: Failure) -> None:
    """Log an error of a connection that is over."""
    _log.failure("unexpected error for a connection that is over", failure)


class ErrorGuard:
    """A context manager that gives unexpected errors to ``fail``, which ends the connection."""

    __slots__ = ("_fail",)

    def __init__(self, fail: Callable[[Failure], None]) -> None:
        self._fail = fail

    def fail(self, failure: Failure) -> None:
        """End the connection because of this error."""
        self._fail(failure)

    def close(self) -> None:
        """Only log errors from now on: the connection is over. Each refers to the other otherwise."""
        self._fail = _log_late

    def __enter__(self) -> None:
        """Begin to act for the connection."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Give an error to ``fail``. Exceptions that end the process pass."""
        if not isinstance(error, Exception):
            return False
        self._fail(Failure(error, kind, traceback))
        return True
