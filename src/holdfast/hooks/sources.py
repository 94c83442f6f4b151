"""The events of one hook: changes of retained messages from the log, and happenings of this process.

How it works. A source gives events when there are some, and is told when they are delivered. It queues nothing: the
changes wait in the database (:class:`holdfast.changes.watch.ChangeWatch`), the newest one of each topic, and happenings
in the ring of all streams. So a server that hangs costs no memory.

*The place of the changes* is kept in the database, at most once a second. It has two parts:

    token      the log's: after an orderly end, it names all changes since
    revision   all changes with this revision or a lower one are delivered

A process that was killed may have committed changes that its log lacks, so the log takes no token from before. Then the
table of retained messages itself is read: every message and every clear with a higher revision than the place's comes
again, and nothing is missing. The revision is found in this order:

    revision 70 is taken        nothing has it
    commits are awaited         all changes up to 70 are committed, and seen by the watch up to its position 9
    the hook is at position 9   all of them are delivered: the place is 70

Not found again after a kill: messages that expired meanwhile, and clears whose tombstones are purged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from holdfast.admin.api.happenings import Happenings
from holdfast.changes.recent import StoredChange
from holdfast.changes.watch import ChangeWatch, Follower, ListedRevisions, NotStored
from holdfast.hooks.batches import MOST_BYTES
from holdfast.hooks.positions import Position, claim, save
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.scheduling.waiting import durable
from holdfast.storage.revisions import TIME_SHIFT

#: Seconds between two writes of a place, between two renewals of a claim, and until a claim of another node is tried.
_SAVED, _RENEWED, _ELSEWHERE = 1.0, 10.0, 10.0
#: Seconds between two looks without news.
_LOOKS = 10.0
#: Milliseconds by which the revisions of other nodes may be late.
_OF_OTHERS = 600_000


class Source(Protocol):
    """Gives the events of a lane, each as JSON."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether another node delivers them."""

    async def next(self) -> Sequence[bytes]:
        """Return the next events, at least one; wait until there are some."""

    async def keep(self) -> bool:
        """Tell whether the events are still this node's to deliver."""

    async def confirm(self) -> None:
        """Note that the events are delivered, or given up."""

    def stop(self) -> None:
        """Give no more events."""


class _News:
    """Lets a coroutine wait for news, or for a time."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: Deferred[None] | None = None

    def tell(self) -> None:
        """End the waiting."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.callback(None)

    async def wait(self, seconds: float) -> None:
        """Wait for news, and no longer than this."""
        waiting: Deferred[None] = Deferred()
        self._waiting = waiting
        timer = self._clock.callLater(seconds, self.tell)
        try:
            await waiting
        finally:
            self._waiting = None
            if timer.active():
                timer.cancel()


class HappeningSource:
    """Gives happenings of some kinds. What came before its beginning, and what the ring has lost, is marked."""

    is_elsewhere = False

    def __init__(self, happenings: Happenings, kinds: Collection[str], clock: IReactorTime, most: int) -> None:
        self._happenings = happenings
        self._kinds = kinds
        self._most = most
        self._news = _News(clock)
        self._number = happenings.number
        self._leave = happenings.join(kinds, self._news.tell)
        self._held = [_event("missed", {"reason": "the broker has started"})]

    async def next(self) -> Sequence[bytes]:
        """Return the next happenings."""
        while not self._held:
            found, self._number, missed = self._happenings.after(self._number, self._kinds, MOST_BYTES)
            if missed:
                self._held.append(_event("missed", {"count": missed}))
            self._held += [b'{"type":"%s",' % each.kind.encode() + each.text[1:] for each in found]
            if not self._held:
                await self._news.wait(_LOOKS)
        events, self._held = self._held[: self._most], self._held[self._most :]
        return events

    async def keep(self) -> bool:
        """Happenings are those of this process."""
        return True

    async def confirm(self) -> None:
        """Keep no place: the ring is as short-lived as the process."""

    def stop(self) -> None:
        """Hear of nothing more."""
        self._leave()


def _event(kind: str, fields: dict[str, object]) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


@frozen
class _Mark:
    """All changes up to a revision are seen in a memory of the watch, up to a position."""

    revision: int
    memory: bytes
    position: int


