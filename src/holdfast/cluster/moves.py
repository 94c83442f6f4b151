"""The Sessions of a member: a CONNECT first looks for its Session at the other nodes.

How it works. A stored Session has one owner (``sessions.owner``), which alone writes its rows. A client that connects
to this node goes through these steps, unless its Session is here:

    look up   all CONNECTs of a turn in one read: the owner of the Session, and the nodes that have a Will of the client
    nobody    the row of the new Session is written before its CONNACK. Of two nodes that do it at one time, one has the
              row, and the other one looks up again
    expect    the messages for the Session come here too (:mod:`.adopting`)
    ask       the owner gives it away (:mod:`.releasing`); a node with a Will settles it
    adopt     the Session is loaded

The client waits for :data:`PATIENCE` at most: then it is told that the server is unavailable. The search goes on as
long as the owner may still answer, since its commit decides. A dead owner is not asked: once others have taken over
from it, this node takes the Session.

A second CONNECT of the same client ends the first one's connection, and has its turn when the first search is over.

A Session that ends with its connection is stored nowhere. So each node tells the others who has connected, and they end
older connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from attrs import define, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from holdfast.cluster.adopting import Adopting, NotNow
from holdfast.cluster.crossing import Rows
from holdfast.cluster.messages import Connected, Outcome, Release, Released
from holdfast.cluster.receivers import ClusterTable
from holdfast.cluster.releasing import Releasing, read_unused
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.identity.interfaces import Principal
from holdfast.retained.leases import Lease
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred, settled
from holdfast.sessions.accounts import OverLimit
from holdfast.sessions.connection.connection import Connection as Link
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.durable import DurableSessionStates
from holdfast.sessions.limits import Limits
from holdfast.sessions.registry import Access, SessionRegistry, Unavailable
from holdfast.sessions.state import ISessionRecord, StoredSession
from holdfast.storage import layouts
from holdfast.storage.driver import Connection
from holdfast.storage.postgres_values import SmallIntegers, Texts
from holdfast.storage.store import DurableStore
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Will

#: seconds that a client waits for its Session
PATIENCE = 10.0
#: seconds until a question is repeated, and until a search that found nothing to do looks up again
_ASK_AGAIN, _LOOK_AGAIN = 2.0, 0.25
#: seconds between two looks for Sessions that have come, or whose owner is dead
_INTERVAL = 5.0
#: Sessions of one look, messages that are looked up in one, and clients that one message tells
_SESSIONS, _MESSAGES, _CLIENTS = 50, 1000, 500
#: seconds in which two connections count as made at one time: then the higher revision is the later one
_AT_ONE_TIME = 2.0

_TAKEN = "another connection uses the same Client Identifier"
_OWNERS = (
    "SELECT client_id, id, owner FROM sessions WHERE client_id = ANY(CAST(? AS text[])) "
    "AND (expires_at IS NULL OR expires_at <> 0)"
)
_WILLS = (
    "SELECT client_id, node FROM wills WHERE node = ANY(CAST(? AS smallint[])) AND client_id = ANY(CAST(? AS text[]))"
)
_CLAIM = (
    f"INSERT INTO sessions ({layouts.sessions.names}) VALUES (?, ?, ?, ?, ?, NULL, NULL, ?) "  # noqa: S608
    "ON CONFLICT DO NOTHING RETURNING id"
)
_ARRIVED = f"SELECT id FROM sessions WHERE owner = ? AND id IN (SELECT session_id FROM session_cuts) LIMIT {_SESSIONS}"  # noqa: S608
_ORPHANS = "FROM session_cuts WHERE session_id NOT IN (SELECT id FROM sessions)"
_OF_DEAD = f"SELECT id, owner FROM sessions WHERE owner = ANY(CAST(? AS smallint[])) LIMIT {_SESSIONS}"  # noqa: S608


class Neighbours(Protocol):
    """The other nodes, as the Sessions of this one see them."""

    rows: Rows

    def tell_node(self, node: int, message: Release | Released | Connected) -> None:
        """Send a message to a node."""

    def ask_for_hints(self) -> None:
        """Ask all nodes for the numbers of their last rows."""

    def lives(self, node: int) -> bool:
        """Tell whether nobody has taken over from a node, so that it may answer."""

    def living(self) -> list[int]:
        """Return the other nodes that live."""

    def dead(self) -> list[int]:
        """Return the nodes that are dead: others have taken over from them."""


@frozen
class _Place:
    """Where the Session of a client is, and its Wills at other nodes."""

    identifier: int | None = None
    owner: int | None = None
    wills: tuple[int, ...] = ()


@define(eq=False)
class _Waiting:
    """A client that waits for its Session. ``answer`` is called once."""

    link: Link
    principal: Principal
    ends: bool
    expiry_interval: float | None
    answer: Deferred[Unavailable | None]
    patience: IDelayedCall | None = None

    @property
    def waits(self) -> bool:
        """Whether it has got no answer yet."""
        return not self.answer.called


@define(eq=False)
class _Search:
    """The search for the Session of one client, and whoever waits for the next one."""

    present: _Waiting
    next: _Waiting | None = None


class ClusterRegistry(SessionRegistry):
    """The Sessions of a member of a cluster."""

    _log = Logger()

    def __init__(
        self, *, durable: DurableStore, neighbours: Neighbours, table: ClusterTable,
        cross: Callable[[int, OutgoingMessage, int], None], **parts: Any,
    ) -> None:  # fmt: skip
        """``parts`` are those of :class:`SessionRegistry`."""
        super().__init__(**parts)
        states: DurableSessionStates = parts["states"]
        states.moves = True
        self.node = durable.node
        self._durable = durable
        self._stored = states
        self._neighbours = neighbours
        self.adopting = Adopting(
            durable, states, neighbours.rows, table, self._clock, cross=cross, register=self._register,
            ask_for_hints=neighbours.ask_for_hints,
        )  # fmt: skip
        self.releasing = Releasing(
            durable, states, neighbours.rows, session_of=self.session_of, give_up=self._give_up, let_go=self._let_go,
            come_back=self.adopting.come_back, tell=neighbours.tell_node,
        )  # fmt: skip
        self._searches: dict[str, _Search] = {}
        self._to_look_up: dict[str, Deferred[_Place]] = {}
        self._to_claim: list[tuple[tuple[Any, ...], Deferred[bool]]] = []
        #: records of new Sessions whose rows are written already
        self._claimed: dict[str, ISessionRecord] = {}
        self._asked: dict[int, Deferred[Outcome | None]] = {}
        #: by Client Identifier: the revision and the time (seconds) of its connection to this node
        self._since: dict[str, tuple[int, float]] = {}
        self._to_tell: dict[str, int] = {}
        self._job = PeriodicJob(
            self._look, name="looking for Sessions that have moved", interval=_INTERVAL, clock=self._clock,
            foreseen=(StorageFailure, NotNow),
        )  # fmt: skip
        #: messages with QoS 0 in the queues of Sessions that have moved
        self.lost = 0

    def start(self) -> None:
        """Load the Sessions that have come, from now on. The exchange with the other nodes has begun."""
        self._job.start(0)

    def _stop_timers(self) -> None:
        self._job.stop()
        self.adopting.stop()
        super()._stop_timers()

    def restore(self, limits_of: Callable[[str], Limits]) -> None:
        """Take over what an earlier process has stored, and expect the Sessions that it had not loaded."""
        super().restore(limits_of)
        parts = self._durable.parts
        assert parts is not None
        with parts.database.explaining_errors():
            connection = parts.database.connect_reader()
            try:
                self.adopting.expect_stored(connection)
            finally:
                connection.close()

    # --- CONNECT ------------------------------------------------------------------------------------------------------

    def before_connect(
        self, link: Link, principal: Principal, *, clean_start: bool, expiry_interval: float | None
    ) -> Deferred[Unavailable | None] | None:
        """Look for the Session of a client, unless it is here."""
        client_id = principal.client_id
        search = self._searches.get(client_id)
        if (search is None and client_id in self._sessions) or self._is_over_limit(link, principal):
            return None
        waiting = _Waiting(link, principal, clean_start, expiry_interval, Deferred())
        waiting.patience = self._clock.callLater(PATIENCE, self._answer, waiting, Unavailable())
        if search is None:
            self._search(_Search(waiting))
            return waiting.answer
        for earlier in (search.present, search.next):
            if earlier is not None and earlier.waits:
                self._answer(earlier, Unavailable(), _TAKEN)
        search.next = waiting
        return waiting.answer

    def _is_over_limit(self, link: Link, principal: Principal) -> bool:
        """Tell whether :meth:`connect` will refuse a client, so that no Session has to move, and no row is written."""
        try:
            if self._accounts is not None:
                self._accounts.check(principal, None, link.limits, link.listener)
        except OverLimit:
            return True
        return False

    def _answer(self, waiting: _Waiting, why_not: Unavailable | None, taken: str | None = None) -> None:
        """Answer a client, once; with ``taken``, another connection has its Client Identifier."""
        if not waiting.waits:
            return
        if waiting.patience is not None and waiting.patience.active():
            waiting.patience.cancel()
        if taken is not None and not waiting.link.is_closed:
            with waiting.link.guard:
                waiting.link.close(ReasonCode.SESSION_TAKEN_OVER, taken)
        waiting.answer.callback(why_not)

    def _search(self, search: _Search) -> None:
        self._searches[search.present.principal.client_id] = search
        found = self._find(search.present)
        found.addErrback(self._not_found)
        found.addCallback(lambda why_not: self._found(search, why_not))
        found.addErrback(lambda failure: self._log.failure("a search for a Session has failed", failure))

    def _not_found(self, failure: Any) -> Unavailable:
        if not failure.check(StorageFailure, NotNow):
            self._log.failure("a search for a Session has failed", failure)
        return Unavailable()

    def _found(self, search: _Search, why_not: Unavailable | None) -> None:
        present = search.present
        client_id = present.principal.client_id
        del self._searches[client_id]
        try:
            self._answer(present, why_not)
        finally:
            record = self._claimed.pop(client_id, None)
            if record is not None:  # the client has gone, or was refused
                record.ended()
            if search.next is not None and search.next.waits:
                self._search(_Search(search.next))

    @as_deferred
    async def _find(self, waiting: _Waiting) -> Unavailable | None:
        """Bring the Session of a client here, or make room for a new one. Return why that is not possible."""
        client_id = waiting.principal.client_id
        before: _Place | None = None
        while waiting.waits and not self._stopping:
            leaving = self.releasing.leaving(client_id)
            if leaving is not None:
                await settled(leaving)
            if client_id in self._sessions:
                return None
            place = await self._look_up(client_id)
            if client_id in self._sessions:
                return None
            if place == before:
                await self._pause()
            before = place
            if place.owner == self.node and place.identifier is not None:
                if self.releasing.leaving(client_id) is None:
                    await self.adopting.adopt(place.identifier)
                    if client_id in self._sessions:
                        return None
            elif place.owner is not None and place.identifier is not None:
                if not self._neighbours.lives(place.owner):
                    await self.adopting.take([place.identifier], place.owner)
                elif await self._move_here(waiting, place.owner, place.identifier) is Outcome.REFUSED:
                    return Unavailable(is_foreign=True)
            elif place.wills:
                outcome = await self._ask(place.wills[0], waiting, 0)
                if outcome is Outcome.REFUSED:
                    return Unavailable(is_foreign=True)
            elif waiting.expiry_interval == 0 or await self._claim(waiting):
                return None
        return Unavailable()

    async def _move_here(self, waiting: _Waiting, owner: int, identifier: int) -> Outcome | None:
        """Expect a Session, and ask its owner for it."""
        if not waiting.ends:
            await self.adopting.expect([identifier])
        outcome = await self._ask(owner, waiting, self.adopting.digest(identifier))
        if outcome is Outcome.MOVED:
            await self.adopting.adopt(identifier)
        elif outcome is not Outcome.LATER:
            place = await self._look_up(waiting.principal.client_id)  # it may have given it away before it died
            if (place.identifier, place.owner) == (identifier, self.node):
                await self.adopting.adopt(identifier)
            else:
                self.adopting.dismiss(identifier)
        else:  # the next try expects it again
            self.adopting.dismiss(identifier)
        return outcome

    async def _ask(self, node: int, waiting: _Waiting, digest: int) -> Outcome | None:
        """Ask a node for the Session of a client until it answers. Return None if it is dead."""
        parts = self._durable.parts
        if parts is None:
            raise NotNow
        principal = waiting.principal
        ask = Release(parts.clock.next_revision(), principal.client_id, principal.username, waiting.ends, digest)
        answer = self._asked[ask.number] = Deferred()
        repeat = PeriodicJob(
            partial(self._tell_again, node, ask), name="asking for a Session", interval=_ASK_AGAIN, clock=self._clock
        )
        repeat.start(_ASK_AGAIN)
        self._neighbours.tell_node(node, ask)
        try:
            return await answer
        finally:
            repeat.stop()
            self._asked.pop(ask.number, None)

    def _tell_again(self, node: int, ask: Release) -> None:
        if self._neighbours.lives(node) and not self._stopping:
            self._neighbours.tell_node(node, ask)
        else:
            answer = self._asked.get(ask.number)
            if answer is not None and not answer.called:
                answer.callback(None)

    def _pause(self) -> Deferred[None]:
        paused: Deferred[None] = Deferred()
        self._clock.callLater(_LOOK_AGAIN, paused.callback, None)
        return paused

    # --- looking up and claiming, for all clients of a turn -----------------------------------------------------------

    def _look_up(self, client_id: str) -> Deferred[_Place]:
        """Find the owner of the stored Session of a client, and the other nodes with a Will of it."""
        if not self._to_look_up:
            self._clock.callLater(0, self._look_all_up)
        answer = self._to_look_up[client_id] = Deferred()
        return answer

    def _look_all_up(self) -> None:
        asked, self._to_look_up = self._to_look_up, {}
        parts = self._durable.parts
        if parts is None:
            for answer in asked.values():
                answer.errback(NotNow())
            return
        others = [*self._neighbours.living(), *self._neighbours.dead()]
        reading = parts.readers.read(partial(_read_places, list(asked), others))

        def found(places: dict[str, _Place]) -> None:
            for client_id, answer in asked.items():
                answer.callback(places.get(client_id, _Place()))

        def failed(failure: Any) -> None:
            for answer in asked.values():
                answer.errback(failure)

        reading.addCallbacks(found, failed)
        reading.addErrback(lambda failure: self._log.failure("a search for Sessions has failed", failure))

    async def _claim(self, waiting: _Waiting) -> bool:
        """Write the row of a new Session. Return False if another node was first."""
        principal, expiry = waiting.principal, waiting.expiry_interval
        record = self._states.record(principal.client_id)
        row = (
            record.identifier, principal.client_id, principal.username, waiting.link.listener,
            None if expiry is None else int(expiry), self.node,
        )  # fmt: skip
        answer: Deferred[bool] = Deferred()
        if not self._to_claim:
            self._clock.callLater(0, self._claim_all)
        self._to_claim.append((row, answer))
        if not await answer:
            return False
        self._claimed[principal.client_id] = record
        return True

    def _claim_all(self) -> None:
        claims, self._to_claim = self._to_claim, []
        parts = self._durable.parts
        if parts is None:
            for _, answer in claims:
                answer.errback(NotNow())
            return
        writing = parts.writer.run(partial(_write_claims, [row for row, _ in claims]))

        def written(identifiers: set[int]) -> None:
            for row, answer in claims:
                answer.callback(row[0] in identifiers)

        def failed(failure: Any) -> None:
            for _, answer in claims:
                answer.errback(failure)

        writing.addCallbacks(written, failed)
        writing.addErrback(lambda failure: self._log.failure("new Sessions are not written", failure))

    def _new_record(self, client_id: str) -> ISessionRecord:
        return self._claimed.pop(client_id, None) or super()._new_record(client_id)

    # --- Sessions that come and go ------------------------------------------------------------------------------------

    def _register(self, stored: StoredSession, leases: Sequence[Lease]) -> tuple[Session, bool]:
        """Take over a Session that has come; end it if its time is over."""
        present = self._sessions.get(stored.principal.client_id)
        if present is not None and present.record.identifier == stored.record.identifier:
            return present, False
        session, lives = self._take(stored)
        self._leases.inherit(leases, self._sessions.get)
        if not lives:
            self._endings.end(session)
        return session, lives

    def _give_up(self, newcomer: Principal, ends: bool) -> Session | Outcome:
        """End the connection of a client that has connected to another node, and settle its Will.

        Return the Session that may move, or what has become of it. See :meth:`connect`.
        """
        client_id = newcomer.client_id
        present = self._sessions.get(client_id)
        access = Access.RESUMES if present is None else self.ownership(present.principal, newcomer)
        if access is Access.REFUSED:
            return Outcome.REFUSED
        link = self._links.get(client_id)
        if link is not None:
            self._counters.takeovers += 1
            with link.guard:
                link.close(ReasonCode.SESSION_TAKEN_OVER, _TAKEN)
        self._settle_restored_wills(newcomer, None)
        self._wills.publish_due(client_id)
        session = self._sessions.get(client_id)
        if session is None:
            return Outcome.GONE
        if ends or access is Access.REPLACES or not session.record.durable:
            self._end(session)
            self._wills.publish_due(client_id)
            return Outcome.GONE
        self._wills.client_back(client_id)
        return session

    def _let_go(self, session: Session) -> None:
        """Let a Session leave memory without ending it."""
        client_id = session.client_id
        self._expiries.discard(client_id)
        del self._sessions[client_id]
        self._closed(session)
        self._leases.leave(client_id)
        self.lost += sum(queued.delivery is None for queued in session.queue)
        leave = getattr(session.record, "leave", None)
        assert leave is not None  # only stored Sessions move
        leave()
        self._endings.forget(session)

    @as_deferred
    async def _look(self) -> None:
        """Load the Sessions that have come, take those of dead nodes, and delete messages that nobody needs."""
        parts = self._durable.parts
        if parts is None:
            return
        arrived, has_orphans = await parts.readers.read(partial(_read_arrived, self.node))
        for identifier in {*arrived, *self.adopting.returned}:
            await self.adopting.adopt(identifier)
        if has_orphans:  # they would keep rows for ever
            await parts.writer.run(_delete_orphans)
        dead = self._neighbours.dead()
        if dead and self.node < min(self._neighbours.living(), default=256):
            of_dead = await parts.readers.read(partial(_read_of_dead, dead))
            for node in dead:
                identifiers = [identifier for identifier, owner in of_dead if owner == node]
                if identifiers:
                    await self.adopting.take(identifiers, node)
            for identifier, _ in of_dead:
                await self.adopting.adopt(identifier)
            if of_dead:
                self._job.hurry()
        await self._delete_unused()

    async def _delete_unused(self) -> None:
        parts, unused = self._durable.parts, list(islice(self._stored.unused, _MESSAGES))
        if parts is None or not unused:
            return
        self._stored.unused.difference_update(unused)
        # Behind the commits of all deliveries: one that is not stored yet would not be found.
        await settled(parts.writer.flushed())
        for identifier in await parts.readers.read(partial(read_unused, unused)):
            self._stored.forget_message(identifier)

    # --- connections --------------------------------------------------------------------------------------------------

    def connect(
        self,
        link: Link,
        principal: Principal,
        *,
        clean_start: bool,
        expiry_interval: float | None,
        window: int,
        will: Will | None,
        untold: bool = False,
    ) -> tuple[Session, bool, CommitTicket]:
        """Give the client its Session, and tell the other nodes."""
        connected = super().connect(
            link, principal, clean_start=clean_start, expiry_interval=expiry_interval, window=window, will=will,
            untold=untold,
        )  # fmt: skip
        parts = self._durable.parts
        if parts is not None and not untold:
            revision = parts.clock.next_revision()
            self._since[principal.client_id] = revision, self._clock.seconds()
            if not self._to_tell:
                self._clock.callLater(0, self._tell_connected)
            self._to_tell[principal.client_id] = revision
        return connected

    def disconnect(self, link: Link, session: Session, will: Will | None) -> None:
        """Note that a connection is gone."""
        if self._links.get(session.client_id) is link:
            self._since.pop(session.client_id, None)
        super().disconnect(link, session, will)

    def _tell_connected(self) -> None:
        clients, self._to_tell = list(self._to_tell.items()), {}
        for node in self._neighbours.living():
            for start in range(0, len(clients), _CLIENTS):
                self._neighbours.tell_node(node, Connected(tuple(clients[start : start + _CLIENTS])))

    # --- messages of other nodes --------------------------------------------------------------------------------------

    def told(self, node: int, message: Release | Released | Connected) -> None:
        """Act on a message of another node."""
        if self._stopping:
            return
        if isinstance(message, Release):
            self.releasing.asked(node, message)
        elif isinstance(message, Released):
            answer = self._asked.get(message.number)
            if answer is not None and not answer.called:
                answer.callback(message.outcome)
        else:
            for client_id, revision in message.clients:
                self._connected_elsewhere(client_id, revision)

    def _connected_elsewhere(self, client_id: str, revision: int) -> None:
        """End the connection of a client that has connected to another node later."""
        link, since = self._links.get(client_id), self._since.get(client_id)
        if link is None or since is None:
            return
        own, at = since
        if own > revision and self._clock.seconds() - at < _AT_ONE_TIME:
            return
        self._counters.takeovers += 1
        with link.guard:
            link.close(ReasonCode.SESSION_TAKEN_OVER, _TAKEN)


def _read_places(client_ids: Sequence[str], nodes: Sequence[int], connection: Connection) -> dict[str, _Place]:
    cursor = connection.cursor()
    cursor.execute(_OWNERS, (Texts(client_ids),))
    places = {client_id: _Place(identifier, owner) for client_id, identifier, owner in cursor.fetchall()}
    if nodes:
        cursor.execute(_WILLS, (SmallIntegers(nodes), Texts(client_ids)))
        for client_id, node in cursor.fetchall():
            place = places.get(client_id, _Place())
            places[client_id] = _Place(place.identifier, place.owner, (*place.wills, node))
    return places


def _write_claims(rows: Sequence[tuple[Any, ...]], connection: Connection) -> set[int]:
    cursor = connection.cursor()
    written: set[int] = set()
    for row in rows:
        cursor.execute(_CLAIM, row)
        written.update(identifier for (identifier,) in cursor.fetchall())
    return written


def _read_arrived(node: int, connection: Connection) -> tuple[list[int], bool]:
    """Return Sessions of a node that it has not loaded, and whether there are cuts without a Session."""
    cursor = connection.cursor()
    cursor.execute("SELECT session_id FROM session_cuts LIMIT 1")
    if not cursor.fetchall():  # as nearly always: the table of all Sessions is not read
        return [], False
    cursor.execute(_ARRIVED, (node,))
    arrived = [identifier for (identifier,) in cursor.fetchall()]
    cursor.execute(f"SELECT EXISTS (SELECT 1 {_ORPHANS})")
    ((has_orphans,),) = cursor.fetchall()
    return arrived, bool(has_orphans)


def _delete_orphans(connection: Connection) -> None:
    connection.cursor().execute(f"DELETE {_ORPHANS}")


def _read_of_dead(nodes: Sequence[int], connection: Connection) -> list[tuple[int, int]]:
    cursor = connection.cursor()
    cursor.execute(_OF_DEAD, (SmallIntegers(nodes),))
    return list(cursor.fetchall())
