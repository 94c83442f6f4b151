"""When the Client of a Session was there."""

from __future__ import annotations


class Attendance:
    """When a Session began, and since when its Client is connected or away.

    Times are in milliseconds since the epoch; None: an earlier process knew it. ``connections`` is the number of
    connections so far in this process, counting the present one.
    """

    __slots__ = ("_begun_here", "connections", "created_at", "since")

    def __init__(self, now: int | None) -> None:
        self.connections = 0
        self.created_at = now
        self.since = now
        self._begun_here = now is not None

    def came_or_went(self, now: int) -> None:
        """Note that the Client is connected, or away, from now on."""
        self.since = now
        self._begun_here = True

    def clock_moved(self, step: int, now: int) -> bool:
        """Move times of this process by ``step`` (milliseconds): the clock has jumped. Later ones stay.

        Tells whether ``since`` is a time of this process.
        """
        if self.created_at is not None and self.created_at + step <= now:
            self.created_at += step
        if self.since is not None and self._begun_here and self.since + step <= now:
            self.since += step
        return self._begun_here
