"""How fast messages may be retained: a token bucket that holds one second's worth."""

from __future__ import annotations

from collections.abc import Callable


class PublishRate:
    """Allows so many messages per second, and as many at once after a quiet second (at least one).

    ``seconds`` never steps back.
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
        return self._tokens < 1 - 1e-6  # what rounding has lost must not cost a message

    def take(self) -> None:
        """Count a message that was allowed."""
        self._tokens -= 1
