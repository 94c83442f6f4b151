"""Up to where a Client has acknowledged a replay: what is kept of it instead of every message in flight."""

from __future__ import annotations

from collections import deque

from holdfast.sessions.delivery.inflight import Inflight


class ReplayPosition:
    """One replay's position: everything up to the topic ``acknowledged`` has come to the Client for good.

    It survives a disconnect with its Session; a replay goes on from it when the process has been killed, so that
    messages after it may be repeated, and none is lost.
    """

    __slots__ = ("_unacknowledged", "acknowledged", "delivered", "saved")

    def __init__(self, acknowledged: str = "") -> None:
        self.acknowledged = acknowledged
        self.delivered = False  #: whether the replay has come to its end
        self.saved: str | None = acknowledged  #: the position last kept, None when the replay was kept as over
        self._unacknowledged: deque[tuple[Inflight, str]] = deque()

    def sent(self, entry: Inflight, topic: str) -> None:
        """A message of this topic was sent that is not kept by itself."""
        self._unacknowledged.append((entry, topic))

    def present(self, cursor: str) -> str | None:
        """Return the position, given the last topic delivered; None when the replay is over and acknowledged."""
        waiting = self._unacknowledged
        while waiting and waiting[0][0].over:
            self.acknowledged = waiting.popleft()[1]
        if not waiting:
            if self.delivered:
                return None
            self.acknowledged = max(self.acknowledged, cursor)
        return self.acknowledged
