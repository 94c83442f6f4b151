"""The unfinished replays of a Session: how far its Client has received each, and which of them run.

How it works. A few replays of a Session run at a time (``retainer.flow_control.max_replays_per_client``). The others
wait in the order of their Topic Filters. A disconnect interrupts the running ones, which then wait before the others.

Two positions of a replay count. After a mere disconnect, the replay continues behind the last topic *sent*, because the
messages in flight are sent again by the Session. The *acknowledged* position is stored with the Session, one per
replay and not one row per message: the Client has acknowledged every message up to that topic. After the process was
killed, the replay continues behind it. So messages behind it may be sent twice, and none is lost.

Each replay also has a *cut*, a revision. Changes above the cut concern the Client as live messages. While it is away,
these are queued, so a resumed replay leaves them out, as long as the Session has lost none of them:

    SUBSCRIBE t/# with QoS 1       the cut is revision 100
    disconnect; t/b is published   revision 107; the message is queued
    reconnect                      t/b comes from the queue; the replay leaves revision 107 out
    the queue was full meanwhile   cuts up to 100 are void: the replay reads all rows, and t/b may come twice

A void cut allows repeats, and never an omission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from holdfast.core.extensions import Facts
from holdfast.sessions.delivery.inflight import OVER, Inflight
from holdfast.sessions.state import PendingMarker, ReplayProgress

#: the number of a connection to an earlier process
RESTORED = -1


class ReplayPosition:
    """The position of one replay. ``connection`` is the number of the connection on which it was asked for."""

    __slots__ = (
        "_acknowledged",
        "_unacknowledged",
        "connection",
        "cursor",
        "cut",
        "delivered",
        "facts",
        "marker",
        "saved",
        "since",
    )

    def __init__(self, cut: int = 0, connection: int = RESTORED, acknowledged: str = "") -> None:
        self.connection = connection
        self.cut = cut  #: 0: void
        self.cursor = acknowledged  #: the last topic sent before the replay was interrupted
        self.delivered = False  #: whether the replay has delivered its last message
        self.marker: PendingMarker | None = None  #: due when everything has been delivered
        self.facts: Facts = ()  #: what the Client is told of each message
        self.since: int | None = None  #: the turn after which it brings changes, None for all messages
        self.saved: str | None = acknowledged  #: the stored position; None: stored as over
        self._acknowledged = acknowledged
        self._unacknowledged: deque[tuple[Inflight, str]] | None = None  # most replays wait, and need none

    @property
    def progress(self) -> ReplayProgress | None:
        """The values to store, None for a replay that is over."""
        if self.saved is None:
            return None
        return ReplayProgress(
            self.saved, self.cut, None if self.marker is None else self.marker.text(), self.facts, self.since
        )

    @property
    def awaits_acknowledgements(self) -> bool:
        """Whether the Client has yet to acknowledge a message without a stored delivery."""
        self._take_acknowledged()
        return bool(self._unacknowledged)

    def sent(self, entry: Inflight, topic: str) -> None:
        """Note that a message of this topic was sent, and that no delivery is stored for it."""
        if self._unacknowledged is None:
            self._unacknowledged = deque()
        self._unacknowledged.append((entry, topic))

    def present(self, cursor: str) -> str | None:
        """Return the position; ``cursor`` is the last topic delivered. None: the replay is over and acknowledged."""
        self._take_acknowledged()
        if not self._unacknowledged:
            if self.delivered:
                return None
            # Messages with QoS 0, and messages with a stored delivery, need no acknowledgement here.
            self._acknowledged = max(self._acknowledged, cursor)
        return self._acknowledged

    def _take_acknowledged(self) -> None:
        waiting = self._unacknowledged
        while waiting and waiting[0][0].state is OVER:
            self._acknowledged = waiting.popleft()[1]


class ReplayPositions:
    """The unfinished replays of one Session by Topic Filter: they wait, run, or await their last acknowledgements."""

    __slots__ = ("_delivered", "_running", "newest_cut", "upgraded", "waiting")

    def __init__(self) -> None:
        #: in the order of their turns
        self.waiting: dict[str, ReplayPosition] = {}
        self._running: dict[str, ReplayPosition] = {}
        self._delivered: dict[str, ReplayPosition] = {}
        #: the highest cut of any replay
        self.newest_cut = 0
        #: whether ``mqtt.upgrade_qos`` has held ever since the oldest cut
        self.upgraded = False

    def __bool__(self) -> bool:
        return bool(self._running or self.waiting or self._delivered)

    def get(self, topic_filter: str) -> ReplayPosition | None:
        """Return the position of an unfinished replay."""
        return self._running.get(topic_filter) or self.waiting.get(topic_filter) or self._delivered.get(topic_filter)

    def add(self, topic_filter: str, position: ReplayPosition) -> None:
        """Let a replay wait, behind all others. It replaces an earlier one of the same Topic Filter."""
        self.forget(topic_filter)
        self.waiting[topic_filter] = position
        self.newest_cut = max(self.newest_cut, position.cut)

    def next(self) -> tuple[str, ReplayPosition] | None:
        """Let the first waiting replay run, and return it; None if none waits."""
        topic_filter = next(iter(self.waiting), None)
        if topic_filter is None:
            return None
        position = self._running[topic_filter] = self.waiting.pop(topic_filter)
        return topic_filter, position

    def recut(self, position: ReplayPosition, cut: int) -> None:
        """Give a replay a new cut. It reads all rows up to there."""
        position.cut = cut
        self.newest_cut = max(self.newest_cut, cut)

    def delivered(self, topic_filter: str, is_stored: bool) -> None:
        """Note that a replay has delivered its last message. Only a stored position awaits acknowledgements."""
        position = self._running.pop(topic_filter)
        if is_stored:
            position.delivered = True
            self._delivered[topic_filter] = position

    def again(self, topic_filter: str) -> None:
        """Let a replay that has delivered its last message wait once more, since a marker is due."""
        position = self._delivered.pop(topic_filter, None)
        if position is not None:
            position.delivered = False
            self.waiting[topic_filter] = position

    def forget(self, topic_filter: str) -> None:
        """Forget the replay of a subscription that is removed or replaced."""
        for positions in (self._running, self.waiting, self._delivered):
            positions.pop(topic_filter, None)

    def interrupt(self, cursor_of: Callable[[str], str]) -> None:
        """Let the running replays wait, before all others. ``cursor_of`` returns the last topic delivered."""
        for topic_filter, position in self._running.items():
            position.cursor = cursor_of(topic_filter)
            if position.marker is not None:
                position.marker.resumed = True
        self.waiting = {**self._running, **self.waiting}
        self._running = {}

    def changes(self, cursor_of: Callable[[str], str]) -> Iterator[tuple[str, ReplayProgress | None]]:
        """Yield the positions to store, by Topic Filter. None: the replay is over, and its position is forgotten.

        Waiting replays do not change, so they cost nothing.
        """
        for topic_filter in [*self._running, *self._delivered]:
            yield from self.change(topic_filter, cursor_of(topic_filter))

    def change(self, topic_filter: str, cursor: str) -> Iterator[tuple[str, ReplayProgress | None]]:
        """Yield the position of one replay, as :meth:`changes` does; nothing if it has not changed."""
        positions = self._running if topic_filter in self._running else self._delivered
        position = positions.get(topic_filter)
        if position is None:
            return
        present = position.present(cursor)
        if present is None:
            del positions[topic_filter]
        if present != position.saved:
            position.saved = present
            yield topic_filter, position.progress
