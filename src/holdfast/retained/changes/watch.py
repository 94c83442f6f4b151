"""The watch over all changes of retained messages: it records them while somebody may ask for them.

How it works. A list asks for a token, and its caller follows the changes from there. From the first token on, the
changes are recorded, in the order in which this broker sees them committed, until nobody has asked for two minutes. A
change of this node is seen when its commit is reported
(:class:`~holdfast.retained.store.interfaces.ICommitWatcher`); changes of other nodes are found in the database
(below). The horizon of a token is a position in this order. What is at or below it was committed and seen
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
from functools import partial
from typing import Any, Protocol

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from holdfast.core.tickets import StorageFailure
from holdfast.core.topics import matches
from holdfast.retained.changes.history import RetainedHistory
from holdfast.retained.changes.moments import HistoryUnavailable
from holdfast.retained.changes.periods import read_periods, read_state
from holdfast.retained.changes.recent import (
    LONGEST_PAYLOAD,
    NO_HEAD,
    BadToken,
    Head,
    IChangesSince,
    IFollower,
    Place,
    RecentChanges,
    StoredChange,
    Taken,
    change_of_event,
    change_of_row,
    expiry_of,
    place_of,
)
from holdfast.retained.store.interfaces import ICommitWatcher
from holdfast.retained.store.rows import COLUMNS, Row
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.storage.driver import Cursor

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


# Earlier changes, from the history: they outlast a restart of the broker, and reach further back than its memory.


#: The changes of one read.
_CHANGES = 200


class Forgotten(Exception):
    """The history lacks changes since a place; the text has the reason."""


def head_of(cursor: Cursor) -> Head:
    """Return the last entry of the history if every change is recorded now, else NO_HEAD."""
    periods = read_periods(cursor)
    if not periods or periods[-1].ended_at is not None:
        return NO_HEAD
    seq = read_state(cursor).last_seq
    revision = _revision_at(cursor, seq)
    return NO_HEAD if revision is None else Head(seq, revision)


class PastChanges:
    """Reads the changes after an entry of the history."""

    def __init__(self, history: RetainedHistory) -> None:
        self._history = history

    @property
    def enabled(self) -> bool:
        """Whether this broker records its changes."""
        return self._history.limits.enable

    @inlineCallbacks
    def check(self, topic_filter: str, head: Head) -> Generator[Deferred[Any], Any, None]:
        """Fail with :class:`Forgotten` if changes of the topics after this entry are missing.

        Also if the entry is of another database.
        """
        if not self.enabled or head == NO_HEAD:
            raise Forgotten("the changes since the token are not known any more")

        def work(cursor: Cursor) -> str | None:
            periods, state = read_periods(cursor), read_state(cursor)
            present = periods[-1] if periods else None
            if head.seq > state.last_seq or _revision_at(cursor, head.seq) not in (head.revision, None):
                return "the token is of another database, or of a later state of this one"
            if present is None or present.ended_at is not None or head.seq <= present.first_seq:
                return "not every change since the token is recorded"
            if present.left_out_at(state.last_at, topic_filter).filters:
                return "not every change of these topics is recorded"
            if head.seq < present.pruned_in(topic_filter) or _revision_at(cursor, head.seq) is None:
                return "the token is older than the history"
            return None

        refusal: str | None = yield self._history.read(work)
        if refusal is not None:
            raise Forgotten(refusal)

    @inlineCallbacks
    def read(
        self, topic_filter: str, seq: int
    ) -> Generator[Deferred[Any], Any, tuple[list[StoredChange], Head, int, bool]]:
        """Return the next changes after ``seq``, their last entry, the next position, and whether these are all.

        Fails with :class:`Forgotten` if pruning has passed ``seq``.
        """
        page = yield self._history.events(topic_filter, cursor=seq, limit=_CHANGES)

        def work(cursor: Cursor) -> tuple[int, int]:
            periods = read_periods(cursor)
            return max(each.pruned_in(topic_filter) for each in periods), periods[-1].first_seq

        pruned, first_seq = yield self._history.read(work)
        if first_seq > seq:
            raise Forgotten("not every change since the token is recorded")
        if pruned > seq:
            raise Forgotten("the history forgets the changes faster than they are read")
        last = Head(page.events[-1].seq, page.events[-1].revision) if page.events else NO_HEAD
        return [change_of_event(event) for event in page.events], last, page.cursor, page.done


def _revision_at(cursor: Cursor, seq: int) -> int | None:
    cursor.execute("SELECT revision FROM retained_history WHERE seq = ?", (seq,))
    found = cursor.fetchall()
    return found[0][0] if found else None


# Followers: each reads the changes of one Topic Filter, from the history first, then from the recent changes.


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


# Finds the changes of other nodes that share the database, while somebody follows changes.
#
# How it works. There is no index on revisions, and revisions do not tell new rows from old ones: another node may
# commit a lower one later. Postgres knows: each row has the number of the transaction that wrote it (``xmin``), and
# every transaction below ``pg_snapshot_xmin`` has ended. So a walk through all topics, part by part, looks for rows
# that were written by transactions from the mark of the walk before on:
#
#     walk 1    mark 900: all transactions below 900 have ended
#     walk 2    mark 950, then finds rows of transactions >= 900
#     walk 3    mark 990, then finds rows of transactions >= 950; what 940 wrote was found by walk 2 or is found now
#
# A row that walk 2 could not see yet was written by a transaction that had not ended at mark 950, so walk 3 finds it. A
# row may be found twice. Each part looks at a bounded number of rows and pauses, so changes of other nodes come after
# the time of one walk: a second for up to 100,000 topics, then a second for each 100,000.
#
# Numbers of transactions have 32 bits and wrap around; ``age`` compares them. A mark is never older than a walk.


# Built from constants alone: values are always bound.
# ruff: noqa: S608

#: Seconds between the beginnings of two walks, at least, and between two parts.
INTERVAL = 1.0
_PAUSE = 0.05
#: The rows that a part looks at, and the changes that it returns.
_ROWS = 5_000
_CHANGES_PER_PART = 100

_MARK = "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS numeric) % 4294967296"
_PART = (
    "WITH part AS MATERIALIZED (SELECT topic, xmin AS written FROM retained WHERE topic > ? ORDER BY topic LIMIT ?) "
    "SELECT (SELECT max(topic) FROM part), (SELECT count(*) FROM part), "
    "ARRAY(SELECT topic FROM part WHERE age(written) BETWEEN 0 AND age(CAST(CAST(CAST(? AS bigint) AS text) AS xid)) "
    "ORDER BY topic LIMIT ?)"
)
_SHOWN = ", ".join(COLUMNS[:-1])
_ROWS_OF = (
    f"SELECT {_SHOWN}, CASE WHEN size <= {LONGEST_PAYLOAD} THEN payload ELSE CAST('' AS bytea) END "
    "FROM retained WHERE topic IN ({places})"
)


@frozen
class WalkPart:
    """Changes that a part of a walk has found; the next part begins ``after`` a topic, unless ``done``."""

    changes: Sequence[StoredChange]
    after: str
    done: bool


@frozen
class Mark:
    """What is known before a walk: a transaction below which all have ended, and the last entry of the history."""

    transaction: int
    head: Head


def read_mark(cursor: Cursor) -> Mark:
    """Return a mark. The head of the history is read first: what is before it is visible to the walk."""
    head = head_of(cursor)
    cursor.execute(_MARK)
    ((transaction,),) = cursor.fetchall()
    return Mark(int(transaction), head)


def read_part(cursor: Cursor, mark: Mark, after: str) -> WalkPart:
    """Return the rows of the next part that were written since a mark."""
    cursor.execute(_PART, (after, _ROWS, mark.transaction, _CHANGES_PER_PART))
    ((last, looked, topics),) = cursor.fetchall()
    changes = []
    if topics:
        cursor.execute(_ROWS_OF.format(places=", ".join("?" * len(topics))), list(topics))
        rows = [Row._make(columns) for columns in cursor.fetchall()]
        changes = [change_of_row(row) for row in sorted(rows, key=lambda row: row.revision)]
    if len(topics) == _CHANGES_PER_PART:
        return WalkPart(changes, topics[-1], False)
    return WalkPart(changes, last or after, looked < _ROWS)


class OtherNodes:
    """Walks through the topics while it is started.

    ``found`` gets the found changes, and ``walked``, after a walk, the head of the history at its beginning.
    ``floor`` changes when recorded changes were dropped; ``unsure`` is told when the order of changes is not certain.
    """

    def __init__(
        self,
        store: SQLRetainedStore,
        clock: IReactorTime,
        found: Callable[[Sequence[StoredChange]], None],
        walked: Callable[[Head], None],
        floor: Callable[[], int],
        unsure: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._found = found
        self._walked = walked
        self._floor = floor
        self._unsure = unsure
        self._mark: Mark | None = None
        self._job = PeriodicJob(
            self.walk, name="looking for changes of other nodes", interval=INTERVAL, clock=clock,
            foreseen=(StorageFailure,),
        )  # fmt: skip
        self._running = False

    @inlineCallbacks
    def start(self) -> Generator[Deferred[Any], Any, None]:
        """Set the first mark; every change that is committed later will be found. Fails with StorageFailure."""
        self._mark = yield self._store.scan(read_mark)
        self._running = True
        self._job.start(INTERVAL)

    def stop(self) -> None:
        """Stop the walks."""
        if self._running:
            self._running = False
            self._job.stop()

    @inlineCallbacks
    def walk(self) -> Generator[Deferred[Any], Any, None]:
        """Walk once. A walk that fails is repeated from its beginning, with the same mark."""
        since = self._mark
        assert since is not None
        mark: Mark = yield self._store.scan(read_mark)
        after, done = "", False
        while self._running and not done:
            before = self._floor()
            part: WalkPart = yield self._store.scan(partial(read_part, mark=since, after=after))
            self._found(part.changes)
            if part.changes and self._floor() != before:
                # A newer change of the same topic may have come and been dropped while this part was read.
                self._unsure()
            after, done = part.after, part.done
            if not done:
                pause: Deferred[None] = Deferred()
                self._clock.callLater(_PAUSE, pause.callback, None)
                yield pause
        if done:
            self._mark = mark
            self._walked(mark.head)
