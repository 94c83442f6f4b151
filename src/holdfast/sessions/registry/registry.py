"""All Sessions by Client Identifier: take-over, expiry, and the end of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.auth.interfaces import Principal
from holdfast.sessions.counters import Counters
from holdfast.sessions.limits import Limits
from holdfast.sessions.registry.restoring import restored
from holdfast.sessions.routing.router import Router
from holdfast.sessions.routing.wills import Wills
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.interfaces import ISessionStates
from holdfast.sessions.state.memory import UNRECORDED
from holdfast.sessions.state.subscription import Subscription
from holdfast.tickets import COMMITTED, CommitTicket, both
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Will


class Closable(Protocol):
    """A Network Connection the Server can end."""

    limits: Limits
    listener: str

    def close(self, reason: ReasonCode, explanation: str) -> None:
        """End the Network Connection with a Reason Code."""


class SessionRegistry:
    """Knows every Session; each belongs to exactly one Client Identifier and has at most one Network Connection."""

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
    ) -> None:
        self._clock = clock
        self._now = now
        self._router = router
        self._wills = wills
        self._states = states
        self._counters = counters
        self._sessions: dict[str, Session] = {}
        self._connections: dict[str, Closable] = {}
        self._expiring: dict[str, IDelayedCall] = {}
        self._stopping = False

    @property
    def session_count(self) -> int:
        """How many Sessions there are, connected or not."""
        return len(self._sessions)

    @property
    def connection_count(self) -> int:
        """How many Clients are connected."""
        return len(self._connections)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def restore(self, limits_of: Callable[[str], Limits]) -> None:
        """Take back every Session and Will of the process before; ``limits_of`` gives the limits by listener.

        Expiry goes on counting. A Client that was connected then counts as gone since now.
        """
        now = self._now()
        sessions, wills = self._states.load()
        for stored in sessions:
            session = restored(stored, limits_of(stored.listener), self._states, self._counters, self._now)
            self._sessions[session.client_id] = session
            for subscription in session.subscriptions.values():
                self._router.subscribe(session, subscription)
            interval = stored.expiry_interval
            expires_at = stored.expires_at
            if expires_at is None and interval is not None:
                expires_at = now + round(1000 * interval)
                session.record.detached(interval, expires_at)
            if expires_at is not None:
                self._expire(session, max(0.0, (expires_at - now) / 1000))
        self._wills.restore(wills)
        if sessions or wills:
            self._log.info(
                "{sessions} Sessions and {wills} Will Messages are restored", sessions=len(sessions), wills=len(wills)
            )

    def connect(
        self,
        connection: Closable,
        principal: Principal,
        clean_start: bool,
        expiry_interval: float | None,
        window: int,
        will: Will | None,
    ) -> tuple[Session, bool, CommitTicket]:
        """Give the Client its Session, old or new; tell whether it was there before, and when that is durable.

        Another Network Connection of the same Client Identifier is ended first [MQTT5-3.1.4-3]. The Will Message is
        kept, and a Session that ends is gone for good, before the Client hears that it is admitted.
        """
        client_id = principal.client_id
        other = self._connections.get(client_id)
        if other is not None:
            self._counters.takeovers += 1
            other.close(ReasonCode.SESSION_TAKEN_OVER, "another connection uses the same Client Identifier")
        self._wills.forgive(client_id)
        session = self._sessions.get(client_id)
        ended = COMMITTED
        if session is not None and clean_start:  # [MQTT5-3.1.2-4]
            ended = self._end(session)
            session = None
        present = session is not None
        if session is None:
            record = self._states.record(client_id) if expiry_interval != 0 else UNRECORDED
            session = Session(client_id, principal, connection.limits, self._states, record, self._counters, self._now)
            self._sessions[client_id] = session
        else:
            self._wills.client_back(client_id)
            self._cancel_expiry(client_id)
            session.principal = principal
            session.limits = connection.limits
        session.expiry_interval = expiry_interval
        session.window = window
        self._connections[client_id] = connection
        ticket = session.record.attached(principal, connection.listener, expiry_interval)
        kept = COMMITTED if will is None else self._wills.armed(principal, will, expiry_interval)
        return session, present, both(both(ended, ticket), kept)

    def disconnect(self, connection: Closable, session: Session, will: Will | None) -> None:
        """Take note that a Network Connection is gone; ``will`` is to be published unless it was a normal end.

        While the broker stops, Wills and Sessions are left as they are for the process that comes after.
        """
        client_id = session.client_id
        if self._connections.get(client_id) is not connection:
            return
        del self._connections[client_id]
        session.link = None
        expiry = session.expiry_interval
        if will is None:
            self._wills.disarmed(client_id)
        elif not self._stopping:
            self._wills.client_lost(session.principal, will, expiry)
        if expiry == 0:
            self._end(session)
            return
        self._router.give_up_shared(session, ended=False)
        expires_at = None
        if expiry is not None:
            expires_at = self._now() + round(1000 * expiry)
            self._expire(session, expiry)
        session.record.detached(expiry, expires_at)

    def rejected(self, session: Session) -> None:
        """Forget a Session that could not be stored, before its Client was admitted."""
        session.expiry_interval = 0

    def subscribe(
        self, session: Session, topic_filter: str, subscription: Subscription, replay_after: str | None
    ) -> CommitTicket:
        """Add or replace a subscription of the Session; ``topic_filter`` is as the Client wrote it.

        ``replay_after`` is where its replay stands ("": it is about to begin), None when there is none.
        """
        session.subscriptions[topic_filter] = subscription
        self._router.subscribe(session, subscription)
        return session.record.subscribed(topic_filter, subscription, replay_after)

    def unsubscribe(self, session: Session, topic_filter: str) -> CommitTicket | None:
        """Remove a subscription of the Session; None if there was none."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return None
        session.positions.pop(topic_filter, None)
        self._router.unsubscribe(session, topic_filter)
        return session.record.unsubscribed(topic_filter)

    def shut_down(self) -> None:
        """End every Network Connection because the broker stops.

        Wills are not published: it is not known that their Clients are gone. The next process publishes those of
        Clients that do not come back in time.
        """
        self._stopping = True
        for connection in list(self._connections.values()):
            connection.close(ReasonCode.SERVER_SHUTTING_DOWN, "the broker is shutting down")
        for client_id in list(self._expiring):
            self._cancel_expiry(client_id)
        self._wills.stop()

    def _expire(self, session: Session, delay: float) -> None:
        self._expiring[session.client_id] = self._clock.callLater(delay, self._expired, session)

    def _cancel_expiry(self, client_id: str) -> None:
        call = self._expiring.pop(client_id, None)
        if call is not None and call.active():
            call.cancel()

    def _expired(self, session: Session) -> None:
        self._counters.sessions_expired += 1
        self._end(session)

    def _end(self, session: Session) -> CommitTicket:
        """Discard a Session and all its state."""
        client_id = session.client_id
        self._cancel_expiry(client_id)
        del self._sessions[client_id]
        self._router.give_up_shared(session, ended=True)
        for topic_filter in session.subscriptions:
            self._router.unsubscribe(session, topic_filter)
        session.subscriptions.clear()
        self._wills.session_ended(client_id)
        return session.end()
