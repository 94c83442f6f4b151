"""All Sessions by Client Identifier: take-over, expiry, and the end of each.

A Session ends when its Client asks for a Clean Start, when it expires, or at the disconnect if its Session Expiry
Interval is 0. ``Endings`` takes ended Sessions apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial

from attrs import frozen
from sortedcontainers import SortedList
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.terminal import counted
from holdfast.core.tickets import COMMITTED, CommitTicket, both
from holdfast.identity.interfaces import IAuthorizer, OnDenied, Principal, tell_nobody
from holdfast.retained.leases import Lease
from holdfast.scheduling.deadlines import Deadlines
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.leases import Leases
from holdfast.sessions.limits import Limits
from holdfast.sessions.restoring import restored, restoring
from holdfast.sessions.revocation import Dismissals, Grants, OnRevoke
from holdfast.sessions.router import Router
from holdfast.sessions.state import (
    LONG_AGO,
    UNRECORDED,
    ISessionRecord,
    ISessionStates,
    ReplayProgress,
    StoredSession,
    StoredWill,
    Subscription,
)
from holdfast.sessions.wills import Wills
from holdfast.watch.lazy_log import LogThrottle
from holdfast.watch.log import client_text
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Will

# The Client Identifiers of all Sessions, in their order.
#
# A list of a hundred thousand clients is shown page by page. Each page begins behind the last Client Identifier of the
# page before, wherever that is: a dictionary could be entered at its beginning only.


class ClientNames:
    """A sorted set of Client Identifiers. To add or remove one, or to find a place, takes a few microseconds."""

    def __init__(self) -> None:
        self._names = SortedList()

    def __len__(self) -> int:
        return len(self._names)

    def add(self, client_id: str) -> None:
        """Add a Client Identifier that is not there."""
        self._names.add(client_id)

    def remove(self, client_id: str) -> None:
        """Remove a Client Identifier. Raises ValueError if it is not there."""
        self._names.remove(client_id)

    def after(self, client_id: str, most: int) -> list[str]:
        """Return the next Client Identifiers behind this one, at most so many. Those behind "" are the first ones."""
        start = self._names.bisect_right(client_id)
        found: list[str] = list(self._names.islice(start, start + most))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)


# The owner of a Session: the user that may resume it.
#
# A Session belongs to the User Name that its Client has proven. The Session of a guest belongs to nobody, so a user
# never resumes it: a stranger may have filled it. Without authentication no name is proven, and all Clients may resume
# all Sessions by their Client Identifiers, as the standard has it [MQTT5-3.1.2-5].
#
#     the Session belongs to    a guest       alice         bob
#     nobody                    resumes       replaces      replaces
#     alice                     is refused    resumes       is refused
#
# A Session that was stored before authentication was configured belongs to the User Name that its Client gave.


class Access(Enum):
    """What a Client may do with the Session of its Client Identifier."""

    RESUMES = "resumes"
    REPLACES = "replaces"  #: the Session ends, and the Client gets a new one
    REFUSED = "refused"


#: answers for the Principal of a Session, and a Principal that connects with its Client Identifier
Ownership = Callable[[Principal, Principal], Access]


class NotTheOwner(Exception):
    """The Session of this Client Identifier belongs to another user."""


@frozen
class Unavailable:
    """Why a Client cannot have its Session now: ``is_foreign`` if it belongs to another user, else try again later."""

    is_foreign: bool = False


def owners_only(of_session: Principal, newcomer: Principal) -> Access:
    """Let only its user resume a Session. For a broker that authenticates its Clients."""
    owner = of_session.username or None  # nobody can prove an empty name
    if owner == newcomer.username:
        return Access.RESUMES
    return Access.REPLACES if owner is None else Access.REFUSED


def names_ignored(_of_session: Principal, _newcomer: Principal) -> Access:
    """Let every Client resume a Session. For a broker without authentication."""
    return Access.RESUMES


#: Sessions that one step looks at when the clock has jumped: some 20 microseconds each
_FOLLOWED_PER_STEP = 10


@frozen
class Held:
    """What waits for a connected Client: bytes that it has not read, queued bytes, and messages in flight."""

    unsent: int
    queued_bytes: int
    inflight_messages: int
    inflight_bytes: int


class SessionRegistry:
    """Knows every Session. Each belongs to one Client Identifier, and has at most one Network Connection."""

    _log = Logger()

    def __init__(
        self,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        router: Router,
        wills: Wills,
        states: ISessionStates,
        counters: Counters,
        work: LongWork,
        authorizer: IAuthorizer,
        ownership: Ownership = names_ignored,
        denied: OnDenied = tell_nobody,
        on_revoke: OnRevoke = OnRevoke.DISCONNECT,
        accounts: Accounts | None = None,
        leases: Leases,
    ) -> None:
        """With ``accounts``, Sessions and their bytes are counted by payer, and limited."""
        self._accounts = accounts
        self._clock = clock
        self._now = now
        self._router = router
        self._wills = wills
        self._leases = leases
        self._states = states
        self._counters = counters
        self._authorizer = authorizer
        self.ownership = ownership
        self._sessions: dict[str, Session] = {}
        #: the Client Identifiers of all Sessions, in their order
        self.names = ClientNames()
        self._links: dict[str, Connection] = {}
        self._expiries = Deadlines("the expiry of Sessions", clock, work, self._expired)
        self._endings = Endings(router, work, counters, clock.seconds)
        #: ends the connections of Clients whose identity has ended
        self.dismissals = Dismissals(clock=clock, now=now, work=work, links=self._links, sessions=self._sessions)
        #: grants subscriptions anew when permissions change
        self.grants = Grants(
            authorizer=authorizer,
            table=router.table,
            clock=clock,
            work=work,
            counters=counters,
            sessions=self._sessions,
            unsubscribe=self.unsubscribe,
            denied=denied,
            on_revoke=on_revoke,
        )
        self._work = work
        self._stopping = False
        self._limits_of: Callable[[str], Limits]

    @property
    def subscription_count(self) -> int:
        """The number of subscriptions of all Sessions, shared ones too."""
        return self._counters.holdings.subscriptions

    @property
    def session_count(self) -> int:
        """The number of Sessions, connected or not."""
        return len(self._sessions)

    @property
    def connection_count(self) -> int:
        """The number of connected Clients."""
        return len(self._links)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def connected(self) -> list[str]:
        """Return the Client Identifiers of the connected Clients."""
        return list(self._links)

    def link_of(self, client_id: str) -> Connection | None:
        """Return the Network Connection of a Client, None if it is away."""
        return self._links.get(client_id)

    def held_by(self, client_id: str) -> int:
        """Return the bytes that wait in the memory of this process for a connected Client; 0 if it is away."""
        held = self.held(client_id)
        return 0 if held is None else held.unsent + held.queued_bytes + held.inflight_bytes

    def held(self, client_id: str) -> Held | None:
        """Return what waits for a connected Client; None if it is away."""
        link, session = self._links.get(client_id), self._sessions.get(client_id)
        if link is None or session is None:
            return None
        return Held(link.unsent, session.queue.bytes, session.inflight.count, session.window.bytes)

    def close_client(self, client_id: str, reason: ReasonCode, explanation: str) -> bool:
        """End the connection of a Client. Returns whether it was connected."""
        link = self._links.get(client_id)
        if link is None:
            return False
        with link.guard:
            link.close(reason, explanation)
        return True

    def session_of(self, client_id: str) -> Session | None:
        """Return the Session of a Client, None if there is none."""
        return self._sessions.get(client_id)

    def kick(self, client_id: str) -> CommitTicket | None:
        """End the connection and the Session of a Client. Returns None if there is none.

        A connected Client gets DISCONNECT with Administrative action (0x98) in MQTT 5. Its Will is published, without
        its delay: the Session ends [MQTT5-3.1.3.2.2]. The ticket is settled when the next process would not find the
        Session either.
        """
        session = self._sessions.get(client_id)
        if session is None:
            return None
        self.close_client(client_id, ReasonCode.ADMINISTRATIVE_ACTION, "an operator has ended the Session")
        # The end of the connection may have ended the Session too.
        return self._end(session) if self._sessions.get(client_id) is session else COMMITTED

    def restore(self, limits_of: Callable[[str], Limits]) -> None:
        """Take over every Session and Will that an earlier process has stored.

        ``limits_of`` returns the limits of a listener. The time of expiry stays as it was stored. A Client
        that was connected then counts as disconnected now. Sessions that have ended, or expired meanwhile, are not
        registered, and are taken apart once the reactor runs. Raises StoreUnusable, and has changed nothing then.
        """
        self._limits_of = limits_of
        sessions, wills = self._states.load()
        leases = self._leases.load()
        over = [session for session, lives in map(self._take, sessions) if not lives]
        self._leases.restore(leases, self._sessions.get)
        for session in over:  # now that all other members of their groups are known
            self._endings.end(session)
        self._wills.restore(wills)
        if sessions or wills:
            self._log.info(
                "restored: {told_sessions} and {told_wills}",
                told_sessions=counted(len(sessions), "Session"), told_wills=counted(len(wills), "Will Message"),
                sessions=len(sessions), wills=len(wills),
            )  # fmt: skip

    def _take(self, stored: StoredSession) -> tuple[Session, bool]:
        """Take over a stored Session. Return it, and whether it lives; one that is over has to be ended."""
        session = self._restored(stored)
        for _ in restoring(session, stored):
            pass
        for subscription in session.subscriptions.values():
            self._router.table.subscribe(session, subscription)
        return session, self._enter(session, stored)

    def _restored(self, stored: StoredSession) -> Session:
        """Return a stored Session, without what :func:`restoring` adds."""
        return restored(
            stored,
            limits=self._limits_of(stored.listener),
            states=self._states,
            counters=self._counters,
            authorizer=self._authorizer,
            clock=self._clock,
            work=self._work,
            now=self._now,
        )

    def _enter(self, session: Session, stored: StoredSession) -> bool:
        """Register a Session that was restored. Return whether it lives; one that is over has to be ended."""
        now = self._now()
        interval = stored.expiry_interval
        expires_at = stored.expires_at
        if stored.superseded or (expires_at is not None and expires_at <= now):
            self._counters.sessions_expired += not stored.superseded
            return False
        self._sessions[session.client_id] = session
        self._opened(session, stored.listener)
        if expires_at is None and interval is not None:
            # Its Client was connected when the process ended.
            expires_at = now + round(1000 * interval)
            session.attendance.came_or_went(now)
            session.record.detached(interval, expires_at)
        if expires_at is not None:
            self._expiries.set(session.client_id, (expires_at - now) / 1000)
        return True

    def before_connect(
        self, link: Connection, principal: Principal, *, clean_start: bool, expiry_interval: float | None
    ) -> Deferred[Unavailable | None] | None:
        """Return None if :meth:`connect` may be called at once. Else the Deferred fires when it may, or tells why not.

        A node of a cluster looks for the Client's Session at the other nodes.
        """
        return None

    def before_admission(self) -> Deferred[None] | None:
        """Return None if Clients may be admitted; else a Deferred: see :meth:`Wills.before_admission`."""
        return self._wills.before_admission()

    def clock_moved(self, step: int) -> None:
        """Keep what runs since the start, and end what an earlier process has begun at its time.

        The clock has jumped by ``step`` (milliseconds). Messages are moved in this turn, all else in parts.
        """
        moved: set[OutgoingMessage] = set()
        for session in self._sessions.values():
            if session.queue or session.inflight.entries or session.queue.conflation is not None:
                session.expire_later(step, moved, self._states)
        self._work.do(self, self._follow_clock(step, list(self._sessions.values())))

    def _follow_clock(self, step: int, sessions: Sequence[Session]) -> Iterator[int]:
        for number, session in enumerate(sessions):
            if not number % _FOLLOWED_PER_STEP:
                yield 1
            client_id = session.client_id
            if self._sessions.get(client_id) is not session:  # it has ended since the clock has jumped
                continue
            now = self._now()
            session.received.clock_moved(step, now)
            begun_here = session.attendance.clock_moved(step, now)
            if client_id in self._links:
                if session.principal.expires_at is not None:
                    self.dismissals.attached(session.principal)
                continue
            left, interval = self._expiries.left(client_id), session.expiry_interval
            if left is None or interval is None:
                continue
            if begun_here:
                session.record.detached(interval, now + round(1000 * left))
            elif session.attendance.since is not None:
                ends_at = session.attendance.since + round(1000 * interval)
                self._expiries.set(client_id, max(0.0, (ends_at - now) / 1000))
        yield from self._wills.clock_moved()

    def connect(
        self,
        link: Connection,
        principal: Principal,
        *,
        clean_start: bool,
        expiry_interval: float | None,
        window: int,
        will: Will | None,
        untold: bool = False,
    ) -> tuple[Session, bool, CommitTicket]:
        """Give the Client its Session. Return it, whether it was present before, and the ticket of all changes.

        Another Network Connection of the same Client Identifier is ended first [MQTT5-3.1.4-3]. ``untold`` tells that
        the Client does not know its Client Identifier. The ticket covers the Session, the stored Will Message, and the
        deletion of an older Session after a Clean Start. Raises NotTheOwner or OverLimit, before anything changes.
        """
        client_id = principal.client_id
        present = self._sessions.get(client_id)
        access = Access.RESUMES if present is None else self.ownership(present.principal, principal)
        if access is Access.REFUSED:
            raise NotTheOwner
        if self._accounts is not None:
            self._accounts.check(principal, will, link.limits, link.listener)
        other = self._links.get(client_id)
        if other is not None:
            self._counters.takeovers += 1
            other.close(ReasonCode.SESSION_TAKEN_OVER, "another connection uses the same Client Identifier")
        self._settle_restored_wills(principal, will)
        self._wills.publish_due(client_id)  # before the Client can publish something newer
        # Looked up only now: the end of the other connection may have ended the Session too.
        session = self._sessions.get(client_id)
        ended = COMMITTED
        if session is not None and (clean_start or access is Access.REPLACES):  # [MQTT5-3.1.2-4]
            ended = self._end(session)
            self._wills.publish_due(client_id)
            session = None
        resumed = session is not None
        if session is None:
            record = self._new_record(client_id) if expiry_interval != 0 else UNRECORDED
            session = Session(
                client_id=client_id,
                principal=principal,
                limits=link.limits,
                states=self._states,
                record=record,
                counters=self._counters,
                authorizer=self._authorizer,
                clock=self._clock,
                work=self._work,
                now=self._now,
            )
            self._sessions[client_id] = session
            self._opened(session, link.listener)
        else:
            if self._accounts is not None:
                self._accounts.moved(client_id, link.listener)
            self._wills.client_back(client_id)
            self._expiries.discard(client_id)
        session.admit(principal, link.limits, expiry_interval, window)
        self._links[client_id] = link
        self._leases.client_back(client_id, partial(self._is_owner, principal))
        session.attendance.came_or_went(self._now())
        self.dismissals.attached(principal)
        ticket = session.record.attached(principal, link.listener, expiry_interval)
        kept = COMMITTED if will is None else self._wills.keep(principal, will, expiry_interval, untold)
        return session, resumed, both(both(ended, ticket), kept)

    def _new_record(self, client_id: str) -> ISessionRecord:
        """Return the record of a new Session."""
        return self._states.record(client_id)

    def disconnect(self, link: Connection, session: Session, will: Will | None) -> None:
        """Note that a Network Connection is gone. ``will`` is published; it is None after a normal end.

        While the broker stops, Wills and Sessions stay stored for the next process.
        """
        client_id = session.client_id
        if self._links.get(client_id) is not link:
            return
        del self._links[client_id]
        self._leases.client_lost(client_id)
        self.dismissals.left(client_id)
        session.attendance.came_or_went(self._now())
        expiry = session.expiry_interval
        if will is None:
            self._wills.discard(client_id)
        elif not self._stopping:
            self._wills.client_lost(session.principal, will, expiry)
        if expiry == 0:
            self._end(session)
            return
        expires_at = None
        if expiry is not None:
            expires_at = self._now() + round(1000 * expiry)
            self._expiries.set(client_id, expiry)
        session.record.detached(expiry, expires_at)
        if not self._stopping:
            self._endings.left(session)

    def renewed(self, session: Session, principal: Principal) -> None:
        """Note that a connected Client has proven its identity again, perhaps with another time at which it ends."""
        session.principal = principal
        self.dismissals.attached(principal)

    def rejected(self, session: Session) -> None:
        """Let a new Session end with its connection, since it could not be stored and its Client is refused."""
        session.expire_after(0)

    def subscribe(
        self, session: Session, topic_filter: str, subscription: Subscription, progress: ReplayProgress | None
    ) -> CommitTicket:
        """Add or replace a subscription of the Session. ``progress``: see :meth:`Session.subscribe`."""
        table = self._router.table
        table.subscribe(session, subscription)
        return both(table.gate, session.subscribe(topic_filter, subscription, progress))

    def unsubscribe(self, session: Session, topic_filter: str) -> CommitTicket | None:
        """Remove a subscription of the Session. Return None if there was none."""
        ticket = session.unsubscribe(topic_filter)
        if ticket is not None:
            self._router.table.unsubscribe(session, topic_filter)
        return ticket

    def shut_down(self) -> Deferred[None]:
        """End every Network Connection because the broker stops, in parts. Fires when all are ended.

        Wills are not published now, since the Clients may come back to the next process. That process publishes the
        Wills of Clients that do not come back in time, and ends the Sessions whose end is not complete.
        """
        self._stop_timers()
        return self._work.do(self, self._close_all()) or succeed(None)

    def cut_off(self) -> None:
        """End every Network Connection now: this process has lost its place in the cluster, and stores nothing more."""
        self._stop_timers()
        for link in list(self._links.values()):
            link.close(ReasonCode.SERVER_SHUTTING_DOWN, "this node has lost its lease in the cluster")

    def inherit(self, wills: Sequence[StoredWill], leases: Sequence[Lease]) -> None:
        """Take over stored Wills and leases of a dead node. Their delays and the grace are as after a restart.

        The Will of a Client that is connected here is over: it has come back.
        """
        absent = []
        for stored in wills:
            client_id = stored.principal.client_id
            if self._wills.has(client_id):  # a new one, whose row replaces this one
                continue
            if client_id in self._links:
                self._states.will_over(client_id)
            else:
                absent.append(stored)
        self._wills.restore(absent)
        self._leases.inherit(leases)

    def _stop_timers(self) -> None:
        self._stopping = True
        self._expiries.stop()
        self.dismissals.stop()
        self._wills.stop()
        self._leases.stop()
        self._endings.stop()

    def _close_all(self) -> Iterator[int]:
        for link in list(self._links.values()):
            yield 1
            link.close(ReasonCode.SERVER_SHUTTING_DOWN, "the broker is shutting down")

    def _opened(self, session: Session, listener: str) -> None:
        self.names.add(session.client_id)
        if self._accounts is not None:
            session.queue.charge_to(self._accounts.opened(session.principal, listener))

    def _closed(self, session: Session) -> None:
        self.names.remove(session.client_id)
        if self._accounts is not None:
            session.queue.charge_to(None)
            self._accounts.ended(session.client_id)

    def _settle_restored_wills(self, principal: Principal, will: Will | None) -> None:
        """Discard a Will found at start if its Client is back, perhaps with a new Session. Publish that of another.

        The Client Identifier tells first who is back. A Client without such a Will may be back under another one.
        """
        client_id = principal.client_id
        lost = self._wills.restored_for(client_id)
        if lost is not None and self.ownership(lost, principal) is Access.RESUMES:
            self._wills.client_back(client_id)
            return
        if lost is not None:
            self._wills.supersede(client_id)
        if will is not None:
            self._wills.returned(principal, will)

    def _is_owner(self, principal: Principal, username: str | None) -> bool:
        """Tell whether a Client may resume what belongs to a User Name under its Client Identifier."""
        return self.ownership(Principal(principal.client_id, username), principal) is Access.RESUMES

    def _expired(self, client_id: str) -> Iterator[int]:
        session = self._sessions.pop(client_id)
        self._closed(session)
        self._counters.sessions_expired += 1
        self._wills.session_ended(client_id)
        self._leases.session_ended(client_id)
        yield from self._endings.end_in_steps(session)

    def _end(self, session: Session) -> CommitTicket:
        """Discard a Session and all its state."""
        client_id = session.client_id
        self._expiries.discard(client_id)
        del self._sessions[client_id]
        self._closed(session)
        self._wills.session_ended(client_id)
        self._leases.session_ended(client_id)
        return self._endings.end(session)


# The end of Sessions: what a Session has is given to others or freed in parts.
#
# How it works. A Session that ends is out of the registry at once, gets no message any more, and is no member of its
# groups. So its Client can have a new Session in the same turn. The rest depends on its size, and is done in steps: the
# messages of shared subscriptions go to other members, the subscriptions and messages are removed, and last the
# Session's row is deleted.
#
# If that takes more than a turn, the stored Session is marked as expired first. A process that is killed meanwhile has
# moved some messages: each left this Session and entered another one in the same commit. The next process finds the
# marked Session and ends it again, with the rest of its messages.


#: Topic Filters that are removed in one step: each is one walk through the subscription tree
_FILTERS_PER_STEP = 4


class Endings:
    """Ends Sessions, and moves the shared messages of Sessions whose Clients are away."""

    _log = Logger()

    def __init__(self, router: Router, work: LongWork, counters: Counters, seconds: Callable[[], float]) -> None:
        self._router = router
        self._work = work
        self._counters = counters
        self._losses = LogThrottle(self._log, seconds, write=self._log.info)
        self._stopped = False

    def end(self, session: Session) -> CommitTicket:
        """End a Session. The ticket is settled when the next process would not find it either."""
        session.close()
        outcome = [COMMITTED]
        if self._do(session, self._steps(session, outcome)):
            return outcome[0]
        return session.record.detached(0, LONG_AGO)

    def end_in_steps(self, session: Session) -> Iterator[int]:
        """End a Session in steps of the caller's work."""
        session.close()
        session.record.detached(0, LONG_AGO)
        yield from self._steps(session, [])

    def forget(self, session: Session, first: Iterator[int]) -> None:
        """Take apart what this process has of a Session that another node serves now. Its rows stay.

        The steps ``first`` are done before its messages are discarded.
        """
        session.close()
        self._do(session, self._forget(session, first))

    def left(self, session: Session) -> None:
        """Give the shared messages of a Session whose Client is away to members that are online."""
        if session.groups:
            self._do(session, self._until_stopped(self._router.redeliver(session, ended=False)))

    def stop(self) -> None:
        """Leave the rest to the next process."""
        self._stopped = True

    def _do(self, session: Session, steps: Iterator[int]) -> bool:
        """Do the work, after earlier work for this Session. Returns whether it is done now."""
        try:
            done = self._work.do(session, steps)
        except Exception:  # noqa: BLE001 - the Client who begins a new Session is not to blame
            self._failed(Failure(), session)
            return False
        if done is not None:
            done.addErrback(self._failed, session)
        return done is None

    def _steps(self, session: Session, outcome: list[CommitTicket]) -> Iterator[int]:
        yield from self._until_stopped(self._router.redeliver(session, ended=True))
        # Only now: its subscriptions tell which other members can take its messages.
        yield from self._until_stopped(self._unsubscribe(session))
        waiting = session.waiting
        yield from self._until_stopped(session.discard())
        if not self._stopped:
            outcome[:] = [session.record.ended()]
            self._dropped(session, waiting)

    def _forget(self, session: Session, first: Iterator[int]) -> Iterator[int]:
        yield from self._until_stopped(first)
        yield from self._until_stopped(self._unsubscribe(session))
        yield from self._until_stopped(session.discard())

    def _dropped(self, session: Session, count: int) -> None:
        """Count the messages that have waited for the Client of a Session that has ended."""
        if count:
            self._counters.messages_dropped_session_ended += count
            client = client_text(session.client_id)
            self._losses.log("", f"the Session of {client} has ended; messages in its queue that are dropped: {count}")

    def _unsubscribe(self, session: Session) -> Iterator[int]:
        for number, topic_filter in enumerate(session.subscriptions):
            if not number % _FILTERS_PER_STEP:
                yield 1
            self._router.table.unsubscribe(session, topic_filter)
        session.subscriptions.clear()

    def _until_stopped(self, steps: Iterator[int]) -> Iterator[int]:
        for count in steps:
            yield count
            if self._stopped:
                return

    def _failed(self, failure: Failure, session: Session) -> None:
        client = client_text(session.client_id)
        self._log.failure("the Session of {client} was not ended in full", failure, client=client)
