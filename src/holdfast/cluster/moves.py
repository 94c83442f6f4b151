"""The Sessions of a member: they come from other nodes, and go to these, with their clients.

How it works. A stored Session has one owner (``sessions.owner``), which alone writes its rows. :class:`ClusterRegistry`
is the registry of the Sessions that this node owns. It looks for the Session of a client that connects
(:mod:`.searches`), loads those that have come (:mod:`.adopting`), gives away those that others ask for
(:mod:`.releasing`), and ends connections of clients that have come to other nodes (:mod:`.twins`).

At intervals it loads the Sessions that have come and that no client has waited for, and takes those of dead nodes: so
these get their messages while their clients are away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.cluster.adopting import Adopting, NotNow
from holdfast.cluster.messages import Connected, Outcome, Release, Released
from holdfast.cluster.receivers import ClusterTable
from holdfast.cluster.releasing import Releasing, read_unused
from holdfast.cluster.searches import TAKEN, Searches
from holdfast.cluster.twins import Twins
from holdfast.cluster.whereabouts import Neighbours
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
from holdfast.sessions.restoring import restoring
from holdfast.sessions.state import ISessionRecord, StoredSession
from holdfast.storage.driver import Connection
from holdfast.storage.postgres_values import SmallIntegers
from holdfast.storage.store import DurableStore
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Will

#: seconds between two looks for Sessions that have come, or whose owner is dead
_INTERVAL = 5.0
#: Sessions of one look, and messages that are looked up in one
_SESSIONS, _MESSAGES = 50, 1000
#: Topic Filters that enter the routing table in one step, and messages that are shared with other nodes in one
_FILTERS_PER_STEP, _MESSAGES_PER_STEP = 4, 200

_ARRIVED = f"SELECT id FROM sessions WHERE owner = ? AND id IN (SELECT session_id FROM session_cuts) LIMIT {_SESSIONS}"  # noqa: S608
_ORPHANS = "FROM session_cuts WHERE session_id NOT IN (SELECT id FROM sessions)"
_OF_DEAD = f"SELECT id, owner FROM sessions WHERE owner = ANY(CAST(? AS smallint[])) LIMIT {_SESSIONS}"  # noqa: S608


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
            durable, states, neighbours.rows, table, self._clock, cross=cross, work=self._work, register=self,
            ask_for_hints=neighbours.ask_for_hints,
        )  # fmt: skip
        self.releasing = Releasing(
            durable, states, neighbours.rows, session_of=self.session_of, give_up=self._give_up, let_go=self._let_go,
            come_back=self.adopting.come_back, tell=neighbours.tell_node,
        )  # fmt: skip
        self._searches = Searches(
            durable,
            states,
            neighbours,
            self.adopting,
            self.releasing,
            self._clock,
            is_here=self._sessions.__contains__,
            has_will=self._wills.has,
            is_foreign=self._is_foreign,
        )
        self._twins = Twins(neighbours, self._clock, self._end_older)
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
        self._searches.stop()
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
        """Look for the Session and the Wills of a client, unless it has connected to this Session here before."""
        client_id = principal.client_id
        session = self._sessions.get(client_id)
        is_known = session is not None and session.attendance.connections and client_id not in self._searches
        if is_known or self._is_over_limit(link, principal):
            return None
        return self._searches.begin(link, principal, clean_start, expiry_interval)

    def _is_foreign(self, principal: Principal) -> bool:
        """Tell whether :meth:`connect` will refuse a client because its Session belongs to another user."""
        session = self._sessions.get(principal.client_id)
        return session is not None and self.ownership(session.principal, principal) is Access.REFUSED

    def _is_over_limit(self, link: Link, principal: Principal) -> bool:
        """Tell whether :meth:`connect` will refuse a client, so that no Session has to move, and no row is written."""
        try:
            if self._accounts is not None:
                self._accounts.check(principal, None, link.limits, link.listener)
        except OverLimit:
            return True
        return False

    def _new_record(self, client_id: str) -> ISessionRecord:
        return self._searches.claimed(client_id) or super()._new_record(client_id)

    # --- Sessions that come and go ------------------------------------------------------------------------------------

    def has(self, stored: StoredSession) -> bool:
        """Tell whether a Session is registered."""
        present = self._sessions.get(stored.principal.client_id)
        return present is not None and present.record.identifier == stored.record.identifier

    def build(self, stored: StoredSession) -> tuple[Session, Iterator[int]]:
        """Return a Session that takes no messages yet, and the steps that build it."""
        session = self._restored(stored)
        session.is_over = True
        return session, chain(restoring(session, stored), self._in_table(session, shared=False))

    def enter(self, session: Session, stored: StoredSession, leases: Sequence[Lease]) -> bool:
        """Register a Session, which takes messages from now on. End it if its time is over."""
        session.is_over = False
        lives = self._enter(session, stored)
        self._leases.inherit(leases, self._sessions.get)
        if not lives:
            self._endings.end(session)
        return lives

    def join_groups(self, session: Session) -> Iterator[int]:
        """Make a registered Session a member of its groups, in steps."""
        return self._in_table(session, shared=True)

    def _in_table(self, session: Session, shared: bool) -> Iterator[int]:
        for number, (topic_filter, subscription) in enumerate(list(session.subscriptions.items())):
            if not number % _FILTERS_PER_STEP:
                yield 1
            # The client may have changed it meanwhile, or the Session has left.
            is_valid = session.subscriptions.get(topic_filter) is subscription and session.is_over is not shared
            if is_valid and (subscription.group is not None) is shared:
                self._router.table.subscribe(session, subscription)

    def forget(self, session: Session) -> None:
        """Let a Session leave memory without ending it, in steps. Its rows stay."""
        leave = getattr(session.record, "leave", None)
        assert leave is not None  # only stored Sessions move
        leave()
        self._endings.forget(session, self._share(session))

    def _share(self, session: Session) -> Iterator[int]:
        """Note that another node may have deliveries of the Session's messages, and count those that are lost."""
        for number, kept in enumerate(session.kept()):
            if not number % _MESSAGES_PER_STEP:
                yield 1
            if kept is None:
                self.lost += 1
            else:
                kept.share(self._stored.forget_if_unused)

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
                link.close(ReasonCode.SESSION_TAKEN_OVER, TAKEN)
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
        """Let a Session go to another node."""
        client_id = session.client_id
        self._expiries.discard(client_id)
        del self._sessions[client_id]
        self._closed(session)
        self._leases.leave(client_id)
        self.forget(session)

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
            self._twins.connected(principal.client_id, parts.clock.next_revision())
        return connected

    def disconnect(self, link: Link, session: Session, will: Will | None) -> None:
        """Note that a connection is gone."""
        if self._links.get(session.client_id) is link:
            self._twins.left(session.client_id)
        super().disconnect(link, session, will)

    def up(self, node: int) -> None:
        """Note that this node tells another one everything, from now on."""
        self._twins.up(node)

    def gone(self, node: int) -> None:
        """Note that the process of a node is gone."""
        self._twins.gone(node)

    # --- messages of other nodes --------------------------------------------------------------------------------------

    def told(self, node: int, message: Release | Released | Connected) -> None:
        """Act on a message of another node."""
        if self._stopping:
            return
        if isinstance(message, Release):
            self.releasing.asked(node, message)
        elif isinstance(message, Released):
            self._searches.answered(message)
        else:
            self._twins.told(node, message)

    def _end_older(self, client_id: str) -> None:
        """End the connection of a client that has connected to another node later."""
        link = self._links.get(client_id)
        if link is not None:
            self._counters.takeovers += 1
            with link.guard:
                link.close(ReasonCode.SESSION_TAKEN_OVER, TAKEN)


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
