"""When the Client of a Session was there."""

from __future__ import annotations


class Attendance:
    """When a Session began, and since when its Client is connected or away.

    Times are in milliseconds since the epoch; None: an earlier process knew it. ``connections`` is the number of
    connections so far in this process, counting the present one.
    """

    __slots__ = ("connections", "created_at", "since")

    def __init__(self, now: int | None) -> None:
        self.connections = 0
        self.created_at = now
        self.since = now