class RetainedSource:
    """Gives changes of the retained messages of ``wanted`` topics. ``now`` returns milliseconds since the epoch."""

    def __init__(
        self,
        hook: str,
        wanted: Callable[[str], bool],
        store: SQLRetainedStore,
        watch: ChangeWatch,
        clock: IReactorTime,
        now: Callable[[], int],
        most: int,
    ) -> None:
        self._hook = hook
        self._wanted = wanted
        self._store = store
        self._watch = watch
        self._clock = clock
        self._now = now
        self._most = most
        self._news = _News(clock)
        self._began = store.next_revision()
        self._place: Position | None = None  #: as in the database; None without a claim
        self._renew_at = self._save_at = 0.0
        self._follower: Follower | None = None
        self._token = ""
        self._held: list[StoredChange] = []
        self._more = False
        self._dirty = False  #: whether anything was delivered behind the place
        self._mark: _Mark | None = None
        self._scan_after: str | None = None  #: where the reading of the whole table goes on, None if there is none
        self._listed = ListedRevisions(0)

    @property
    def is_elsewhere(self) -> bool:
        """Whether another node has the claim."""
        return self._place is None

    async def next(self) -> Sequence[bytes]:
        """Return the next changes."""
        while True:
            if not await self.keep():
                await self._news.wait(_ELSEWHERE)
                continue
            if self._follower is None:
                await self._begin()
                continue
            if not self._held:
                await (self._take() if self._scan_after is None else self._scan())
            if self._held:
                changes, self._held = self._held[: self._most], self._held[self._most :]
                return [b'{"type":"retained",' + change.json()[1:] for change in changes]
            if self._scan_after is None and not self._more:
                await self._advance()
                if not self._more:
                    await self._news.wait(_SAVED if self._dirty else _LOOKS)

    async def keep(self) -> bool:
        """Claim the hook, or renew the claim. A database of one node needs no renewal."""
        if self._place is not None and (not self._store.shared or self._clock.seconds() < self._renew_at):
            return True
        found = await self._store.ask_writer(partial(claim, hook=self._hook, node=self._store.node, now=self._now()))
        self._renew_at = self._clock.seconds() + _RENEWED
        if found is None:
            self._lose()
        elif self._place is None:
            self._place = found
        return found is not None

    async def confirm(self) -> None:
        """Write the place, if it is time."""
        self._dirty = True
        await self._advance()

    def stop(self) -> None:
        """Follow no longer."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def _lose(self) -> None:
        """Begin anew with the place in the database, when the claim comes back."""
        self.stop()
        self._place = self._mark = self._scan_after = None
        self._held = []
        self._dirty = False

    async def _begin(self) -> None:
        place = self._place
        assert place is not None  # keep has claimed the hook
        if not place.revision:  # the first time: from the start of this process on
            place = Position("", self._began)
            await self._write(place)
            if self._place is None:
                return
        self._follower = await self._watch.follow_wanted(self._wanted, place.token or None, self._news.tell)
        self._token = place.token
        if not place.token:
            self._read_table()

    async def _take(self) -> None:
        assert self._follower is not None  # _begin has made it
        try:
            taken = await self._follower.take(MOST_BYTES)
        except NotStored:
            self.stop()  # this follower gets nothing any more: the next try begins with the place
            self._mark = None
            raise
        self._token, self._more = taken.token.text, taken.more
        if taken.reset is not None:
            self._read_table()
        elif not taken.more:
            self._listed.caught_up(self._clock.seconds())
        self._held = [each for each in taken.changes if not self._listed.is_behind(each)]

    def _read_table(self) -> None:
        """Read the table of retained messages before any later change."""
        self._scan_after, self._mark = "", None
        self._listed = ListedRevisions(self._clock.seconds())

    async def _scan(self) -> None:
        """Read on in the table of retained messages, for changes that the log cannot name."""
        place, after = self._place, self._scan_after
        assert place is not None  # keep has claimed the hook
        assert after is not None  # else there is no reading
        late = _OF_OTHERS << TIME_SHIFT if self._store.shared else 0
        part = await self._watch.log.read_revised(place.revision - late, self._wanted, after)
        for change in part.changes:
            self._listed.note(change.topic, change.revision)
        self._held = list(part.changes)
        self._scan_after = None if part.done else part.after
        if part.done:
            self._listed.ended(self._clock.seconds())
            self._dirty = True

    async def _new_mark(self) -> _Mark:
        revision = self._store.next_revision()
        await durable(self._store.flushed())
        await self._watch.log.now()  # the watch has seen these commits
        return _Mark(revision, self._watch.memory, self._watch.changes.latest)

    async def _advance(self) -> None:
        """Write the place, if everything taken is delivered and a second has passed."""
        follower = self._follower
        if not self._dirty or self._held or self._scan_after is not None or follower is None:
            return
        if self._clock.seconds() < self._save_at:
            return
        if self._mark is None or self._mark.memory != self._watch.memory:
            self._mark = await self._new_mark()
            self._more = True  # changes may have come meanwhile
        if follower.position >= self._mark.position:
            mark, self._mark = self._mark, None
            self._save_at = self._clock.seconds() + _SAVED
            self._dirty = False
            await self._write(Position(self._token, mark.revision))

    async def _write(self, place: Position) -> None:
        work = partial(save, hook=self._hook, node=self._store.node, position=place, now=self._now())
        if await self._store.ask_writer(work):
            self._place = place
        else:
            self._lose()
