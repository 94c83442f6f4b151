"""Sessions that come to this node: they are expected, taken from dead nodes, and loaded with the second look.

How it works. A Session with rows in ``session_cuts`` belongs to its owner, which has not loaded it. The owner loads
some of them at a time (:data:`_AT_ONCE`):

    expect      their receivers are in the routing table (:mod:`.arriving`), and all nodes know it
    caught up   the rows of other nodes are applied up to now, so no cut is above this node's cursors; then none is
                applied any more
    held        messages of own clients are kept in memory from here on
    read        all rows of these Sessions, their cuts, and the messages behind these
    taken       in one turn for each: it is registered, gets what it has missed, and its cuts are deleted in one commit

Whoever dies meanwhile leaves Sessions with cuts, and the owner, or its heir, begins again. A Session of a dead node is
taken first: its cuts are the cursors of that node. That is one transaction, which compares that the node is still dead:
a node that joins again writes the same row before it loads its Sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from holdfast.cluster.arriving import ARRIVED_FILTERS, Arriving, Cuts, digest_of, give, read_filters, read_missed
from holdfast.cluster.crossing import CrossedMessage, Rows
from holdfast.cluster.receivers import ClusterTable
from holdfast.core.tickets import CommitTicket, StorageFailure, TicketsTogether
from holdfast.retained.leases import Lease, leases_of
from holdfast.scheduling.waiting import as_deferred, settled
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.durable import DurableSessionStates
from holdfast.sessions.state import StoredSession
from holdfast.storage import layouts
from holdfast.storage.committer import IWriteKind, Write
from holdfast.storage.driver import Bulk, Connection, Cursor
from holdfast.storage.postgres_values import BigIntegers, Texts
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.watch.lazy_log import LogThrottle

#: Sessions that are loaded together, and entries of the routing table that are changed in one turn
_AT_ONCE, _PER_TURN = 50, 50
_OWN = "SELECT id FROM sessions WHERE owner = ? AND id = ANY(CAST(? AS bigint[]))"
_CUTS = "SELECT session_id, origin, number FROM session_cuts WHERE session_id = ANY(CAST(? AS bigint[]))"
_LEASES = (
    f"SELECT {layouts.retained_leases.names} FROM retained_leases WHERE node = ? "  # noqa: S608
    "AND client_id = ANY(CAST(? AS text[]))"
)
_IS_DEAD = "SELECT 1 FROM cluster_members WHERE node = ? AND state IN ('dead', 'left') FOR SHARE"
_TAKE = "UPDATE sessions SET owner = ? WHERE owner = ? AND id = ANY(CAST(? AS bigint[])) RETURNING id"
_CUT = (
    "INSERT INTO session_cuts SELECT moved.id, c.origin, c.number FROM unnest(CAST(? AS bigint[])) AS moved (id), "
    "cluster_cursors c WHERE c.node = ? AND moved.id NOT IN (SELECT session_id FROM session_cuts)"
)
_TAKE_LEASES = "UPDATE retained_leases SET node = ? WHERE node = ? AND session = ANY(CAST(? AS bigint[]))"


@frozen
class Loaded:
    """A Session that has come, with what it has missed."""

    stored: StoredSession
    cuts: Cuts
    missed: Sequence[CrossedMessage]
    leases: Sequence[Lease]


@implementer(IWriteKind)
class LoadedSessions:
    """Deletes the cuts of Sessions that are loaded. The key is the id of the Session."""

    name = "loaded sessions"
    order = 94

    def __init__(self, bulk: Bulk) -> None:
        self._bulk = bulk

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> None:
        """Delete the cuts."""
        keys: list[Any] = [(write.key,) for write in writes]
        self._bulk.delete(cursor, layouts.session_cuts, ("session_id",), keys)

    def committed(self, result: Any) -> None:
        """Do nothing."""

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Do nothing: the deliveries have failed with them, and the next process of this node looks again."""


