"""Sessions that come to this node: they are expected, taken from dead nodes, and loaded with the second look.

How it works. A Session with rows in ``session_cuts`` belongs to its owner, which has not loaded it. The owner loads
some of them at a time (:data:`_AT_ONCE`):

    expect      their receivers are in the routing table (:mod:`.arriving`), and all nodes know it
    caught up   the rows of other nodes are applied up to now, so no cut is above this node's cursors
    held        no row is applied any more, and messages of own clients are kept in memory from here on
    read        all rows of these Sessions, their cuts, and the messages behind these
    entered     in one turn for each (:mod:`.entering`)

That is the way of small Sessions. Nothing is held while a large one is read and built. Then what has come meanwhile is
read, again and again until it is little, and that only is read while messages are held.

Whoever dies meanwhile leaves Sessions with cuts, and the owner, or its heir, begins again. A Session of a dead node is
taken first: its cuts are the cursors of that node. That is one transaction, which compares that the node is still dead:
a node that joins again writes the same row before it loads its Sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.cluster.arriving import ARRIVED_FILTERS, Arriving, Cuts, digest_of, read_filters, read_size
from holdfast.cluster.crossing import Rows
from holdfast.cluster.entering import FEW, Coming, Entering, Register
from holdfast.cluster.receivers import ClusterTable
from holdfast.core.tickets import StorageFailure, TicketsTogether
from holdfast.scheduling.long_work import LongWork
from holdfast.scheduling.waiting import as_deferred, settled
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.durable import DurableSessionStates
from holdfast.storage.driver import Connection
from holdfast.storage.postgres_values import BigIntegers
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.watch.lazy_log import LogThrottle

#: Sessions that are loaded together, and entries of the routing table that are changed in one turn
_AT_ONCE, _PER_TURN = 50, 50
#: messages and Topic Filters of small Sessions, at most
_SMALL = 200
#: looks for what has come while Sessions were built, before messages are held for longer
_LOOKS = 20
_IS_DEAD = "SELECT 1 FROM cluster_members WHERE node = ? AND state IN ('dead', 'left') FOR SHARE"
_TAKE = "UPDATE sessions SET owner = ? WHERE owner = ? AND id = ANY(CAST(? AS bigint[])) RETURNING id"
_CUT = (
    "INSERT INTO session_cuts SELECT moved.id, c.origin, c.number FROM unnest(CAST(? AS bigint[])) AS moved (id), "
    "cluster_cursors c WHERE c.node = ? AND moved.id NOT IN (SELECT session_id FROM session_cuts)"
)
_TAKE_LEASES = "UPDATE retained_leases SET node = ? WHERE node = ? AND session = ANY(CAST(? AS bigint[]))"


class Adopting:
    """Loads Sessions that have come to this node.

    ``cross`` lets a message cross to a node, this one here. ``ask_for_hints`` asks all nodes for the numbers of their
    last rows.
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
        work: LongWork,
        register: Register,
        ask_for_hints: Callable[[], None],
    ) -> None:
        self.node = durable.node
        self._durable = durable
        self._rows = rows
        self._table = table
        self._clock = clock
        self._cross = cross
        self._entering = Entering(durable.node, states, work, register)
        self._ask_for_hints = ask_for_hints
        self._arriving: dict[int, Arriving] = {}
        #: by id: who waits until a Session is loaded
        self._wanted: dict[int, list[Deferred[None]]] = {}
        #: cuts of Sessions that this node could not give away: they are not in the database
        self._returned: dict[int, Cuts] = {}
        self._is_busy = False
        self._stopped = False
        self._throttle = LogThrottle(self._log, clock.seconds, 60, write=self._log.warn)
        #: messages and Topic Filters of a Session that is read while messages are held, at most
        self.most_small = _SMALL
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
    async def expect(self, identifiers: Sequence[int]) -> bool:
        """Expect the messages for stored Sessions; fire when all nodes send them.

        Return whether the Sessions are small.
        """
        found, size = await self._parts.readers.read(partial(_read_expected, identifiers))
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
        return size + changed <= self.most_small

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
        answers = [answer for identifier in batch for answer in self._wanted.pop(identifier)]
        self._is_busy = False
        for answer in answers:  # whoever is told may want other Sessions
            answer.callback(None)
        self._go_on()

    @as_deferred
    async def _adopt(self, batch: Sequence[int]) -> None:
        is_small = await self.expect(batch)
        self._ask_for_hints()
        await self._rows.caught_up()
        hold = _Hold(self._rows, [self._receiver(identifier) for identifier in batch])
        coming: list[Coming] = []
        try:
            if is_small:
                hold.begin()
            upto = self._upto()
            coming = await self._entering.read(self._parts, batch, upto, self._returned)
            await self._catch_up(coming, upto, hold)
            for each in coming:
                self._take_in(each)
                await self._turn()
        finally:
            hold.end()
            self._entering.leave(coming)
        here = {each.identifier for each in coming}
        for identifier in batch:
            arriving = self._arriving.get(identifier)
            if arriving is not None and identifier not in here and not self._entering.has_unwritten(identifier):
                self._end(identifier, arriving)  # it belongs to another node, is over, or was loaded before
        for each in coming:
            await self._entering.join_groups(each)

    def _upto(self) -> dict[int, int]:
        """Return the numbers of the last rows that are applied, or that own clients have caused."""
        return {**self._rows.position(), self.node: self._rows.newest()}

    async def _catch_up(self, coming: Sequence[Coming], upto: Mapping[int, int], hold: _Hold) -> None:
        """Give Sessions what they have missed, until little is left and messages are held."""
        for look in range(_LOOKS):
            is_little = all(len(each.missed) <= FEW for each in coming)
            if hold.is_on and is_little:
                return
            hold.end()
            for each in coming:
                await self._entering.give(self._parts, each)
            if is_little or look == _LOOKS - 1:
                hold.begin()
            since, upto = upto, self._upto()
            await self._entering.look_again(self._parts, coming, since, upto)
        for each in coming:
            await self._entering.give(self._parts, each, FEW)

    def _take_in(self, coming: Coming) -> None:
        """Let a Session enter, with the messages that were held for it."""
        arriving = self._receiver(coming.identifier)
        held = arriving.held or ()
        self._returned.pop(coming.identifier, None)
        self._end(coming.identifier, arriving)
        self.count += 1
        self._entering.enter(coming, held)

    def _turn(self) -> Deferred[None]:
        """Fire in the next turn of the reactor."""
        answer: Deferred[None] = Deferred()
        self._clock.callLater(0, answer.callback, None)
        return answer


class _Hold:
    """Whether messages are held for Sessions that come: rows in the database, and those of own clients in memory."""

    def __init__(self, rows: Rows, receivers: Sequence[Arriving]) -> None:
        self._rows = rows
        self._receivers = receivers
        self.is_on = False

    def begin(self) -> None:
        """Hold messages from now on."""
        if not self.is_on:
            self.is_on = True
            self._rows.hold()
            for receiver in self._receivers:
                receiver.held = []

    def end(self) -> None:
        """Hold none any more. Those of own clients are rows as well."""
        if self.is_on:
            self.is_on = False
            for receiver in self._receivers:
                receiver.held = None
            self._rows.go_on()


class NotNow(Exception):
    """The store is closed: this node stops."""

    def __init__(self) -> None:
        super().__init__("this node stops")


def _read_expected(identifiers: Sequence[int], connection: Connection) -> tuple[dict[int, dict[str, int]], int]:
    return read_filters(identifiers, connection), read_size(identifiers, _SMALL + 1, connection)


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
