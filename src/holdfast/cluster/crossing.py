"""Rows: the messages of this node for other nodes, and those of other nodes for this one, through the database.

How it works. A message with QoS 1 or 2 for Sessions of other nodes, or with RETAIN 1, is one row of
``cluster_messages``, written in its publisher's own commit. So its acknowledgement promises as much as it does on one
node. Each node has a *cursor* for each other node, its *origin*: the number of the last row that it has given to its
own Sessions. The cursor is written in the same commit as the deliveries. Say node 2 reads the rows of node 1:

    row 7 for nodes 2, 3      committed with its PUBACK
    hint 7                    node 1 tells nodes 2 and 3 that there is something to read
    node 2 reads              rows above its cursor 6 that name it: 7; its Sessions get the message
    commit of node 2          the deliveries, and cursor 7
    node 2 is killed before   it starts again with cursor 6, without the deliveries, and reads row 7 again
    all are behind 7          node 1 deletes the row

The invariants: the rows of an origin become visible in the order of their numbers, since one writer commits them in
turn. The origin's own cursor is the highest number that it has committed: up to there, a reader misses no row.

A commit whose outcome is unknown is repeated. Meanwhile its rows may have been read, passed and deleted; so the origin
compares its own cursor, and never writes a number again.

A row is applied when its hint is there: the hint comes behind all runs that were sent before (:mod:`.runs`). Rows are
applied without a hint while nothing is heard of their origin, for whoever waits in :meth:`Rows.caught_up` for longer
than :data:`_PATIENCE`, and when the hint has not come for :data:`_LONG`: it is lost. Runs that come then, before the
hint, may be older than these rows: they are not delivered (:meth:`Rows.is_ahead`), and counted as lost. Rows for other
nodes have no hint here, and the cursor passes them as soon as they are read.

Rows for a node that is dead are kept while it has Sessions, at most :data:`MOST_KEPT`; a node that is removed is not
waited for.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import merge
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from holdfast.core.messages import ApplicationMessage, held_size
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.hot_values import hot_frozen
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage import layouts
from holdfast.storage.committer import IWriteKind, Write
from holdfast.storage.database import Database
from holdfast.storage.driver import Bulk, Connection, Cursor
from holdfast.storage.postgres_values import Texts
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.watch.lazy_log import LogThrottle
from holdfast.wire.property_codec import decode_properties, encode_properties

#: the rows that are kept for nodes that are dead, for each origin
MOST_KEPT = 500_000
#: rows and bytes of payloads of one reading; one row at least
_ROWS, _BYTES = 500, 1 << 20
#: rows and bytes of payloads that are applied in one turn; one row at least
_ROWS_OF_A_TURN, _BYTES_OF_A_TURN = 40, 64 << 10
#: seconds between two looks without a hint
_INTERVAL = 1.0
#: seconds between two deletions of rows that all have passed, and the rows of one of them
_TRIMMING, _TRIMMED = 5.0, 5000
#: seconds that :meth:`Rows.caught_up` waits for hints
_PATIENCE = 2.0
#: seconds in which the Sessions have repeated deliveries that were not stored
_REPEATED = 2.0
#: seconds after which a wait is logged, and a hint taken for lost
_LONG = 5.0

_MARKS = "SELECT origin, number FROM cluster_cursors WHERE node = origin AND origin <> ?"
_SIZES = (
    "SELECT number, length(payload) FROM cluster_messages WHERE origin = ? AND number > ? AND number <= ? "
    "AND targets LIKE ? ORDER BY number LIMIT ?"
)
_FOUND = (
    f"SELECT {layouts.cluster_messages.names} FROM cluster_messages WHERE origin = ? AND number > ? AND number <= ? "  # noqa: S608
    "AND targets LIKE ? ORDER BY number"
)
_NEXT = (
    "SELECT number FROM cluster_messages WHERE origin = ? AND number > ? AND number <= ? AND targets LIKE ? "
    "ORDER BY number LIMIT 1"
)
_OWN_CURSOR = "SELECT number FROM cluster_cursors WHERE node = ? AND origin = ?"
_REVISIONS = "SELECT topic, revision FROM retained WHERE topic = ANY(?)"
#: a node that joins for the first time has no Sessions that older rows could concern
_FIRST_CURSORS = (
    "INSERT INTO cluster_cursors SELECT CAST(? AS smallint), origin, number FROM cluster_cursors "
    "WHERE node = origin ON CONFLICT DO NOTHING"
)
#: the end of a part of the rows of an origin behind a number
_PART = (
    "SELECT max(number), count(*) FROM (SELECT number FROM cluster_messages WHERE origin = ? AND number > ? "
    "AND number <= ? ORDER BY number LIMIT ?) AS part"
)
_OTHERS = (
    # A dead node whose Sessions were all taken has nobody to give rows to. Those for groups are handed on.
    "SELECT m.node, CASE WHEN m.state <> 'dead' OR EXISTS (SELECT 1 FROM sessions s WHERE s.owner = m.node) "
    "THEN m.state ELSE 'empty' END, coalesce(c.number, 0) FROM cluster_members m LEFT JOIN cluster_cursors c "
    "ON c.node = m.node AND c.origin = ? WHERE m.state <> 'left' AND m.node <> ? UNION ALL "
    # In the same snapshot: Sessions that have moved, and are not loaded yet. Without a cut they have nothing.
    "SELECT 0, 'moving', min(number) FROM (SELECT coalesce(min(number) FILTER (WHERE origin = ?), 0) AS number "
    "FROM session_cuts GROUP BY session_id) AS moving HAVING count(*) > 0"
)


@hot_frozen
class CrossedMessage:
    """A message of another node, as its row has it.

    ``share`` is the shared subscription whose member gets it. ``revision`` is that of the retained message that it is,
    None if it is none. It ``replaces`` queued retained messages of its topic: see :class:`OutgoingMessage`.
    """

    origin: int
    number: int
    share: str | None
    revision: int | None
    replaces: bool
    message: ApplicationMessage


def text_of(targets: Iterable[int]) -> str:
    """Return the column ``targets`` for nodes."""
    return f",{','.join(map(str, sorted(set(targets))))},"


def crossed_of(row: Sequence[Any]) -> CrossedMessage:
    """Return the message of a row of ``cluster_messages``."""
    (origin, number, _, share, revision, topic, qos, retain, replaces, client_id, username, expires_at, properties5,
     payload) = row  # fmt: skip
    message = ApplicationMessage(
        topic, payload, qos, bool(retain), client_id, username, decode_properties(properties5), expires_at
    )
    return CrossedMessage(origin, number, share, revision, bool(replaces), message)


@implementer(IWriteKind)
class CrossingKind:
    """Writes the rows of this node, behind the retained messages of the same commit. The key is the number."""

    name = layouts.cluster_messages.name
    order = 15

    def __init__(self, node: int, bulk: Bulk) -> None:
        self._node = node
        self._bulk = bulk

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Insert the rows that no earlier try has committed, with the final revisions of retained messages."""
        cursor.execute(_OWN_CURSOR, (self._node, self._node))
        found = cursor.fetchall()
        mark = found[0][0] if found else 0
        rows = sorted(write.row for write in writes if write.row[1] > mark)
        if not rows:
            return
        self._bulk.upsert(cursor, layouts.cluster_messages, self._with_final_revisions(cursor, rows))
        self._bulk.upsert(cursor, layouts.cluster_cursors, [(self._node, self._node, rows[-1][1])])

    def _with_final_revisions(self, cursor: Cursor, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return rows with the revisions that the store has given, to win against a row of another node."""
        latest = {row[5]: number for number, row in enumerate(rows) if row[4] is not None}
        if not latest:
            return rows
        cursor.execute(_REVISIONS, (Texts(list(latest)),))
        for topic, revision in cursor.fetchall():
            number = latest[topic]
            row = rows[number]
            if revision & 255 == self._node and revision > row[4]:
                rows[number] = (*row[:4], revision, *row[5:])
        return rows

    def committed(self, result: Any) -> None:
        """Do nothing: the tickets tell."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing: the publishers are told, and send again."""


@implementer(IWriteKind)
class CursorKind:
    """Writes the cursors of this node, behind all deliveries of the same commit."""

    name = layouts.cluster_cursors.name
    order = 95

    def __init__(self, bulk: Bulk, clock: IReactorTime) -> None:
        self._bulk = bulk
        self._clock = clock
        #: the origins whose last cursor was not stored, and when that was
        self.unwritten: set[int] = set()
        self.failed_at = 0.0

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Write the cursors."""
        self._bulk.upsert(cursor, layouts.cluster_cursors, [write.row for write in writes])

    def committed(self, result: Any) -> None:
        """Do nothing."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Keep the origins: their deliveries are written again, and so must be their cursors."""
        self.unwritten.update(write.row[1] for write in writes)
        self.failed_at = self._clock.seconds()


#: nodes that are dead, with their cursors for this node's rows; as node 0, the least cut of Sessions that have moved
_Dead = tuple[tuple[int, int, str], ...]
#: which rows each of these needs
_NEEDED = {
    "dead": "targets LIKE ? AND number > ?",
    "empty": "share IS NOT NULL AND targets LIKE ? AND number > ?",
    "moving": "targets LIKE ? AND number > ?",
}


@define(eq=False)
class _Waiter:
    """One who waits until all rows are applied that were visible at some time; ``goal`` is unknown before a reading."""

    answer: Deferred[None]
    began: float
    goal: dict[int, int] | None = None


@define
class _Reading:
    """What one reading has found: rows, how far it went for each origin, and the highest numbers of all origins.

    ``held`` are the first rows for this node that wait for their hints, by origin.
    """

    marks: dict[int, int]
    reached: dict[int, int]
    held: dict[int, int] = field(factory=dict)
    rows: list[CrossedMessage] = field(factory=list)
    is_cut: bool = False


def _find(node: int, position: dict[int, int], most: dict[int, int], connection: Connection) -> _Reading:
    """Read the next rows for a node, behind its positions; up to the ``most`` numbers of origins that have some.

    The origins that are furthest behind come first, so that none waits for the many rows of another one.
    """
    cursor = connection.cursor()
    cursor.execute(_MARKS, (node,))
    marks = dict(cursor.fetchall())
    reading = _Reading(marks, {})
    rows, size = _ROWS, _BYTES
    mine = f"%,{node},%"
    for origin in sorted(marks, key=lambda origin: position.get(origin, 0)):
        mark, after = marks[origin], position.get(origin, 0)
        if mark <= after:
            continue
        upto = max(after, min(mark, most.get(origin, mark)))
        if upto == after:
            _pass_others(cursor, reading, origin, after, mine)
            continue
        cursor.execute(_SIZES, (origin, after, upto, mine, rows + 1))
        found = cursor.fetchall()
        last, taken = upto, len(found)
        for number, (_, length) in enumerate(found):
            if number and (number >= rows or size <= 0):
                last, taken = found[number - 1][0], number
                reading.is_cut = True
                break
            size -= length
        if taken:
            cursor.execute(_FOUND, (origin, after, last, mine))
            reading.rows += map(crossed_of, cursor.fetchall())
        reading.reached[origin] = last
        if last == upto < mark:
            _pass_others(cursor, reading, origin, upto, mine)
        rows -= taken
        if rows <= 0 or size <= 0:
            reading.is_cut = True
            break
    return reading


def _never_comes(mark: int, now: float, number: int, began: float) -> bool:
    """Tell whether a row that is awaited is not committed, and will not be."""
    return number > mark and now - began > _LONG


def _pass_others(cursor: Cursor, reading: _Reading, origin: int, after: int, mine: str) -> None:
    """Let a reading reach the first row of an origin that waits for its hint, or the mark if there is none."""
    mark = reading.marks[origin]
    cursor.execute(_NEXT, (origin, after, mark, mine))
    found = cursor.fetchall()
    if found:
        reading.held[origin] = found[0][0]
    reading.reached[origin] = found[0][0] - 1 if found else mark


class Rows:
    """The rows that cross between this node and the others.

    ``deliver`` gives a message to the Sessions of this node; the ticket is settled when its delivery is stored, so that
    it may be sent with QoS 2. ``hint`` tells a node that a row with this number is there for it. ``heard`` returns the
    nodes that are heard: their rows wait for their hints.
    """

    _log = Logger()

    def __init__(
        self,
        durable: DurableStore,
        clock: IReactorTime,
        *,
        deliver: Callable[[CrossedMessage, CommitTicket], None],
        hint: Callable[[int, int], None],
        heard: Callable[[], frozenset[int]],
    ) -> None:
        self.node = durable.node
        self._clock = clock
        self._deliver = deliver
        self._hint = hint
        self._heard = heard
        self._parts: OpenStore
        self._kind = CrossingKind(self.node, durable.bulk)
        self._cursors = CursorKind(durable.bulk, clock)
        self._position: dict[int, int] = {}
        self._hints: dict[int, int] = {}
        self._unhinted: dict[int, int] = {}  # the last row that was applied without a hint, by origin
        self._due: dict[int, int] = {}  # hints to tell at the end of the turn, by node
        self._told: dict[int, int] = {}  # the last hints, by node
        self._mark = 0  # the highest number that this node has committed
        self._waiters: list[_Waiter] = []
        self._passing: dict[int, list[tuple[int, float, CommitTicket]]] = {}
        self._held: dict[int, tuple[int, float]] = {}  # the rows that wait for hints, and since when, by origin
        self._is_reading = self._again = False
        self._holds = 0  # how often others want that no row is applied
        self._paused: Callable[[], None] | None = None  # what goes on then
        self._is_open = False
        #: for whom rows are kept, and up to which row that is done
        self._kept_for: _Dead = ()
        self._looked_at = 0
        self._looking = PeriodicJob(self._look, name="looking for rows of other nodes", interval=_INTERVAL, clock=clock)
        self._trimming = PeriodicJob(
            self._trim, name="deleting rows that all nodes have", interval=_TRIMMING, clock=clock,
            foreseen=(StorageFailure,),
        )  # fmt: skip
        self._throttle = LogThrottle(self._log, clock.seconds, 60, write=self._log.warn)
        #: rows sent, rows received, and rows for dead nodes that were not kept
        self.sent = self.received = self.not_kept = 0
        durable.before_open(self._prepare)
        durable.when_open(self._opened)

    # --- sending ------------------------------------------------------------------------------------------------------

    def cross(
        self,
        message: ApplicationMessage,
        targets: Sequence[int],
        *,
        share: str | None = None,
        revision: int | None = None,
        replaces: bool = False,
    ) -> tuple[int, CommitTicket]:
        """Let a message cross to these nodes with the next commit. Return its number, and the ticket of the commit."""
        number = self._parts.clock.next_revision()
        row = (
            self.node, number, text_of(targets), share, revision, message.topic, message.qos, int(message.retain),
            int(replaces), message.client_id, message.username, message.expires_at,
            encode_properties(message.properties), message.payload,
        )  # fmt: skip
        size = held_size(len(message.topic), message.properties, len(message.payload))
        self.sent += 1
        ticket = self._parts.writer.submit(Write(self._kind, number, row, size))
        ticket.when_settled(partial(self._committed, tuple(targets), number))
        return number, ticket

    def written(self) -> CommitTicket:
        """Return a ticket that is settled when all earlier changes of this node are committed or have failed."""
        return self._parts.writer.flushed()

    def _committed(self, targets: Sequence[int], number: int, failure: StorageFailure | None) -> None:
        if failure is not None:
            return
        self._mark = max(number, self._mark)
        if not self._due:
            self._clock.callLater(0, self._tell)
        for node in targets:
            if node != self.node:
                self._due[node] = max(number, self._due.get(node, 0))

    def _tell(self) -> None:
        due, self._due = self._due, {}
        self._told |= due
        for node, number in due.items():
            self._hint(node, number)

    def hint_again(self, node: int) -> None:
        """Tell a node once more up to which number there may be rows for it: it may have missed that."""
        self._told[node] = self._mark
        if self._mark:
            self._hint(node, self._mark)

    # --- receiving ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to apply rows."""
        self._is_open = True
        self._looking.start(0)
        self._trimming.start(_TRIMMING)

    def stop(self) -> None:
        """Apply nothing more."""
        self._is_open = False
        self._looking.stop()
        self._trimming.stop()

    def hinted(self, origin: int, number: int) -> None:
        """Note that an origin has committed rows up to a number, and has sent nothing before them any more."""
        if number > self._hints.get(origin, 0):
            self._hints[origin] = number
            self._read()

    def is_ahead(self, origin: int) -> bool:
        """Tell whether rows were applied without a hint, so that runs may still come that were sent before them."""
        return self._hints.get(origin, 0) < self._unhinted.get(origin, 0)

    def position(self) -> dict[int, int]:
        """Return up to which number the rows of each other origin are applied."""
        return dict(self._position)

    def newest(self) -> int:
        """Return a number between those of the rows that this node has given out, and those that it will."""
        return self._parts.clock.next_revision()

    def hold(self) -> None:
        """Apply no rows until :meth:`go_on` has been called as often."""
        self._holds += 1

    def go_on(self) -> None:
        """Apply rows again."""
        self._holds -= 1
        if not self._holds:
            paused, self._paused = self._paused, None
            if paused is not None:
                paused()
            elif self._again:
                self._read()

    def when_passed(self, origin: int, number: int) -> CommitTicket:
        """Return a ticket that is settled when the rows of an origin up to a number are applied.

        The row of that number may never be committed. Then the ticket is settled after :data:`_LONG`.
        """
        ticket = CommitTicket()
        if self._position.get(origin, 0) >= number:
            ticket.settle()
        else:
            self._passing.setdefault(origin, []).append((number, self._clock.seconds(), ticket))
            self._read()  # no hint tells of rows for other nodes
        return ticket

    def caught_up(self) -> Deferred[None]:
        """Fire when all rows of other nodes are applied that are committed now."""
        if not self._is_open:
            return succeed(None)
        waiter = _Waiter(Deferred(), self._clock.seconds())
        self._waiters.append(waiter)
        self._read()
        return waiter.answer

    def _look(self) -> None:
        now = self._clock.seconds()
        for node in self._heard():
            if self._told.get(node, 0) < self._mark:  # rows for others: it passes them, so that they can be deleted
                self.hint_again(node)
        late = [waiter for waiter in self._waiters if now - waiter.began > _LONG]
        if late:
            goal = late[0].goal or {}
            behind = [str(origin) for origin, number in goal.items() if self._position.get(origin, 0) < number]
            self._throttle.log(
                "rows", f"messages of node {', '.join(behind) or '?'} have been awaited for {now - late[0].began:.0f} s"
            )
        self._write_again()
        self._read()

    def _write_again(self) -> None:
        """Write the cursors that were not stored; the Sessions repeat their deliveries before."""
        if self._clock.seconds() - self._cursors.failed_at < _REPEATED:
            return
        origins, self._cursors.unwritten = self._cursors.unwritten, set()
        for origin in origins:
            self._write_cursor(origin)

    def _write_cursor(self, origin: int) -> CommitTicket:
        number = self._position[origin]
        return self._parts.writer.submit(Write(self._cursors, origin, (self.node, origin, number), 50, number))

    def _read(self) -> None:
        """Read what is there, or again behind the reading that is under way."""
        if not self._is_open:
            return
        if self._is_reading or self._holds:
            self._again = True
            return
        if self._parts.writer.room <= 0 or self._cursors.unwritten:  # deliveries of earlier rows are not stored yet
            return
        self._is_reading, self._again = True, False
        now = self._clock.seconds()
        waiting = list(self._waiters)
        forced: dict[int, int] = {}
        for waiter in waiting:
            if waiter.goal is not None and now - waiter.began > _PATIENCE:
                for origin, number in waiter.goal.items():
                    forced[origin] = max(number, forced.get(origin, 0))
        for origin, (number, since) in self._held.items():
            if now - since > _LONG:
                self._throttle.log("hint", f"node {origin} has not told of its message {number}: it is read without")
                forced[origin] = max(number, forced.get(origin, 0))
        reading = self._parts.readers.read(self._search(forced))
        reading.addCallbacks(self._found, self._not_found, callbackArgs=(waiting,))
        reading.addErrback(lambda failure: self._log.failure("rows of other nodes are not applied", failure))

    def _not_found(self, failure: Any) -> None:
        """Try again later: the database is away."""
        self._is_reading = False
        self._throttle.log("away", f"rows of other nodes cannot be read: {failure.getErrorMessage()}")

    def _search(self, forced: dict[int, int]) -> Callable[[Connection], _Reading]:
        """Return what a reader's thread does: it reads the next rows."""
        most = {origin: max(self._hints.get(origin, 0), forced.get(origin, 0)) for origin in self._heard()}
        return partial(_find, self.node, dict(self._position), most)

    def _found(self, reading: _Reading, waiting: list[_Waiter]) -> None:
        now = self._clock.seconds()
        for waiter in waiting:
            if waiter.goal is None:
                waiter.goal = reading.marks
        for origin, mark in reading.marks.items():
            held = reading.held.get(origin)
            if held is None:
                self._held.pop(origin, None)
            elif self._held.get(origin, (0, 0.0))[0] != held:
                self._held[origin] = held, now
            self._settle_passing(origin, partial(_never_comes, mark, now))
        # Rows of one topic by several nodes in the order in which they were stored, as far as this reading has them.
        # Those of one origin keep their order: its cursor says that all rows up to it are applied.
        of_origins = [[row for row in reading.rows if row.origin == origin] for origin in reading.reached]
        rows = deque(merge(*of_origins, key=lambda row: row.revision or row.number))
        left = Counter(row.origin for row in rows)
        self._apply(reading, rows, left)

    def _apply(self, reading: _Reading, rows: deque[CrossedMessage], left: Counter[int]) -> None:
        """Give the next rows to the Sessions, and write the cursors with their deliveries. Then do the rest."""
        if not self._is_open:
            return
        if self._holds:
            self._paused = partial(self._apply, reading, rows, left)
            return
        after = CommitTicket()
        size, count, before = 0, 0, dict(self._position)
        while rows and count < _ROWS_OF_A_TURN and size < _BYTES_OF_A_TURN:
            row = rows.popleft()
            count += 1
            size += len(row.message.payload)
            self.received += 1
            left[row.origin] -= 1
            self._pass(row.origin, row.number - 1)  # runs that wait for earlier rows come before this one
            try:
                self._deliver(row, after)
            except Exception:  # noqa: BLE001 - one message must not hold up all others
                self._log.failure("a message of node {node} is not delivered", node=row.origin)
            if row.number > self._hints.get(row.origin, 0):
                self._unhinted[row.origin] = row.number
            self._pass(row.origin, row.number)  # and those behind this row before the next one
        for origin, number in reading.reached.items():
            if not left[origin]:
                self._pass(origin, number)
        self._write_cursors(
            [origin for origin in self._position if self._position[origin] > before.get(origin, 0)], after
        )
        if rows:
            self._clock.callLater(0, self._apply, reading, rows, left)
            return
        self._is_reading = False
        self._tell_waiters()
        if self._again or reading.is_cut or any(waiter.goal is None for waiter in self._waiters):
            self._read()

    def _write_cursors(self, origins: Sequence[int], after: CommitTicket) -> None:
        """Write cursors with the deliveries of this turn, and settle ``after`` with their commit."""
        tickets = [self._write_cursor(origin) for origin in origins]
        if tickets:
            tickets[-1].when_settled(after.settle)
        else:
            after.settle()

    def _pass(self, origin: int, number: int) -> None:
        """Note that the rows of an origin up to a number are applied."""
        self._position[origin] = max(number, self._position.get(origin, 0))
        self._settle_passing(origin, lambda waited, _: waited <= number)

    def _settle_passing(self, origin: int, is_over: Callable[[int, float], bool]) -> None:
        """Settle the tickets of an origin whose wait is over, by number and beginning.

        Not in order: of a process that is gone, a row may be awaited that never comes.
        """
        passing = self._passing.get(origin)
        if not passing:
            return
        self._passing[origin] = [each for each in passing if not is_over(each[0], each[1])]
        for number, began, ticket in passing:
            if is_over(number, began):
                self._settle(ticket)

    def _settle(self, ticket: CommitTicket) -> None:
        try:
            ticket.settle()
        except Exception:  # noqa: BLE001 - the mistake of a callback must not hold up all rows
            self._log.failure("what waited for a message of another node has failed")

    def _tell_waiters(self) -> None:
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            goal = waiter.goal
            if goal is None or any(self._position.get(origin, 0) < number for origin, number in goal.items()):
                self._waiters.append(waiter)
            else:
                waiter.answer.callback(None)

    # --- the database -------------------------------------------------------------------------------------------------

    def _prepare(self, _database: Database, connection: Connection) -> None:
        cursor = connection.cursor()
        cursor.execute(_OWN_CURSOR, (self.node, self.node))
        found = cursor.fetchall()
        self._mark = found[0][0] if found else 0
        if not found:
            cursor.execute(_FIRST_CURSORS, (self.node,))
            cursor.execute(
                "INSERT INTO cluster_cursors VALUES (?, ?, 0) ON CONFLICT DO NOTHING", (self.node, self.node)
            )
        cursor.execute("SELECT origin, number FROM cluster_cursors WHERE node = ? AND origin <> ?", (self.node,) * 2)
        self._position = dict(cursor.fetchall())

    def _opened(self, parts: OpenStore) -> None:
        self._parts = parts

    @as_deferred
    async def _trim(self) -> None:
        """Delete the rows of this node that all others have passed, part by part."""
        again = True
        while again and self._is_open:
            looked = await self._parts.writer.run(partial(self._delete, self._kept_for, self._looked_at))
            self._kept_for, self._looked_at, again = looked
        kept = 0
        if self._kept_for and self._is_open:
            kept = await self._parts.writer.run(partial(self._delete_kept, self._looked_at))
        if kept:
            self.not_kept += kept
            self._throttle.log(
                "kept", f"{kept} messages for nodes that are dead are not kept: holdfast node list shows these nodes"
            )

    def _delete(self, kept_for: _Dead, looked_at: int, connection: Connection) -> tuple[_Dead, int, bool]:
        """Look at a part of the rows that all living nodes have passed, and delete those that no dead one needs.

        Return the dead nodes, up to which row that is done, and whether there is another part. What is kept for dead
        nodes is not looked at again as long as these are the same.
        """
        cursor = connection.cursor()
        cursor.execute(_OTHERS, (self.node, self.node, self.node))
        others = cursor.fetchall()
        dead = tuple(sorted((node, number, state) for node, state, number in others if state in _NEEDED))
        if dead != kept_for:
            looked_at = 0
        least = min((number for _, state, number in others if state not in _NEEDED), default=1 << 62)
        cursor.execute(_PART, (self.node, looked_at, least, _TRIMMED))
        ((end, count),) = cursor.fetchall()
        if not count:
            return dead, looked_at, False
        needed = " OR ".join(["share IS NOT NULL AND targets = ?", *(_NEEDED[state] for _, _, state in dead)])
        # Sessions that have moved may need rows for any node.
        bound = [value for node, number, _ in dead for value in (f"%,{node},%" if node else "%", number)]
        cursor.execute(
            f"DELETE FROM cluster_messages WHERE origin = ? AND number > ? AND number <= ? AND NOT ({needed})",  # noqa: S608
            (self.node, looked_at, end, text_of((self.node,)), *bound),
        )
        return dead, end, count == _TRIMMED

    def _delete_kept(self, upto: int, connection: Connection) -> int:
        """Delete the oldest rows for nodes that are dead, beyond those that are kept; return their number."""
        cursor = connection.cursor()
        cursor.execute(
            "SELECT number FROM cluster_messages WHERE origin = ? AND number <= ? "
            "ORDER BY number DESC OFFSET ? LIMIT 1",
            (self.node, upto, MOST_KEPT),
        )
        found = cursor.fetchall()
        if not found:
            return 0
        cursor.execute("DELETE FROM cluster_messages WHERE origin = ? AND number <= ?", (self.node, found[0][0]))
        return int(cursor.rowcount)
