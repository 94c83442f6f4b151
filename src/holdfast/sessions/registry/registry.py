"""All Sessions by Client Identifier: take-over, expiry, and the end of each.

A Session ends when its Client asks for a Clean Start, when it expires, or at the disconnect if its Session Expiry
Interval is 0. :mod:`~holdfast.sessions.registry.endings` takes ended Sessions apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.auth.denials import Denied, tell_nobody
from holdfast.auth.interfaces import IAuthorizer, Principal
from holdfast.scheduling.deadlines import Deadlines
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.limits import Limits
from holdfast.sessions.registry.client_names import ClientNames
from holdfast.sessions.registry.dismissals import Dismissals
from holdfast.sessions.registry.endings import Endings
from holdfast.sessions.registry.grants import Grants, OnRevoke
from holdfast.sessions.registry.ownership import Access, NotTheOwner, Ownership, names_ignored
from holdfast.sessions.registry.restoring import restored
from holdfast.sessions.routing.leases import Leases
from holdfast.sessions.routing.router import Router
from holdfast.sessions.routing.wills import Wills
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.interfaces import ISessionStates
from holdfast.sessions.state.memory import UNRECORDED
from holdfast.sessions.state.subscription import ReplayProgress, Subscription
from holdfast.terminal_text import counted
from holdfast.tickets import COMMITTED, CommitTicket, both
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Will

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
        denied: Denied = tell_nobody,
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
        self._links: dict[str, IClientLink] = {}
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

    def link_of(self, client_id: str) -> IClientLink | None:
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
        registered, and are taken apart once the reactor runs.
        """
        now = self._now()
        sessions, wills = self._states.load()
        over: list[Session] = []
        for stored in sessions:
            limits = limits_of(stored.listener)
            session = restored(
                stored,
                limits=limits,
                states=self._states,
                counters=self._counters,
                authorizer=self._authorizer,
                clock=self._clock,
                work=self._work,
                now=self._now,
            )
            for subscription in session.subscriptions.values():
                self._router.table.subscribe(session, subscription)
            interval = stored.expiry_interval
            expires_at = stored.expires_at
            if stored.superseded or (expires_at is not None and expires_at <= now):
                over.append(session)
                self._counters.sessions_expired += not stored.superseded
                continue
            self._sessions[session.client_id] = session
            self._opened(session, stored.listener)
            if expires_at is None and interval is not None:
                # Its Client was connected when the process ended.
                expires_at = now + round(1000 * interval)
                session.attendance.came_or_went(now)
                session.record.detached(interval, expires_at)
            if expires_at is not None:
                self._expiries.set(session.client_id, (expires_at - now) / 1000)
        self._leases.restore(self._sessions.get)
        for session in over:  # now that all other members of their groups are known
            self._endings.end(session)
        self._wills.restore(wills)
        if sessions or wills:
            self._log.info(
                "restored: {told_sessions} and {told_wills}",
                told_sessions=counted(len(sessions), "Session"), told_wills=counted(len(wills), "Will Message"),
                sessions=len(sessions), wills=len(wills),
            )  # fmt: skip

    def before_admission(self) -> Deferred[None] | None:
        """Return None if Clients may be admitted; else a Deferred: see :meth:`Wills.before_admission`."""
        return self._wills.before_admission()

    def clock_moved(self, step: int) -> None:
        """Keep what runs since the start, and end what an earlier process has begun at its time.

        The clock has jumped by ``step`` (milliseconds). Messages are moved in this turn, all else in portions.
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
        link: IClientLink,
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
            record = self._states.record(client_id) if expiry_interval != 0 else UNRECORDED
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

    def disconnect(self, link: IClientLink, session: Session, will: Will | None) -> None:
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
        self._router.table.subscribe(session, subscription)
        return session.subscribe(topic_filter, subscription, progress)

    def unsubscribe(self, session: Session, topic_filter: str) -> CommitTicket | None:
        """Remove a subscription of the Session. Return None if there was none."""
        ticket = session.unsubscribe(topic_filter)
        if ticket is not None:
            self._router.table.unsubscribe(session, topic_filter)
        return ticket

    def shut_down(self) -> Deferred[None]:
        """End every Network Connection because the broker stops, in portions. Fires when all are ended.

        Wills are not published now, since the Clients may come back to the next process. That process publishes the
        Wills of Clients that do not come back in time, and ends the Sessions whose end is not complete.
        """
        self._stopping = True
        self._expiries.stop()
        self.dismissals.stop()
        self._wills.stop()
        self._leases.stop()
        self._endings.stop()
        return self._work.do(self, self._close_all()) or succeed(None)

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
