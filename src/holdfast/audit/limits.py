"""Limits the lines of one kind: in all, and for each group, such as an address or a user. The rest is counted.

How it works. Time is divided into windows, each of which begins with its first line. Within a window so many lines are
written, of each group at most a tenth of them. Only groups with a written line are remembered, so memory is bounded.
When the window is over, :meth:`LineLimit.take_suppressed` tells how many lines were left out.
"""

from __future__ import annotations

#: seconds of a window
WINDOW = 10.0


class LineLimit:
    """Allows ``most`` lines in a window, and a tenth of them (at least one) for each group."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_of_group = max(1, most // 10)
        self._began = 0.0
        self._count = 0
        self._groups: dict[str, int] = {}
        self._suppressed = 0

    def allows(self, group: str, now: float) -> bool:
        """Count a line of this group, and tell whether it may be written."""
        if now - self._began >= WINDOW:
            self._began, self._count = now, 0
            self._groups.clear()
        of_group = self._groups.get(group, 0)
        if self._count >= self._most or of_group >= self._most_of_group:
            self._suppressed += 1
            return False
        self._count += 1
        self._groups[group] = of_group + 1
        return True

    def take_suppressed(self) -> int:
        """Return how many lines were left out since the last call."""
        count, self._suppressed = self._suppressed, 0
        return count
