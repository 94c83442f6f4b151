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
applied without a hint while nothing is heard of their origin, and for whoever waits in :meth:`Rows.caught_up` for
longer than :data:`_PATIENCE`.

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
#: seconds after which a wait is logged
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
_OWN_CURSOR = "SELECT number FROM cluster_cursors WHERE node = ? AND origin = ?"
#: a node that joins for the first time has no Sessions that older rows could concern
_FIRST_CURSORS = (
    "INSERT INTO cluster_cursors SELECT CAST(? AS smallint), origin, number FROM cluster_cursors "
    "WHERE node = origin ON CONFLICT DO NOTHING"
)
_OTHERS = (
    "SELECT m.node, m.state, coalesce(c.number, 0) FROM cluster_members m LEFT JOIN cluster_cursors c "
    "ON c.node = m.node AND c.origin = ? WHERE m.state <> 'left' AND m.node <> ? "
    # A dead node whose Sessions were all taken has nobody to give rows to.
    "AND (m.state <> 'dead' OR EXISTS (SELECT 1 FROM sessions s WHERE s.owner = m.node)) UNION ALL "
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
        topics = list(latest)
        places = ", ".join("?" * len(topics))
        cursor.execute(f"SELECT topic, revision FROM retained WHERE topic IN ({places})", topics)  # noqa: S608
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

    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Write the cursors."""
        self._bulk.upsert(cursor, layouts.cluster_cursors, [write.row for write in writes])

    def committed(self, result: Any) -> None:
        """Do nothing."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing: the next cursor is higher."""


@define(eq=False)
class _Waiter:
    """One who waits until all rows are applied that were visible at some time; ``goal`` is unknown before a reading."""

    answer: Deferred[None]
    began: float
    goal: dict[int, int] | None = None


@define
class _Reading:
    """What one reading has found: rows, how far it went for each origin, and the highest numbers of all origins."""

    marks: dict[int, int]
    reached: dict[int, int]
    rows: list[CrossedMessage] = field(factory=list)
    is_cut: bool = False


def _find(node: int, position: dict[int, int], most: dict[int, int], connection: Connection) -> _Reading:
    """Read the next rows for a node, behind its positions; up to the ``most`` numbers of origins that have some."""
    cursor = connection.cursor()
    cursor.execute(_MARKS, (node,))
    marks = dict(cursor.fetchall())
    reading = _Reading(marks, {})
    rows, size = _ROWS, _BYTES
    mine = f"%,{node},%"
    for origin, mark in marks.items():
        after = position.get(origin, 0)
        upto = min(mark, most.get(origin, mark))
        if upto <= after:
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
        rows -= taken
        if rows <= 0 or size <= 0:
            reading.is_cut = True
            break
    return reading


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
        self._cursors = CursorKind(durable.bulk)
        self._position: dict[int, int] = {}
        self._hints: dict[int, int] = {}
        self._due: dict[int, int] = {}  # hints to tell at the end of the turn, by node
        self._told: dict[int, int] = {}  # the last hints, by node
        self._mark = 0  # the highest number that this node has committed
        self._waiters: list[_Waiter] = []
        self._passing: dict[int, deque[tuple[int, CommitTicket]]] = {}
        self._is_reading = self._again = False
        self._holds = 0  # how often others want that no row is applied
        self._held: Callable[[], None] | None = None  # what goes on then
        self._is_open = False
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
            held, self._held = self._held, None
            if held is not None:
                held()
            elif self._again:
                self._read()

    def when_passed(self, origin: int, number: int) -> CommitTicket:
        """Return a ticket that is settled when the rows of an origin up to a number are applied."""
        ticket = CommitTicket()
        if self._position.get(origin, 0) >= number:
            ticket.settle()
        else:
            self._passing.setdefault(origin, deque()).append((number, ticket))
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
        self._read()

    def _read(self) -> None:
        """Read what is there, or again behind the reading that is under way."""
        if not self._is_open:
            return
        if self._is_reading or self._holds:
            self._again = True
            return
        if self._parts.writer.room <= 0:  # the deliveries of earlier rows wait for their commit
            return
        self._is_reading, self._again = True, False
        now = self._clock.seconds()
        waiting = list(self._waiters)
        forced: dict[int, int] = {}
        for waiter in waiting:
            if waiter.goal is not None and now - waiter.began > _PATIENCE:
                for origin, number in waiter.goal.items():
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
        for waiter in waiting:
            if waiter.goal is None:
                waiter.goal = reading.marks
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
            self._held = partial(self._apply, reading, rows, left)
            return
        after = CommitTicket()
        size, count, last = 0, 0, dict[int, int]()
        while rows and count < _ROWS_OF_A_TURN and size < _BYTES_OF_A_TURN:
            row = rows.popleft()
            count += 1
            size += len(row.message.payload)
            self.received += 1
            last[row.origin] = row.number
            left[row.origin] -= 1
            try:
                self._deliver(row, after)
            except Exception:  # noqa: BLE001 - one message must not hold up all others
                self._log.failure("a message of node {node} is not delivered", node=row.origin)
        last |= {origin: number for origin, number in reading.reached.items() if not left[origin]}
        self._advance(last, after)
        if rows:
            self._clock.callLater(0, self._apply, reading, rows, left)
            return
        self._is_reading = False
        self._tell_waiters()
        if self._again or reading.is_cut or any(waiter.goal is None for waiter in self._waiters):
            self._read()

    def _advance(self, last: dict[int, int], after: CommitTicket) -> None:
        """Move the cursors to the last rows that are applied, and settle ``after`` with their commit."""
        ticket: CommitTicket | None = None
        for origin, number in last.items():
            if number > self._position.get(origin, 0):
                self._position[origin] = number
                write = Write(self._cursors, origin, (self.node, origin, number), 50, number)
                ticket = self._parts.writer.submit(write)
                self._settle_passed(origin, number)
        if ticket is None:
            after.settle()
        else:
            ticket.when_settled(after.settle)

    def _settle_passed(self, origin: int, position: int) -> None:
        passing = self._passing.get(origin)
        while passing and passing[0][0] <= position:
            passing.popleft()[1].settle()

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
        """Delete the rows of this node that all others have passed."""
        kept: int = await self._parts.writer.run(self._delete)
        if kept:
            self.not_kept += kept
            self._throttle.log(
                "kept", f"{kept} messages for nodes that are dead are not kept: holdfast node list shows these nodes"
            )

    def _delete(self, connection: Connection) -> int:
        """Delete some rows; return how many of them were for nodes that are dead."""
        cursor = connection.cursor()
        cursor.execute(_OTHERS, (self.node, self.node, self.node))
        others = cursor.fetchall()
        dead = [(node, number) for node, state, number in others if state == "dead"]
        living = min((number for _, state, number in others if state not in ("dead", "moving")), default=1 << 62)
        least = min((number for _, state, number in others if state != "dead"), default=1 << 62)
        needed = " OR ".join(["(targets LIKE ? AND number > ?)"] * len(dead)) or "FALSE"
        bound = [value for node, number in dead for value in (f"%,{node},%", number)]
        cursor.execute(
            "DELETE FROM cluster_messages WHERE origin = ? AND number IN (SELECT number FROM cluster_messages WHERE "  # noqa: S608
            f"origin = ? AND number <= ? AND NOT ({needed}) ORDER BY number LIMIT ?)",
            (self.node, self.node, least, *bound, _TRIMMED),
        )
        if not dead and least == living:
            return 0
        cursor.execute(
            "SELECT number FROM cluster_messages WHERE origin = ? ORDER BY number DESC OFFSET ? LIMIT 1",
            (self.node, MOST_KEPT),
        )
        found = cursor.fetchall()
        if not found:
            return 0
        cursor.execute(
            "DELETE FROM cluster_messages WHERE origin = ? AND number <= ?", (self.node, min(found[0][0], living))
        )
        return int(cursor.rowcount)
