"""The service that keeps the history of retained messages and answers questions about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.changes.entries import NO_RULES, HistoryEvent, Rules
from holdfast.changes.moments import (
    BaselineUnfinished,
    EventPage,
    HistoryUnavailable,
    Moment,
    check_moment,
    check_recorded,
    fetch,
    find_moment,
    last_position,
    page_of_events,
    states_at,
    still_retained,
)
from holdfast.changes.periods import begin, confirm, end, prune_part, read_state, write_part
from holdfast.changes.recording import HistoryRecorder
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.store.sql import statements_for
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred, settled
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.readers import IReaders
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.watch.lazy_log import LogThrottle

T = TypeVar("T")

#: The topics that one read of a moment visits, and the entries that one read of events or of a topic visits.
_TOPICS = 200
_ENTRIES = 1000
#: The most reads of one question about a revision.
_MOST_READS = 100
#: The bytes of payloads and properties in one answer; a larger message is an answer of its own.
_BYTES = 1 << 20
#: The messages that one transaction of the baseline copies.
_BASELINE_ROWS = 500
#: The entries that one transaction of the pruning visits.
_PRUNED_ROWS = 1000
_REVISIONS = "SELECT seq, revision FROM retained_history WHERE topic = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
_LATEST_CHANGES = "SELECT seq, topic, op, changed_at, size, revision FROM retained_history WHERE seq IN ({places})"
_ANY = 2**63 - 1
#: Seconds between two rounds of pruning.
_INTERVAL = 60.0


@frozen
class HistoryLimits:
    """Whether changes are recorded, and the limits of the history: ``keep`` in seconds; None is no limit."""

    enable: bool = False
    keep: float | None = 7 * 86_400
    max_bytes: int | None = None


@frozen
class MomentPage:
    """The retained messages of a moment in topic order.

    The next page begins after ``after``; ``done`` says that this page is the last. A page may be empty without being
    the last, because one read visits a bounded number of topics. The history does not know the topics of the Topic
    Filters ``left_out`` at this moment.
    """

    messages: Sequence[HistoryEvent]
    after: str
    done: bool
    left_out: Sequence[str] = ()


class NoSuchRevision(Exception):
    """The history does not have a revision; the text says which one."""


@frozen
class KnownTopic:
    """A topic in the history, with its latest change: kind, time in milliseconds, payload bytes and revision."""

    topic: str
    op: str
    changed_at: int
    size: int
    revision: int


@frozen
class KnownTopics:
    """A page of topics. The next page begins after ``after``, unless ``done``."""

    topics: Sequence[KnownTopic]
    after: str
    done: bool


class RetainedHistory(Service):
    """Keeps the history in a durable store: begins and ends its periods, writes the baseline, prunes, and answers.

    Its ``recorder`` records the changes of the retained store. Without ``limits.enable``, it records none, and old
    entries are kept and pruned as before. ``now`` returns milliseconds since the epoch;
    ``flushed`` returns a ticket that is settled when all changes accepted before are stored. Only a broker begins and
    ends periods; tools pass ``keeping=False``. Create the history before all parts that write when the store opens:
    from then on, only the writer uses the database. Every question may fail with :class:`HistoryUnavailable`.

    A running broker begins and ends periods too (:meth:`change_limits`), in a transaction of the writer. The recorder
    records from before the transaction that begins a period until after the one that ends it. So the period has each
    change between them, even if a transaction fails, or is repeated because its outcome was unknown.
    """

    _log = Logger()

    def __init__(
        self,
        store: DurableStore,
        *,
        flushed: Callable[[], CommitTicket],
        clock: IReactorTime,
        now: Callable[[], int],
        limits: HistoryLimits,
        rules: Rules = NO_RULES,
        keeping: bool = True,
    ) -> None:
        self.limits = limits
        self.rules = rules
        self.recorder = HistoryRecorder(store.bulk, store.shared, limits.enable)
        #: whether changes are recorded, and the rules, while the database does not follow them yet
        self._next: tuple[bool, Rules] | None = None
        #: whether the database follows ``limits.enable = true``
        self._begun = limits.enable
        #: rounds of pruning that have ended
        self.prunings = 0
        self._keeping = keeping
        self._flushed = flushed
        self._clock = clock
        self.now = now
        self._node = store.node if store.shared else 0
        self._statements = statements_for(store.dialect)
        self._log_throttle = LogThrottle(self._log, clock.seconds, 3600)
        self._tending = PeriodicJob(
            self.tend, name="tending the history", interval=_INTERVAL, clock=clock, foreseen=(StorageFailure,)
        )
        self._parts: OpenStore
        store.before_open(self._begin)
        store.when_open(self._opened)

    def startService(self) -> None:
        """Write the rest of the baseline, and prune every minute."""
        Service.startService(self)
        self._tending.start()

    def stopService(self) -> None:
        """Stop after the present transaction."""
        Service.stopService(self)
        self._tending.stop()

    def change_limits(self, limits: HistoryLimits) -> None:
        """Begin or end to record from the next transaction on, and use the other limits from the next pruning on.

        If the database fails, it is tried again.
        """
        before, self.limits = self.limits, limits
        if limits.enable == before.enable:
            return
        if limits.enable:
            self._log.info("the history begins: its baseline is being written")
            self.recorder.recording = True
        else:
            self._log.info("the history ends: changes are not recorded any more")
        self._follow()

    def change_rules(self, rules: Rules) -> None:
        """Record by other rules from the next transaction on. If the database fails, they are tried again."""
        before, self.rules = self.rules, rules
        if self.limits.enable and rules != before:
            self._log.info("the rules of the history have changed: a new period begins, with a new baseline")
            self._follow()

    def _follow(self) -> None:
        self._next = self.limits.enable, self.rules
        self._tending.hurry()

    @as_deferred
    async def events(
        self,
        topic_filter: str,
        since: int | None = None,
        limit: int = 100,
        cursor: int = 0,
        until: int | None = None,
        newest_first: bool = False,
    ) -> EventPage:
        """Return the next changes that match a Topic Filter, ``limit`` (1..1000) at most, in their order.

        ``since`` and ``until`` are the first and the last time of the changes, in milliseconds since the epoch;
        ``cursor`` comes from the page before.
        """
        self.check_kept()

        def work(reading: Cursor) -> EventPage:
            low, high = 0, read_state(reading).last_seq
            if until is not None:
                high = last_position(reading, low, high, until)
            if since is not None:
                low = last_position(reading, low, high, since - 1)
            if cursor and newest_first:
                high = min(high, cursor - 1)
            elif cursor:
                low = max(low, cursor)
            return page_of_events(reading, topic_filter, low, high, _ENTRIES, limit, _BYTES, newest_first=newest_first)

        page: EventPage = await self.read(work)
        return page

    def check_kept(self) -> None:
        """Raise :class:`HistoryUnavailable` if no history is kept."""
        if not self.limits.enable:
            raise HistoryUnavailable("no history is kept; set retainer.history.enable = true")
        if not self._begun:
            raise BaselineUnfinished("the history has not begun yet; try again soon")

    @as_deferred
    async def moment(self, at: int, topic_filter: str = EVERY_TOPIC) -> Moment:
        """Find a moment (milliseconds since the epoch) after all changes accepted until now are recorded.

        Fails too if the history knows no topic of the Topic Filter at this moment.
        """
        self.check_kept()
        await self.stored()

        def work(cursor: Cursor) -> Moment:
            found = find_moment(cursor, at, self.now())
            check_recorded(check_moment(cursor, found), at, topic_filter)
            return found

        moment: Moment = await self.read(work)
        return moment

    @as_deferred
    async def as_of(self, topic_filter: str, moment: Moment, after: str = "") -> MomentPage:
        """Return the next retained messages of a moment that match a Topic Filter.

        ``after`` comes from the page before.
        """
        self.check_kept()

        page: MomentPage = await self.read(
            lambda cursor: self.page_of(cursor, topic_filter, moment, after, _TOPICS, _BYTES)
        )
        return page

    def page_of(
        self, cursor: Cursor, topic_filter: str, moment: Moment, after: str, topics: int, most_bytes: int
    ) -> MomentPage:
        """Read the next retained messages of a moment: it visits so many topics, and reads so many payload bytes.

        The first message may be longer.
        """
        found = states_at(cursor, topic_filter, after, (moment,), topics)
        alive = still_retained(cursor, (seq for _, (seq,) in found.entries), moment.at)
        chosen: list[int] = []
        left = most_bytes
        passed, done = after, found.done
        for topic, (seq,) in found.entries:
            if seq is not None and seq in alive:
                if chosen and alive[seq] > left:
                    done = False
                    break
                chosen.append(seq)
                left -= alive[seq]
            passed = topic
        else:
            passed = found.after
        events = fetch(cursor, chosen)
        check_moment(cursor, moment)
        if moment.hides_entries:
            chosen = [seq for seq in chosen if seq in events and moment.knows(events[seq].topic)]
        return MomentPage([events[seq] for seq in chosen], passed, done, moment.left_out(topic_filter))

    @as_deferred
    async def archived(self, seq: int) -> int:
        """Record that an archive has all events up to ``seq`` (0 for none): later events are not pruned.

        Returns the highest confirmed ``seq``, which never decreases. It also works when recording is off, because an
        archive may still read the old entries. Fails for a ``seq`` after the end of the history.
        """
        state = await self._parts.writer.run(lambda connection: confirm(connection.cursor(), seq))
        if seq > state.last_seq:
            raise HistoryUnavailable(
                f"the history ends at event {state.last_seq}: an archive cannot have {seq}; "
                "is it an archive of another database?"
            )
        return seq if state.archived_seq is None else max(seq, state.archived_seq)

    @as_deferred
    async def topics(self, topic_filter: str, after: str) -> KnownTopics:
        """Return the next topics that match a Topic Filter. A page may be empty without being the last."""
        self.check_kept()

        def work(cursor: Cursor) -> KnownTopics:
            everything = Moment(0, 0, read_state(cursor).last_seq)
            found = states_at(cursor, topic_filter, after, (everything,), _TOPICS)
            positions = [seq for _, (seq,) in found.entries if seq is not None]
            latest: list[KnownTopic] = []
            if positions:
                cursor.execute(_LATEST_CHANGES.format(places=", ".join("?" * len(positions))), positions)
                latest = sorted((KnownTopic(*row[1:]) for row in cursor.fetchall()), key=lambda one: one.topic)
            return KnownTopics(latest, found.after, found.done)

        page: KnownTopics = await self.read(work)
        return page

    @as_deferred
    async def pair(
        self, topic: str, earlier: int | None, later: int | None
    ) -> tuple[HistoryEvent | None, HistoryEvent]:
        """Return the changes with two revisions of a topic.

        Without ``later``, the latest change; without ``earlier``, the change before ``later`` (None if there is none).
        Fails with :class:`NoSuchRevision`.
        """
        self.check_kept()
        await self.stored()
        second = await self._position(topic, later, _ANY)
        if second is None:
            raise NoSuchRevision(_absent(topic, later))
        if earlier is None:
            first = await self._position(topic, None, second)
        else:
            first = await self._position(topic, earlier, _ANY)
            if first is None:
                raise NoSuchRevision(_absent(topic, earlier))
        wanted = [seq for seq in (first, second) if seq is not None]
        events = await self.read(lambda cursor: fetch(cursor, wanted))
        if len(events) < len(set(wanted)):
            raise NoSuchRevision(f"{topic}: a revision was pruned just now")
        return None if first is None else events[first], events[second]

    async def _position(self, topic: str, revision: int | None, before: int) -> int | None:
        """Return the latest position with a revision (None: with any) before another position, None if there is none.

        The history has no index of revisions, so the topic's entries are read from the latest one on.
        """
        for _ in range(_MOST_READS):
            found = await self.read(partial(_revisions, topic=topic, before=before))
            for seq, stored in found:
                if revision is None or stored == revision:
                    position: int = seq
                    return position
            if len(found) < _ENTRIES:
                return None
            before = found[-1][0]
            await self.turn()
        return None

    def read(self, work: Callable[[Cursor], T]) -> Deferred[T]:
        """Run the work with a reader's cursor. Fails with the work's exception, or with :class:`StorageFailure`."""
        return self._read(self._parts.readers, work)

    def read_apart(self, work: Callable[[Cursor], T]) -> Deferred[T]:
        """Run the work in the thread of long reads, where nobody but such reads waits for it."""
        return self._read(self._parts.scanners, work)

    def _read(self, readers: IReaders, work: Callable[[Cursor], T]) -> Deferred[T]:
        def attempt(connection: Connection) -> T | HistoryUnavailable:
            self._statements.begin_search(connection)
            try:
                return work(connection.cursor())
            except HistoryUnavailable as refusal:  # to the reader, an exception is a broken connection
                return refusal.with_traceback(None)

        return readers.read(attempt).addCallback(_unless_refused)

    def stored(self) -> Deferred[None]:
        """Fire when all changes accepted until now are stored or refused."""
        return settled(self._flushed())

    def turn(self) -> Deferred[None]:
        """Fire in a later turn of the reactor."""
        return deferLater(self._clock, 0)

    @as_deferred
    async def tend(self) -> None:
        """Begin or end a period if the configuration has changed, write the rest of the baseline, then prune.

        Each is a series of short transactions. Fails with :class:`StorageFailure`.
        """
        while self.running and (self._next is not None or self.limits.enable):
            if self._next is not None:
                await self._change_period(self._next)
            elif await self._parts.writer.run(self._baseline_part):
                break
            await self.turn()
        await self._prune()

    async def _change_period(self, change: tuple[bool, Rules]) -> None:
        enable, rules = change
        absent = await self._parts.writer.run(partial(self._enter, enable, rules))
        if self._next is not change:
            return  # the configuration has changed again meanwhile
        self._next = None
        self._begun = self.recorder.recording = enable
        self._warn_of(absent)

    def _enter(self, enable: bool, rules: Rules, connection: Connection) -> Sequence[int]:
        """Begin a period or continue it, or end it. Return the nodes that do not record, while a period needs them."""
        if enable:
            return begin(connection.cursor(), self.now(), self._node, rules)
        end(connection.cursor(), self.now(), self._node)
        return ()

    def _baseline_part(self, connection: Connection) -> bool:
        return write_part(connection.cursor(), self.now(), _BASELINE_ROWS, _BYTES)

    async def _prune(self) -> None:
        limits = self.limits
        now, keep = self.now(), None if limits.keep is None else round(limits.keep * 1000)
        while self.running and self._next is None:
            pruned = await self._parts.writer.run(
                lambda connection: prune_part(connection.cursor(), now, keep, limits.max_bytes, _PRUNED_ROWS)
            )
            if not pruned.more:
                self.prunings += 1
                if pruned.excess:
                    self._log_throttle.log(
                        "size",
                        f"the history has {pruned.excess} bytes more than retainer.history.max_bytes and cannot be "
                        f"pruned further: the present messages take them, or an archive has not confirmed them",
                    )
                return
            await self.turn()

    def _opened(self, parts: OpenStore) -> None:
        self._parts = parts

    def _begin(self, database: Database, connection: Connection) -> None:
        """Begin or end a period before any change."""
        if not self._keeping:
            return
        connection.cursor().execute(database.begin_statement)
        absent = self._enter(self.limits.enable, self.rules, connection)
        connection.commit()
        self._warn_of(absent)

    def _warn_of(self, absent: Sequence[int]) -> None:
        if absent:
            self._log.error(
                "the history is incomplete while other nodes do not record: set retainer.history.enable = true for "
                "node.id {nodes} too, then restart one; of a node that is gone, delete the row in "
                "retained_history_absent",
                nodes=", ".join(map(str, absent)),
            )


def _unless_refused(answer: T | HistoryUnavailable) -> T | Failure:
    """Fail with a refusal. It is not raised: its traceback would keep the connection of the Client in a cycle."""
    return Failure(answer) if isinstance(answer, HistoryUnavailable) else answer


def _revisions(cursor: Cursor, topic: str, before: int) -> list[tuple[int, int]]:
    cursor.execute(_REVISIONS, (topic, before, _ENTRIES))
    return list(cursor.fetchall())


def _absent(topic: str, revision: int | None) -> str:
    if revision is None:
        return f"the history has no change of {topic}"
    return f"the history has no revision {revision} of {topic} among its latest {_MOST_READS * _ENTRIES} changes"
