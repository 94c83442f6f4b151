"""The limit on how many messages per second clients may have retained: a token bucket of one second's amount."""

from __future__ import annotations

from collections.abc import Callable


class PublishRate:
    """Allows ``per_second`` messages per second, and as many at once (at least one) after a quiet second.

    ``seconds`` returns the time, which never steps back.
    """

    def __init__(self, per_second: float, seconds: Callable[[], float]) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second)
        self._tokens = self._most
        self._seconds = seconds
        self._filled_at = seconds()

    @property
    def exhausted(self) -> bool:
        """Whether no message is allowed now."""
        now = self._seconds()
        self._tokens = min(self._most, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        return self._tokens < 1 - 1e-6  # rounding errors must not cost a message

    def take(self) -> None:
        """Count a message that was allowed."""
        self._tokens -= 1
