"""All Sessions by Client Identifier: take-over, expiry, and the end of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.interfaces import Principal
from holdfast.sessions.counters import Counters
from holdfast.sessions.limits import Limits
from holdfast.sessions.router import Router
from holdfast.sessions.session import Session
from holdfast.sessions.states import ISessionStates
from holdfast.sessions.subscriptions import Subscription
from holdfast.sessions.wills import Wills
from holdfast.tickets import CommitTicket
from holdfast.wire import ReasonCode
from holdfast.wire.packets import Will


class Closable(Protocol):
    """A Network Connection the Server can end."""

    def close(self, reason: ReasonCode, explanation: str) -> None:
        """End the Network Connection with a Reason Code."""


class SessionRegistry:
    """Knows every Session; each belongs to exactly one Client Identifier and has at most one Network Connection."""

    def __init__(
        self,
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

    @property
    def session_count(self) -> int:
        """How many Sessions there are, connected or not."""
        return len(self._sessions)

    @property
    def connection_count(self) -> int:
        """How many Clients are connected."""
        return len(self._connections)

    def connect(
        self,
        connection: Closable,
        principal: Principal,
        clean_start: bool,
        expiry_interval: float | None,
        limits: Limits,
        window: int,
    ) -> tuple[Session, bool, CommitTicket]:
        """Give the Client its Session, old or new; tell whether it was there before, and when that is durable.

        Another Network Connection of the same Client Identifier is ended first [MQTT5-3.1.4-3].
        """
        client_id = principal.client_id
        other = self._connections.get(client_id)
        if other is not None:
            self._counters.takeovers += 1
            other.close(ReasonCode.SESSION_TAKEN_OVER, "another connection uses the same Client Identifier")
        session = self._sessions.get(client_id)
        if session is not None and clean_start:  # [MQTT5-3.1.2-4]
            self._end(session)
            session = None
        present = session is not None
        if session is None:
            session = Session(client_id, principal, limits, self._states, self._counters, self._now)
            self._sessions[client_id] = session
        else:
            self._wills.client_back(client_id)
            self._cancel_expiry(client_id)
            session.principal = principal
            session.limits = limits
        session.expiry_interval = expiry_interval
        session.window = window
        self._connections[client_id] = connection
        return session, present, self._states.started(client_id, expiry_interval)

    def disconnect(self, connection: Closable, session: Session, will: Will | None) -> None:
        """Take note that a Network Connection is gone; ``will`` is to be published unless it was a normal end."""
        client_id = session.client_id
        if self._connections.get(client_id) is not connection:
            return
        del self._connections[client_id]
        session.link = None
        expiry = session.expiry_interval
        if will is not None:
            self._wills.client_lost(session.principal, will, expiry)
        if expiry == 0:
            self._end(session)
        elif expiry is not None:
            self._expiring[client_id] = self._clock.callLater(expiry, self._end, session)

    def subscribe(self, session: Session, topic_filter: str, subscription: Subscription) -> CommitTicket:
        """Add or replace a subscription of the Session; ``topic_filter`` is as the Client wrote it."""
        session.subscriptions[topic_filter] = subscription
        self._router.subscribe(session, subscription)
        return self._states.subscribed(session.client_id, subscription)

    def unsubscribe(self, session: Session, topic_filter: str) -> CommitTicket | None:
        """Remove a subscription of the Session; None if there was none."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return None
        self._router.unsubscribe(session, topic_filter)
        return self._states.unsubscribed(session.client_id, topic_filter)

    def shut_down(self) -> None:
        """End every Network Connection because the broker stops, and publish the Wills that are due by that."""
        for connection in list(self._connections.values()):
            connection.close(ReasonCode.SERVER_SHUTTING_DOWN, "the broker is shutting down")
        self._wills.publish_all()
        for client_id in list(self._expiring):
            self._cancel_expiry(client_id)

    def _cancel_expiry(self, client_id: str) -> None:
        call = self._expiring.pop(client_id, None)
        if call is not None and call.active():
            call.cancel()

    def _end(self, session: Session) -> None:
        """Discard a Session and all its state."""
        client_id = session.client_id
        self._cancel_expiry(client_id)
        del self._sessions[client_id]
        for topic_filter in session.subscriptions:
            self._router.unsubscribe(session, topic_filter)
        session.subscriptions.clear()
        self._wills.session_ended(client_id)
        self._states.ended(client_id)
