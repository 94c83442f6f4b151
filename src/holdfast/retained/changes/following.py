"""Followers: each reads the changes of one Topic Filter, from the history first, then from the recent changes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from zope.interface import implementer

from holdfast.retained.changes.interfaces import IFollower, Taken
from holdfast.retained.changes.past import Forgotten, PastChanges
from holdfast.retained.changes.recent import RecentChanges
from holdfast.retained.changes.token import NO_HEAD, Head, Place
from holdfast.retained.history.moments import HistoryUnavailable
from holdfast.topics import matches

#: The changes that one take looks at.
_LOOKED = 1000


class IRecording(Protocol):
    """The recording that followers read."""

    changes: RecentChanges
    recording: bytes

    def left(self, follower: Follower) -> None:
        """Note that a follower is closed."""


@implementer(IFollower)
class Follower:
    """Follows the changes after a position of the recording.

    With ``past``, it first reads the history after the entry ``since``. ``why`` is the reason of a first reset.
    """

    def __init__(
        self,
        recording: IRecording,
        topic_filter: str,
        position: int,
        news: Callable[[], None],
        *,
        past: PastChanges | None = None,
        since: Head = NO_HEAD,
        why: str | None = None,
    ) -> None:
        self.news = news
        self._recording = recording
        self._name = recording.recording
        self._filter = topic_filter
        self._position = position
        self._past = past
        self._seq = since.seq
        self._passed = since
        self._why = why

    def take(self, most_bytes: int) -> Deferred[Taken]:
        """Return the next changes."""
        if self._past is not None:
            return self._take_past(self._past)
        return succeed(self._take_recent(most_bytes))

    def close(self) -> None:
        """Follow no longer."""
        self._recording.left(self)

    def _take_recent(self, most_bytes: int) -> Taken:
        changes, why = self._recording.changes, self._why
        self._why = None
        if self._name != self._recording.recording:
            # The recording has begun anew, so changes between the two are missing.
            self._name = self._recording.recording
            self._position, why = changes.latest, why or "the broker could not follow the changes for a while"
        part = changes.read(self._position, self._matches, _LOOKED, most_bytes)
        if part is None:
            self._position = changes.latest
            why = why or "there were more changes than could be kept for you"
            return Taken((), self._place(changes.head), reset=why)
        self._position = part.position
        return Taken(part.changes, self._place(part.head), part.more, why)

    @inlineCallbacks
    def _take_past(self, past: PastChanges) -> Generator[Deferred[Any], Any, Taken]:
        try:
            changes, last, self._seq, done = yield past.read(self._filter, self._seq)
        except (Forgotten, HistoryUnavailable) as refusal:
            self._past, self._why = None, str(refusal)
            self._position = self._recording.changes.latest
            return self._take_recent(0)
        if last != NO_HEAD:
            self._passed = last
        if not done:
            return Taken(changes, Place(head=self._passed), True)
        self._past = None
        return Taken(changes, self._place(self._passed), True)

    def _place(self, head: Head) -> Place:
        return Place(self._name, self._position, head)

    def _matches(self, topic: str) -> bool:
        return matches(self._filter, topic)