class Adopting:
    """Loads Sessions that have come to this node.

    ``register`` gives a stored Session to the registry, and tells whether it lives. ``cross`` lets a message cross to a
    node, this one here. ``ask_for_hints`` asks all nodes for the numbers of their last rows.
    """

    _log = Logger()

    def __init__(
        self,
        durable: DurableStore,
        states: DurableSessionStates,
        rows: Rows,
        table: ClusterTable,
        clock: IReactorTime,
        *,
        cross: Callable[[int, OutgoingMessage, int], None],
        register: Callable[[StoredSession, Sequence[Lease]], tuple[Session, bool]],
        ask_for_hints: Callable[[], None],
    ) -> None:
        self.node = durable.node
        self._durable = durable
        self._states = states
        self._rows = rows
        self._table = table
        self._clock = clock
        self._cross = cross
        self._register = register
        self._ask_for_hints = ask_for_hints
        self._kind = LoadedSessions(durable.bulk)
        self._arriving: dict[int, Arriving] = {}
        #: by id: who waits until a Session is loaded
        self._wanted: dict[int, list[Deferred[None]]] = {}
        #: cuts of Sessions that this node could not give away: they are not in the database
        self._returned: dict[int, Cuts] = {}
        self._is_busy = False
        self._stopped = False
        self._throttle = LogThrottle(self._log, clock.seconds, 60, write=self._log.warn)
        #: how many Sessions have come so far
        self.count = 0

    def stop(self) -> None:
        """Load nothing more."""
        self._stopped = True

    @property
    def _parts(self) -> OpenStore:
        parts = self._durable.parts
        if parts is None or self._stopped:
            raise NotNow
        return parts

    # --- expecting ----------------------------------------------------------------------------------------------------

    def expect_stored(self, connection: Connection) -> list[int]:
        """Expect all Sessions that had come before this process began. Return their ids."""
        cursor = connection.cursor()
        cursor.execute(ARRIVED_FILTERS, (self.node,))
        for identifier, topic_filter, qos in cursor.fetchall():
            self._receiver(identifier).subscribe(self._table, topic_filter, qos)
        return list(self._arriving)

    @as_deferred
    async def expect(self, identifiers: Sequence[int]) -> None:
        """Expect the messages for stored Sessions; fire when all nodes send them."""
        found = await self._parts.readers.read(partial(read_filters, identifiers))
        gate = TicketsTogether()
        changed = 0
        for identifier, filters in found.items():
            arriving = self._receiver(identifier)
            for topic_filter in [each for each in arriving.filters if each not in filters]:
                arriving.unsubscribe(self._table, topic_filter)
            for topic_filter, qos in filters.items():
                gate.add(arriving.subscribe(self._table, topic_filter, qos))
                changed += 1
                if not changed % _PER_TURN:
                    await self._turn()
        await settled(gate.ticket())

    def _receiver(self, identifier: int) -> Arriving:
        arriving = self._arriving.get(identifier)
        if arriving is None:
            arriving = self._arriving[identifier] = Arriving(self.node, identifier, self._cross)
        return arriving

    def digest(self, identifier: int) -> int:
        """Return the digest of the Topic Filters that are expected for a Session."""
        arriving = self._arriving.get(identifier)
        return digest_of(() if arriving is None else arriving.filters.items())

    def dismiss(self, identifier: int) -> None:
        """Expect a Session no longer, unless it is being loaded: it is here, or does not come."""
        arriving = self._arriving.get(identifier)
        if arriving is not None and identifier not in self._wanted:
            self._end(identifier, arriving)

    def _end(self, identifier: int, arriving: Arriving) -> None:
        del self._arriving[identifier]
        arriving.is_over = True
        arriving.held = None
        self._forget(arriving)

    def _forget(self, arriving: Arriving) -> None:
        for topic_filter in list(islice(arriving.filters, _PER_TURN)):
            arriving.unsubscribe(self._table, topic_filter)
        if arriving.filters:
            self._clock.callLater(0, self._forget, arriving)

    # --- taking from dead nodes ---------------------------------------------------------------------------------------

    @as_deferred
    async def take(self, identifiers: Sequence[int], dead: int) -> None:
        """Take Sessions from a node that is dead; nothing happens if it is not."""
        await self.expect(identifiers)
        await self._parts.writer.run(partial(_take, self.node, dead, identifiers))

    # --- loading ------------------------------------------------------------------------------------------------------

    @property
    def returned(self) -> list[int]:
        """The ids of the Sessions that this node has forgotten, and could not give away."""
        return list(self._returned)

    def adopt(self, identifier: int) -> Deferred[None]:
        """Load a Session of this node. Fires when it is loaded, or could not be."""
        answer: Deferred[None] = Deferred()
        self._wanted.setdefault(identifier, []).append(answer)
        self._go_on()
        return answer

    def come_back(self, identifier: int, cuts: Cuts) -> Deferred[None]:
        """Load a Session that this node has forgotten, and could not give away."""
        self._returned[identifier] = cuts
        return self.adopt(identifier)

    def _go_on(self) -> None:
        if self._is_busy or not self._wanted:
            return
        self._is_busy = True
        batch = list(islice(self._wanted, _AT_ONCE))
        self._adopt(batch).addErrback(self._failed).addCallback(lambda _: self._done(batch))

    def _failed(self, failure: Any) -> None:
        if failure.check(StorageFailure, NotNow):
            self._throttle.log("adopt", f"Sessions of other nodes cannot be loaded yet: {failure.getErrorMessage()}")
        else:
            self._log.failure("Sessions of other nodes are not loaded", failure)

    def _done(self, batch: Sequence[int]) -> None:
        self._is_busy = False
        for identifier in batch:
            for answer in self._wanted.pop(identifier):
                answer.callback(None)
        self._go_on()

    @as_deferred
    async def _adopt(self, batch: Sequence[int]) -> None:
        await self.expect(batch)
        self._ask_for_hints()
        await self._rows.caught_up()
        self._rows.hold()
        try:
            for identifier in batch:
                self._receiver(identifier).held = []
            position = {**self._rows.position(), self.node: self._rows.newest()}
            await settled(self._parts.writer.flushed())
            loaded = await self._parts.readers.read(partial(self._load, batch, position))
            for each in loaded:
                self._take_in(each)
                await self._turn()
            here = {each.stored.record.identifier for each in loaded}
            for identifier in batch:
                if identifier not in here:  # it belongs to another node, or is over
                    self._end(identifier, self._receiver(identifier))
        finally:
            for identifier in batch:
                arriving = self._arriving.get(identifier)
                if arriving is not None:
                    arriving.held = None
            self._rows.go_on()

    def _load(self, batch: Sequence[int], upto: Mapping[int, int], connection: Connection) -> list[Loaded]:
        """Read Sessions, with what they have missed up to these numbers. Runs in a reader's thread."""
        cursor = connection.cursor()
        cursor.execute(_OWN, (self.node, BigIntegers(batch)))
        own = [identifier for (identifier,) in cursor.fetchall()]
        if not own:
            return []
        sessions = self._states.load_some(connection, own)
        cuts: dict[int, dict[int, int]] = {}
        cursor.execute(_CUTS, (BigIntegers(own),))
        for identifier, origin, number in cursor.fetchall():
            cuts.setdefault(identifier, {})[origin] = number
        known = {identifier: cuts.get(identifier) or self._returned.get(identifier, {}) for identifier in own}
        missed = read_missed(connection, sessions, known, upto)
        cursor.execute(_LEASES, (self.node, Texts([stored.principal.client_id for stored in sessions])))
        leases = leases_of(cursor.fetchall())
        return [
            Loaded(
                stored,
                known[stored.record.identifier],
                missed[stored.record.identifier],
                [lease for lease in leases if lease.client_id == stored.principal.client_id],
            )
            for stored in sessions
        ]

    def _take_in(self, loaded: Loaded) -> None:
        """Give a Session to the registry, and what it has missed to the Session, in one commit."""
        identifier = loaded.stored.record.identifier
        parts, arriving = self._parts, self._receiver(identifier)
        if not loaded.cuts:  # it is loaded already
            self._end(identifier, arriving)
            return
        held = arriving.held or ()
        after: CommitTicket = parts.writer.submit(Write(self._kind, identifier, None, 50))
        session, lives = self._register(loaded.stored, loaded.leases)
        self._returned.pop(identifier, None)
        self._end(identifier, arriving)
        self.count += 1
        if lives:
            for crossed in loaded.missed:
                give(session, OutgoingMessage(crossed.message, after, crossed.replaces))
            for outgoing in held:
                give(session, OutgoingMessage(outgoing.message, after, outgoing.replaces))

    def _turn(self) -> Deferred[None]:
        """Fire in the next turn of the reactor."""
        answer: Deferred[None] = Deferred()
        self._clock.callLater(0, answer.callback, None)
        return answer


class NotNow(Exception):
    """The store is closed: this node stops."""

    def __init__(self) -> None:
        super().__init__("this node stops")


def _take(node: int, dead: int, identifiers: Sequence[int], connection: Connection) -> int:
    """Take Sessions of a dead node, with its cursors as their cuts. Return how many."""
    cursor = connection.cursor()
    cursor.execute("SET LOCAL synchronous_commit = on")
    cursor.execute(_IS_DEAD, (dead,))
    if not cursor.fetchall():
        return 0
    cursor.execute(_TAKE, (node, dead, BigIntegers(identifiers)))
    taken = [identifier for (identifier,) in cursor.fetchall()]
    if taken:
        cursor.execute(_CUT, (BigIntegers(taken), dead))
        cursor.execute(_TAKE_LEASES, (node, dead, BigIntegers(taken)))
    return len(taken)
