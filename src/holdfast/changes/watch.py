"""The watch over all changes of retained messages: it remembers them while somebody may ask for them.

How it works. A list asks for a token, and its caller follows the changes from there. From the first token on, the watch
remembers the changes, in the order in which this broker sees them committed, until nobody has asked for two minutes. A
change of this node is seen when its commit is reported
(:class:`~holdfast.retained.store.interfaces.ICommitWatcher`); changes of other nodes are read from the log each second
(:mod:`.log`). A token has a position in this order. What is at or below it was committed and seen before the token
was made, so nothing can become visible there any more, whatever the revisions of other nodes are. A list that begins
later has all of it:

    position 7    token T7    list: reads a = 2     commit a = 3 gets position 8     follow T7: a = 3

Changes that are committed before the list reads, and seen after its token, come twice. That is allowed; a gap is not.

The memory has a random name, so tokens of an earlier one, of an earlier process, and of other nodes are recognized.
Then the log helps: a token has a turn too. What has changed after this turn comes first, in the order of topics, then
what is remembered. If the log does not have it, the follower begins with a reset.

A look at the log of a shared database reads what has changed after the turn of the look before. A node that was alone
stores its changes later, with later turns. If it is killed before, every follower begins again.

While nobody watches, a commit costs one comparison more.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer

from holdfast.changes.log import (
    absent_nodes,
    changed_topics,
    lacks_changes,
    last_changes,
    read_kept,
)
from holdfast.changes.recent import (
    LONGEST_PAYLOAD,
    RecentChanges,
    StoredChange,
    Taken,
    change_of_row,
    expiry_of,
    purged_change,
)
from holdfast.changes.since import ChangesSince
from holdfast.changes.tokens import BadToken, Token, token_of
from holdfast.core.messages import ChangeKind
from holdfast.core.tickets import StorageFailure
from holdfast.core.topics import matches
from holdfast.retained.store.interfaces import ICommitWatcher
from holdfast.retained.store.rows import COLUMNS, Row
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.driver import Cursor
from holdfast.storage.revisions import TIME_SHIFT

#: Seconds for which changes are remembered after the last token or follower.
MEMORY_KEPT = 120.0
#: Seconds between two looks at the log: for changes of other nodes, and for the turn of the present alone.
_INTERVAL_SHARED, _INTERVAL = 1.0, 10.0


class NotStored(Exception):
    """Nobody can follow changes: some broker does not store which topics change."""


def _new_name() -> bytes:
    return secrets.token_bytes(8)


@implementer(ICommitWatcher)
class ChangeWatch(Service):
    """Remembers changes and lets followers read them. ``new_name`` makes the names of memories: 8 bytes, never 0."""

    def __init__(
        self,
        store: SQLRetainedStore,
        log: ChangeLog,
        clock: IReactorTime,
        new_name: Callable[[], bytes] = _new_name,
        recent: Callable[[], RecentChanges] = RecentChanges,
    ) -> None:
        self.changes = recent()
        #: the name of the memory
        self.memory = b""
        #: why followers get nothing any more
        self.refusal: NotStored | None = None
        self.log = log
        self._store = store
        self._clock = clock
        self._new_name = new_name
        self._recent = recent
        self._followers: set[Follower] = set()
        self._beginning: list[Deferred[None]] | None = None
        self._remembers = False
        self._ending: IDelayedCall | None = None
        self._job = PeriodicJob(
            self._look, name="looking for changes", clock=clock, foreseen=(StorageFailure,),
            interval=_INTERVAL_SHARED if store.shared else _INTERVAL,
        )  # fmt: skip

    @property
    def remembers(self) -> bool:
        """Whether changes are remembered now."""
        return self._remembers

    @as_deferred
    async def token(self) -> str | None:
        """Return a token for now: a list that begins later has all changes up to it.

        None while the database is away, or if a broker does not store its changes.
        """
        if not self._remembers and not self._store.available:
            return None
        try:
            await self._begin()
        except NotStored:
            return None
        return self.token_at(self.changes.latest, self.changes.head).text

    def follow(self, topic_filter: str, token: str | None, news: Callable[[], None]) -> Deferred[Follower]:
        """Follow changes of the topics that a Topic Filter matches, as :meth:`follow_wanted` does."""
        return self.follow_wanted(partial(matches, topic_filter), token, news)

    @as_deferred
    async def follow_wanted(
        self, wanted: Callable[[str], bool], token: str | None, news: Callable[[], None]
    ) -> Follower:
        """Follow changes of wanted topics after a token (None: from now on).

        ``news`` is called for new changes, perhaps often.

        If the token is none, of another database, or too old, the follower begins with a reset. Fails with
        :class:`NotStored`, and with StorageFailure.
        """
        await self._begin()
        if token is None:
            return self._joined(Follower(self, wanted, news))
        try:
            known = token_of(token)
        except BadToken as error:
            return self._joined(Follower(self, wanted, news, why=str(error)))
        if known.memory == self.memory and self.changes.floor <= known.position <= self.changes.latest:
            return self._joined(Follower(self, wanted, news, position=known.position))
        try:
            await self.log.check(known)
        except Forgotten as refusal:
            return self._joined(Follower(self, wanted, news, why=str(refusal)))
        return self._joined(Follower(self, wanted, news, since=known))

    def left(self, follower: Follower) -> None:
        """Note that a follower is closed."""
        self._followers.discard(follower)
        self._put_off_end()

    def stop(self) -> None:
        """Forget all. Positions in this memory are void from now on."""
        if self._ending is not None and self._ending.active():
            self._ending.cancel()
        self._ending = None
        if self._remembers:
            self._remembers = False
            self._store.watch(None)
            self._job.stop()
            self.changes = self._recent()

    def stopService(self) -> None:
        """Forget all."""
        Service.stopService(self)
        self.stop()

    def written(self, rows: Sequence[Row]) -> None:
        """Remember committed rows."""
        self._found([change_of_row(row) for row in rows])

    def expired(self, topics: Sequence[str], at: int, revision: int) -> None:
        """Remember messages that have expired."""
        self._found([expiry_of(topic, at, revision) for topic in topics])

    def token_at(self, position: int, head: Token) -> Token:
        """Return the token of a position in this memory; ``head`` is a place in the log that is not after it."""
        return Token(head.epoch, head.turn, self.memory, position)

    def _joined(self, follower: Follower) -> Follower:
        self._followers.add(follower)
        return follower

    def _found(self, changes: Sequence[StoredChange]) -> None:
        if not self._remembers and self._beginning is None:
            return
        add, new = self.changes.add, False
        for change in changes:
            new |= add(change)
        if new:
            self._tell()

    def _tell(self) -> None:
        for follower in tuple(self._followers):
            follower.news()

    def _begin(self) -> Deferred[None]:
        """Remember from now on. Fires when every commit is either over, or remembered.

        Fails with StorageFailure, and with :class:`NotStored`.
        """
        self._put_off_end()
        if self._remembers:
            return succeed(None)
        waiting: Deferred[None] = Deferred(lambda _: None)
        if self._beginning is not None:
            self._beginning.append(waiting)
            return waiting
        self._beginning = [waiting]
        self.changes, self.memory, self.refusal = self._recent(), self._new_name(), None
        self._store.watch(self)
        # A commit that had begun before the store knew of this watch is over when the writer answers.
        self.log.now().addCallbacks(self._begun, self._not_begun)
        return waiting

    def _begun(self, now: Token) -> None:
        self._remembers = True
        self.changes.head = now
        self._job.start(self._job.interval)
        self._put_off_end()
        self._answer(None)

    def _not_begun(self, failure: Any) -> None:
        self._store.watch(None)
        self._answer(failure)

    def _answer(self, result: Any) -> None:
        waiting, self._beginning = self._beginning or [], None
        for each in waiting:
            if not each.called:  # else its caller has left
                each.callback(result)

    @as_deferred
    async def _look(self) -> None:
        """Find the changes of other nodes, and a later place in the log that belongs to all changes from now on.

        A look that fails is repeated from the same place.
        """
        changes = self.changes
        try:
            if not self._store.shared:
                now: Token = await self.log.now()
                changes.head = now
                return
            after, done, head = "", False, None
            while not done and self._remembers and changes is self.changes:
                floor = changes.floor
                part: Part = await self.log.read(changes.head, after)
                self._found(part.changes)
                # A newer change of the same topic may have come and been dropped while this part was read.
                if part.is_lossy or (part.changes and changes.floor != floor):
                    changes.forget()
                    self._tell()
                after, done, head = part.after, part.done, head or part.now
        except NotStored as refusal:
            self.stop()
            self.refusal = refusal
            self._tell()
            return
        if done and head is not None:
            changes.head = head

    def _put_off_end(self) -> None:
        if self._ending is not None and self._ending.active():
            self._ending.cancel()
        self._ending = None
        if not self._followers and self._remembers:
            self._ending = self._clock.callLater(MEMORY_KEPT, self.stop)


# The log as the watch reads it.


#: The topics that one read for a follower looks at, and the most changes that it returns.
_LOOKED = 1000
_CHANGES = 64
#: The most changes of other nodes that one read returns.
_NEW = 250
# Built from constants and counts alone: values are always bound.
_SHOWN = f"CASE WHEN size <= {LONGEST_PAYLOAD} THEN payload ELSE substr(payload, 1, 0) END"
_REVISED = (
    f"SELECT {', '.join(COLUMNS[:-1])}, {_SHOWN} FROM retained "  # noqa: S608
    "WHERE topic > ? AND topic <= ? AND revision > ? ORDER BY topic LIMIT ?"
)
_NEXT = "SELECT max(topic), count(*) FROM (SELECT topic FROM retained WHERE topic > ? ORDER BY topic LIMIT ?) AS part"
_ROWS_OF = f"SELECT {', '.join(COLUMNS[:-1])}, {_SHOWN} FROM retained WHERE topic IN ({{places}})"  # noqa: S608


class Forgotten(Exception):
    """The log lacks changes since a token; the text has the reason."""


@frozen
class Part:
    """The next changes after a turn; the next part begins ``after`` a topic, unless ``done``.

    All parts together have every stored change up to ``now``. If the last one ``is_lossy``, changes are missing.
    """

    changes: Sequence[StoredChange]
    after: str
    done: bool
    now: Token
    is_lossy: bool = False


@frozen
class Revised:
    """The next changed topics; the next part begins ``after`` a topic, unless ``done``."""

    changes: Sequence[StoredChange]
    after: str
    done: bool


class ChangeLog:
    """Reads the log in the thread of long reads."""

    def __init__(self, store: SQLRetainedStore, since: ChangesSince) -> None:
        self._store = store
        self._since = since

    @as_deferred
    async def now(self) -> Token:
        """Return a token for now, behind the reports of all earlier commits. Fails with :class:`NotStored`."""
        if self._store.shared:
            _refuse(await self._store.scan(absent_nodes))
        now: Token = await self._since.now()
        return now

    @as_deferred
    async def check(self, token: Token) -> None:
        """Fail with :class:`Forgotten` if changes after a token are missing, or too many."""
        await self._since.append()
        if not (await self._store.scan(partial(self._since.is_known, token=token))):
            raise Forgotten("the changes since the token are not known any more")

    @as_deferred
    async def read(self, since: Token, after: str) -> Part:
        """Return the next changes, of all topics, behind a topic. Fails with :class:`NotStored`."""

        def work(cursor: Cursor) -> tuple[Part, list[int]]:
            now = self._since.token_in(cursor)
            topics = changed_topics(cursor, since.turn, after, _NEW)
            changes = _present(cursor, since.turn, topics)
            if len(topics) == _NEW:
                return Part(changes, topics[-1], False, now), []
            # Looked at behind all reads: what was committed before them is in the log.
            return Part(changes, after, True, now, lacks_changes(cursor, since.turn)), absent_nodes(cursor)

        part: Part
        part, absent = await self._store.scan(work)
        _refuse(absent)
        return part

    @as_deferred
    async def read_wanted(self, since: Token, wanted: Callable[[str], bool], after: str) -> Part:
        """Return the next changes of wanted topics. Fails with :class:`Forgotten` if they were pruned."""

        def work(cursor: Cursor) -> Part | None:
            looked = changed_topics(cursor, since.turn, after, _LOOKED)
            topics = list(filter(wanted, looked))
            is_cut = len(topics) > _CHANGES
            end = topics[_CHANGES - 1] if is_cut else looked[-1] if looked else after
            changes = _present(cursor, since.turn, topics[:_CHANGES])
            kept = read_kept(cursor)
            if kept is None or kept.turn > since.turn:
                return None
            return Part(changes, end, not is_cut and len(looked) < _LOOKED, since)

        await self._since.append()
        part: Part | None = await self._store.scan(work)
        if part is None:
            raise Forgotten("the log forgets the changes faster than they are read")
        return part

    def read_revised(self, revision: int, wanted: Callable[[str], bool], after: str) -> Deferred[Revised]:
        """Return the next wanted topics whose present message or clear has a later revision.

        It looks at every topic, a bounded number at a time: for those who cannot go on by the log.
        """

        def work(cursor: Cursor) -> Revised:
            cursor.execute(_NEXT, (after, _LOOKED))
            ((end, count),) = cursor.fetchall()
            if end is None:
                return Revised((), after, True)
            cursor.execute(_REVISED, (after, end, revision, _CHANGES + 1))
            rows = list(map(Row._make, cursor.fetchall()))
            is_cut = len(rows) > _CHANGES
            if is_cut:
                end = rows[_CHANGES - 1].topic
            changes = [change_of_row(row) for row in rows[:_CHANGES] if wanted(row.topic)]
            return Revised(changes, end, not is_cut and count < _LOOKED)

        return self._store.scan(work)


def _refuse(absent: Sequence[int]) -> None:
    if absent:
        nodes = ", ".join(map(str, absent))
        raise NotStored(f"the brokers with node.id {nodes} have retainer.changes.enable = false")


def _present(cursor: Cursor, turn: int, topics: Sequence[str]) -> list[StoredChange]:
    """Return the present changes of topics that changed after a turn, in the order of their revisions."""
    if not topics:
        return []
    cursor.execute(_ROWS_OF.format(places=", ".join("?" * len(topics))), list(topics))
    found = {row.topic: change_of_row(row) for row in map(Row._make, cursor.fetchall())}
    empty = [topic for topic in topics if topic not in found or found[topic].kind is not ChangeKind.SET]
    if empty:  # only the log tells a clear from an expiry, and has what is left of a purged tombstone
        for topic, (at, is_expired) in last_changes(cursor, turn, empty).items():
            change = found.get(topic) or purged_change(topic, at)
            found[topic] = expiry_of(topic, change.at, change.revision) if is_expired else change
    return sorted(found.values(), key=_revision_of)


def _revision_of(change: StoredChange) -> int:
    return change.revision


# A list and the changes since its beginning.


#: Seconds for which a listed message may have older changes that are reported late: looks at other nodes take one.
_LATE = 60.0


class ListedRevisions:
    """Tells which changes are behind what a list has told: they are at or below its revisions.

    Only messages that are so new that a change may come behind them are noted. ``began`` is the time of the list's
    beginning in seconds.
    """

    def __init__(self, began: float) -> None:
        self._new_since = int((began - _LATE) * 1000) << TIME_SHIFT
        self._revisions: dict[str, int] = {}
        self._until: float | None = None

    def note(self, topic: str, revision: int) -> None:
        """Note a listed message."""
        if revision >= self._new_since:
            self._revisions[topic] = revision

    def ended(self, now: float) -> None:
        """Note the end of the list."""
        self._until = now + _LATE

    def is_behind(self, change: StoredChange) -> bool:
        """Tell whether the list has told this change or a newer one."""
        return change.revision <= self._revisions.get(change.topic, -1)

    def caught_up(self, now: float) -> None:
        """Note that all changes so far are told. A minute after the list, nothing comes behind it any more."""
        if self._revisions and self._until is not None and now > self._until:
            self._revisions.clear()


# Followers: each reads the changes of wanted topics, from the log first, then from the recent changes.


#: The changes that one take looks at.
_TAKEN = 1000


class Follower:
    """Follows the changes after a position of the memory; None: after the last one.

    With ``since``, it first reads the log after this token. ``why`` is the reason of a first reset.
    """

    def __init__(
        self,
        watch: ChangeWatch,
        wanted: Callable[[str], bool],
        news: Callable[[], None],
        *,
        position: int | None = None,
        since: Token | None = None,
        why: str | None = None,
    ) -> None:
        self.news = news
        self._watch = watch
        self._memory = watch.memory
        self._wanted = wanted
        self._position = watch.changes.latest if position is None else position
        self._head = watch.changes.head
        self._since = None if since is None else Token(since.epoch, since.turn)
        self._after = ""
        self._why = why

    @property
    def position(self) -> int:
        """The position in the memory up to which all changes were taken; -1 while the log is read."""
        return self._position if self._since is None else -1

    def take(self, most_bytes: int) -> Deferred[Taken]:
        """Return the next changes, none if there are none now. Do not call it again before it has fired.

        It may fail with StorageFailure, and with :class:`NotStored`.
        """
        if self._watch.refusal is not None:
            return fail(self._watch.refusal)
        if self._since is not None:
            return self._take_stored(self._since)
        return succeed(self._take_recent(most_bytes))

    def close(self) -> None:
        """Follow no longer."""
        self._watch.left(self)

    def _take_recent(self, most_bytes: int) -> Taken:
        changes, why = self._watch.changes, self._why
        self._why = None
        if self._memory != self._watch.memory:
            # The memory has begun anew, so changes between the two are missing.
            self._memory = self._watch.memory
            self._position, why = changes.latest, why or "the broker could not follow the changes for a while"
        part = changes.read(self._position, self._wanted, _TAKEN, most_bytes)
        if part is None:
            self._position = changes.latest
            why = why or "there were more changes than could be kept for you"
            return Taken((), self._token(changes.head), reset=why)
        self._position = part.position
        return Taken(part.changes, self._token(part.head), part.more, why)

    @as_deferred
    async def _take_stored(self, since: Token) -> Taken:
        try:
            part = await self._watch.log.read_wanted(since, self._wanted, self._after)
        except Forgotten as refusal:
            self._since, self._why = None, str(refusal)
            self._position = self._watch.changes.latest
            return self._take_recent(0)
        self._after = part.after
        if not part.done:
            return Taken(part.changes, since, True)
        self._since = None
        return Taken(part.changes, self._token(self._head), True)

    def _token(self, head: Token) -> Token:
        return self._watch.token_at(self._position, head)
