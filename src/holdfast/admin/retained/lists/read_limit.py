"""The limit of one call's reads while few entries match. At the limit, it answers with its matches and a cursor."""

from __future__ import annotations

from collections.abc import Callable

#: The reads of one call; each visits up to 1000 messages, or 10,000 positions of the history.
MOST_READS = 200
#: Milliseconds after which a call begins no further read.
MOST_TIME = 5000


class ReadLimit:
    """Counts the reads of one call. ``now`` returns milliseconds."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._ends_at = now() + MOST_TIME
        self._left = MOST_READS

    def is_reached(self) -> bool:
        """Count a read; tell whether it was the last one."""
        self._left -= 1
        return self._left <= 0 or self._now() >= self._ends_at
