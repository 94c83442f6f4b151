"""The watch over all changes of retained messages: it records them while somebody may ask for them.

How it works. A list asks for a token, and its caller follows the changes from there. From the first token on, the
changes are recorded, in the order in which this broker sees them committed, until nobody has asked for two minutes. A
change of this node is seen when its commit is reported
(:class:`~holdfast.retained.store.interfaces.ICommitWatcher`); changes of other nodes are found in the database
(:mod:`.other_nodes`). The horizon of a token is a position in this order. What is at or below it was committed and seen
before the token was made, so nothing can become visible there any more, whatever the revisions of other nodes are. A
list that begins later has all of it:

    position 7    token T7    list: reads a = 2     commit a = 3 gets position 8     follow T7: a = 3

Changes that are committed before the list reads, and seen after its token, come twice. That is allowed; a gap is not.

A recording has a random name, so tokens of an earlier one, of an earlier process, and of other nodes are recognized.
Then the history helps, if it has everything since (:mod:`.past`); if not, the follower begins with a reset.

While nobody watches, a commit costs one comparison more.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from holdfast.retained.changes.change import StoredChange, change_of_row, expiry_of
from holdfast.retained.changes.following import Follower
from holdfast.retained.changes.interfaces import IChangesSince, IFollower
from holdfast.retained.changes.other_nodes import OtherNodes
from holdfast.retained.changes.past import Forgotten, PastChanges, head_of
from holdfast.retained.changes.recent import RecentChanges
from holdfast.retained.changes.token import NO_HEAD, BadToken, Head, Place, place_of
from holdfast.retained.store.interfaces import ICommitWatcher
from holdfast.retained.store.rows import Row
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.tickets import StorageFailure

#: Seconds for which changes are recorded after the last token or follower.
KEPT = 120.0
#: Seconds between two looks at the end of the history.
_HEAD_INTERVAL = 10.0


def _new_name() -> bytes:
    return secrets.token_bytes(8)


@implementer(IChangesSince, ICommitWatcher)
class ChangeWatch(Service):
    """Records changes and lets followers read them. ``new_name`` makes the names of recordings: 8 bytes, never 0."""

    def __init__(
        self,
        store: SQLRetainedStore,
        past: PastChanges,
        clock: IReactorTime,
        new_name: Callable[[], bytes] = _new_name,
        recent: Callable[[], RecentChanges] = RecentChanges,
    ) -> None:
        self.changes = recent()
        self.recording = b""
        self._store = store
        self._past = past
        self._clock = clock
        self._new_name = new_name
        self._recent = recent
        self._followers: set[Follower] = set()
        self._beginning: list[Deferred[None]] | None = None
        self._is_recording = False
        self._others = None
        if store.shared:
            self._others = OtherNodes(store, clock, self._found, self._headed, lambda: self.changes.floor, self._forget)
        self._ending: IDelayedCall | None = None
        self._looking: IDelayedCall | None = None

    @property
    def is_recording(self) -> bool:
        """Whether changes are recorded now."""
        return self._is_recording

    @inlineCallbacks
    def token(self) -> Generator[Deferred[Any], Any, str | None]:
        """Return a token for now, None while the database is away."""
        if not self._is_recording and not self._store.available:
            return None
        yield self._begin()
        return self._now().token

    @inlineCallbacks
    def follow(
        self, topic_filter: str, token: str | None, news: Callable[[], None]
    ) -> Generator[Deferred[Any], Any, IFollower]:
        """Follow changes after a token."""
        yield self._begin()
        present = self.changes
        if token is None:
            return self._joined(Follower(self, topic_filter, present.latest, news))
        try:
            place = place_of(token)
        except BadToken as error:
            return self._joined(Follower(self, topic_filter, present.latest, news, why=str(error)))
        if place.recording == self.recording and present.floor <= place.position <= present.latest:
            return self._joined(Follower(self, topic_filter, place.position, news))
        position = present.latest
        try:
            yield self._past.check(topic_filter, place.head)
        except Forgotten as refusal:
            return self._joined(Follower(self, topic_filter, self.changes.latest, news, why=str(refusal)))
        return self._joined(Follower(self, topic_filter, position, news, past=self._past, since=place.head))

    def left(self, follower: Follower) -> None:
        """Note that a follower is closed."""
        self._followers.discard(follower)
        self._put_off_end()

    def stop(self) -> None:
        """Stop recording. Tokens of this recording are void from now on, except for the history."""
        for call in (self._ending, self._looking):
            if call is not None and call.active():
                call.cancel()
        self._ending = self._looking = None
        if self._is_recording:
            self._is_recording = False
            self._store.watch(None)
            if self._others is not None:
                self._others.stop()
            self.changes = self._recent()

    def stopService(self) -> None:
        """Stop recording."""
        Service.stopService(self)
        self.stop()

    def written(self, rows: Sequence[Row]) -> None:
        """Record committed rows."""
        self._found([change_of_row(row) for row in rows])

    def expired(self, topics: Sequence[str], at: int, revision: int) -> None:
        """Record messages that have expired."""
        self._found([expiry_of(topic, at, revision) for topic in topics])

    def _joined(self, follower: Follower) -> IFollower:
        self._followers.add(follower)
        return follower

    def _now(self) -> Place:
        return Place(self.recording, self.changes.latest, self.changes.head)

    def _found(self, changes: Sequence[StoredChange]) -> None:
        if not self._is_recording and self._beginning is None:
            return
        add, new = self.changes.add, False
        for change in changes:
            new |= add(change)
        if new:
            for follower in tuple(self._followers):
                follower.news()

    def _headed(self, head: Head) -> None:
        """Take an entry of the history that is not after the last change."""
        self.changes.head = head

    def _forget(self) -> None:
        """Let every follower start again."""
        self.changes.forget()

    def _begin(self) -> Deferred[None]:
        """Record from now on. Fires when every commit is either over, or recorded; fails with StorageFailure."""
        self._put_off_end()
        if self._is_recording:
            return succeed(None)
        waiting: Deferred[None] = Deferred(lambda _: None)
        if self._beginning is not None:
            self._beginning.append(waiting)
            return waiting
        self._beginning = [waiting]
        self.changes, self.recording = self._recent(), self._new_name()
        self._store.watch(self)
        self._prepare().addCallbacks(self._begun, self._not_begun)
        return waiting

    @inlineCallbacks
    def _prepare(self) -> Generator[Deferred[Any], Any, None]:
        if self._others is not None:
            yield self._others.start()
        # A commit that had begun before the store knew of this watch is over when the writer answers.
        head = yield self._store.ask_writer(head_of if self._past.enabled else _no_head)
        if self._others is None:
            self.changes.head = head

    def _begun(self, _: None) -> None:
        self._is_recording = True
        if self._others is None:
            self._looking = self._clock.callLater(_HEAD_INTERVAL, self._look)
        self._put_off_end()
        self._answer(None)

    def _not_begun(self, failure: Any) -> None:
        self._store.watch(None)
        if self._others is not None:
            self._others.stop()
        self._answer(failure)

    def _answer(self, result: Any) -> None:
        waiting, self._beginning = self._beginning or [], None
        for each in waiting:
            if not each.called:  # else its caller has left
                each.callback(result)

    def _look(self) -> None:
        """Look at the end of the history, behind all commits that are recorded so far."""
        self._looking = self._clock.callLater(_HEAD_INTERVAL, self._look)
        if not self._past.enabled:
            return
        # While the database is away, the head stays: a token then brings more of the history than it needs.
        self._store.ask_writer(head_of).addCallbacks(self._headed, lambda failure: failure.trap(StorageFailure))

    def _put_off_end(self) -> None:
        if self._ending is not None and self._ending.active():
            self._ending.cancel()
        self._ending = None
        if not self._followers and self._is_recording:
            self._ending = self._clock.callLater(KEPT, self.stop)


def _no_head(_cursor: Any) -> Head:
    return NO_HEAD
