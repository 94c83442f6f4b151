"""How far a Client has received its replays: one position per replay is stored, not one row per message.

A position means: the Client has acknowledged every message up to that topic. It is stored with the Session, and a
replay continues behind it after the process was killed. So messages behind the position may be sent twice, and none is
lost. After a mere disconnect the replay continues behind the last topic *sent*, because the messages in flight are
sent again by the Session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from holdfast.sessions.delivery.inflight import OVER, Inflight


class ReplayPosition:
    """The position of one replay."""

    __slots__ = ("_acknowledged", "_unacknowledged", "delivered", "saved")

    def __init__(self, acknowledged: str = "") -> None:
        self.delivered = False  #: whether the replay has delivered its last message
        self.saved: str | None = acknowledged  #: the stored position; None: stored as over
        self._acknowledged = acknowledged
        self._unacknowledged: deque[tuple[Inflight, str]] = deque()

    def sent(self, entry: Inflight, topic: str) -> None:
        """Note that a message of this topic was sent, and that no delivery is stored for it."""
        self._unacknowledged.append((entry, topic))

    def present(self, cursor: str) -> str | None:
        """Return the position; ``cursor`` is the last topic delivered. None: the replay is over and acknowledged."""
        waiting = self._unacknowledged
        while waiting and waiting[0][0].state is OVER:
            self._acknowledged = waiting.popleft()[1]
        if not waiting:
            if self.delivered:
                return None
            # Messages with QoS 0, and messages with a stored delivery, need no acknowledgement here.
            self._acknowledged = max(self._acknowledged, cursor)
        return self._acknowledged


class ReplayPositions:
    """The replays of one Session by Topic Filter: their positions, and the cursors of interrupted replays."""

    __slots__ = ("_positions", "_suspended")

    def __init__(self) -> None:
        self._positions: dict[str, ReplayPosition] = {}
        self._suspended: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._positions)

    def get(self, topic_filter: str) -> ReplayPosition | None:
        """Return the position of a replay. None: its end is acknowledged, or nothing is stored for the Session."""
        return self._positions.get(topic_filter)

    def begin(self, topic_filter: str, cursor: str) -> None:
        """Begin the position of a replay. A replay that continues behind a cursor keeps the position it has."""
        if not cursor or topic_filter not in self._positions:
            self._positions[topic_filter] = ReplayPosition(cursor)

    def forget(self, topic_filter: str) -> None:
        """Forget the position of a replay whose subscription is removed."""
        self._positions.pop(topic_filter, None)

    def restore(self, topic_filter: str, after: str) -> None:
        """Take over a position that an earlier process has stored."""
        self._suspended[topic_filter] = after
        self._positions[topic_filter] = ReplayPosition(after)

    def suspend(self, topic_filter: str, cursor: str) -> None:
        """Note that a disconnect has interrupted a replay after this topic."""
        self._suspended[topic_filter] = cursor

    def take_suspended(self) -> dict[str, str]:
        """Return the cursors of the interrupted replays, by Topic Filter, and forget them."""
        suspended, self._suspended = self._suspended, {}
        return suspended

    def changes(self, cursor_of: Callable[[str], str]) -> Iterator[tuple[str, str | None]]:
        """Yield the positions to store, by Topic Filter. None: the replay is over, and its position is forgotten."""
        for topic_filter, position in list(self._positions.items()):
            present = position.present(cursor_of(topic_filter))
            if present is None:
                del self._positions[topic_filter]
            if present != position.saved:
                position.saved = present
                yield topic_filter, present
