"""Will Messages [MQTT5-3.1.2.5]: published when a Client is lost, perhaps after a delay.

The states of a Will, by the call that ends each:

    kept       ``keep`` stores it before its Client is admitted
    discarded  ``discard``: the Client disconnected normally [MQTT5-3.1.2-10]
    pending    ``client_lost``: its delay runs
    discarded  ``client_back``: the Client resumed its Session in time [MQTT5-3.1.3-9]
    published  the delay is over, or ``session_ended`` [MQTT5-3.1.3-9]

A Will found at start belongs to a Client that was lost together with the broker, or was already lost. ``restore`` makes
it pending again. It waits at least ``restart_grace`` seconds, so that its Client can connect again first. Many Clients
have a new Client Identifier for each connection. So a Client that was connected when the broker ended has returned when

    its Client Identifier is back (``client_back``), or
    a Client of the same user connects with the same retained Will (``returned``): then this new Will says "offline"
    when the Client is lost the next time, and the old one would only overwrite a newer "online".

No Client returns with a Client Identifier that the broker chose for MQTT 3.1.1. Its Will is published before Clients
are admitted.

Many Wills may be due at one moment, after a cut of the network or a restart. They are published in parts, so a Will
may wait for its turn. ``publish_due`` publishes it before its Client is admitted again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import attrs
from attrs import frozen
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.tickets import CommitTicket
from holdfast.identity.interfaces import (
    IAuthorizer,
    OnDenied,
    OperatorPrincipal,
    Principal,
    action_of,
    in_time,
    tell_nobody,
)
from holdfast.retained.limits import Limit, RetainRefused
from holdfast.retained.service import RetainedMessages
from holdfast.scheduling.deadlines import Deadlines
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.counters import Counters
from holdfast.sessions.router import Router, not_retained
from holdfast.sessions.state import ISessionStates, StoredWill
from holdfast.watch.log import ClientLog, client_text
from holdfast.wire.packets import Will

#: What two lives of one Client have in common: the User Name, or the listener of a Client without one; and the Will.
_Common = tuple[str | None, str, str, bytes]


@frozen
class _Pending:
    """A Will whose delay runs, or that is due. ``restored`` tells that it was found at start.

    ``returns_as``: whoever connects with this in common is its Client, under another Client Identifier.
    An earlier process has decided that it is due at ``due_at`` (milliseconds since the epoch), but not before the
    reactor's time ``earliest``; None for the delays that have begun in this process.
    """

    principal: Principal
    will: Will
    restored: bool
    returns_as: _Common | None = None
    due_at: int | None = None
    earliest: float = 0.0


class Wills:
    """Publishes Will Messages, at once or after their Will Delay Interval.

    With ``silent_clears``, a Will that clears a retained message is not sent to subscribers.
    """

    def __init__(
        self,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        router: Router,
        authorizer: IAuthorizer,
        states: ISessionStates,
        counters: Counters,
        retained: RetainedMessages,
        work: LongWork,
        log: ClientLog,
        restart_grace: float = 60,
        silent_clears: bool = False,
        denied: OnDenied = tell_nobody,
        accounts: Accounts | None = None,
    ) -> None:
        self._clock = clock
        self._now = now
        self._router = router
        self._authorizer = authorizer
        self._states = states
        self._counters = counters
        self._retained = retained
        self._restart_grace = restart_grace
        self.silent_clears = silent_clears
        self._denied = denied
        self._log = log
        self._pending: dict[str, _Pending] = {}
        self._deadlines = Deadlines("publishing Wills", clock, work, self._due)
        #: by Client Identifier: the Wills that are stored
        self._kept: dict[str, Will] = {}
        #: the Client Identifiers of the Wills that a Client cancels that has this in common with theirs
        self._awaited: dict[_Common, set[str]] = {}
        #: how many Wills of the last process have to be published before Clients are admitted, and who waits for that
        self._overdue = 0
        self._waiting: deque[Deferred[None]] = deque()
        self._work = work
        self._accounts = accounts

    def keep(
        self, principal: Principal, will: Will, session_expiry: float | None, untold: bool = False
    ) -> CommitTicket:
        """Store the Will of a Client that is about to be admitted. ``untold``: see :class:`StoredWill`."""
        self._note_kept(principal, will)
        return self._states.will_kept(StoredWill(principal, will, _delay(will, session_expiry), untold=untold))

    def discard(self, client_id: str) -> None:
        """Discard the Will of a Client that disconnects normally [MQTT5-3.1.2-10]."""
        will = self._kept.get(client_id)
        if will is not None:
            self._forget(client_id, will)

    def has(self, client_id: str) -> bool:
        """Tell whether a Will with this Client Identifier is stored."""
        return client_id in self._kept

    def client_lost(self, principal: Principal, will: Will, session_expiry: float | None) -> None:
        """Publish after the Will Delay Interval, or when the Session ends before that [MQTT5-3.1.3-9]."""
        delay = _delay(will, session_expiry)
        if delay > 0:
            due_at = self._now() + round(1000 * delay)
            self._states.will_kept(StoredWill(principal, will, delay, due_at, lost=True))
        self._schedule(_Pending(principal, will, False), delay)

    def client_back(self, client_id: str) -> None:
        """Discard the Will of a Client that resumes its Session in time [MQTT5-3.1.3-9]."""
        pending = self._unschedule(client_id)
        if pending is not None:
            self._forget(client_id, pending.will)

    def returned(self, principal: Principal, will: Will) -> None:
        """Discard the Wills found at start whose Client is back with this Will, under another Client Identifier."""
        if self._awaited and will.retain and not isinstance(principal, OperatorPrincipal):
            back = self._awaited.pop(_in_common(principal, will), None)
            if back is not None:
                self._work.do(self, self._discard_restored(back))

    def publish_due(self, client_id: str) -> None:
        """Publish a Will that is due, but waits for its turn: its Client is back, and may publish something newer."""
        pending = self._pending.get(client_id)
        if pending is not None and self._deadlines.is_due(client_id) and not pending.restored:
            self.supersede(client_id)

    def restored_for(self, client_id: str) -> Principal | None:
        """Return the Principal of the pending Will with this Client Identifier that was found at start, if any."""
        pending = self._pending.get(client_id)
        return pending.principal if pending is not None and pending.restored else None

    def supersede(self, client_id: str) -> None:
        """Publish a pending Will now: another Client takes over its Client Identifier."""
        pending = self._unschedule(client_id)
        if pending is not None:
            self._publish(pending.principal, pending.will)

    def session_ended(self, client_id: str) -> None:
        """Publish the pending Will, unless it was found at start: its Client may still come back."""
        pending = self._pending.get(client_id)
        if pending is not None and not pending.restored:
            self._deadlines.hurry(client_id)

    def restore(self, wills: Sequence[StoredWill]) -> None:
        """Schedule the Wills of the last process. The delay of a Client that was connected begins now.

        A Will whose Client cannot return is published now, or as soon as the authorizer and the retainer have answered.
        """
        now = self._now()
        overdue = []
        for stored in wills:
            principal, will = stored.principal, stored.will
            self._note_kept(principal, will)
            if stored.untold:
                overdue.append(self._publish(principal, will))
                continue
            due_at = stored.due_at
            if due_at is None:  # stored at once, so that a further restart does not begin the delay anew
                due_at = now + round(1000 * stored.delay)
                self._states.will_kept(attrs.evolve(stored, due_at=due_at))
            returns_as = _in_common(principal, will) if will.retain and not stored.lost else None
            delay = max((due_at - now) / 1000, self._restart_grace)
            earliest = self._clock.seconds() + self._restart_grace
            self._schedule(_Pending(principal, will, True, returns_as, stored.due_at, earliest), delay)
        unpublished = [each for each in overdue if each is not None]
        if unpublished:
            self._overdue = len(unpublished)
            DeferredList(unpublished).addCallback(self._admit_all)

    def before_admission(self) -> Deferred[None] | None:
        """Return None if Clients may be admitted. Else the Deferred fires when they may.

        The Wills of Clients that cannot return have to be published first: a Client may be one of these, under another
        Client Identifier, and publish something newer.
        """
        if not self._overdue:
            return None
        admitted: Deferred[None] = Deferred()
        self._waiting.append(admitted)
        return admitted

    def clock_moved(self) -> Iterator[int]:
        """Keep the delays that have begun in this process, and end earlier ones at their time: the clock has jumped."""
        for client_id in list(self._pending):
            yield 1
            now, left, pending = self._now(), self._deadlines.left(client_id), self._pending.get(client_id)
            if left is None or pending is None:
                continue
            if pending.due_at is None:
                lost = pending.returns_as is None
                due_at = now + round(1000 * left)
                self._states.will_kept(StoredWill(pending.principal, pending.will, left, due_at, lost=lost))
            else:
                earliest = pending.earliest - self._clock.seconds()
                self._deadlines.set(client_id, max(0.0, earliest, (pending.due_at - now) / 1000))

    def stop(self) -> None:
        """Publish no more Wills: the broker stops, and the next process restores the pending ones."""
        self._pending.clear()
        self._awaited.clear()
        self._deadlines.stop()

    def _note_kept(self, principal: Principal, will: Will) -> None:
        self._kept[principal.client_id] = will
        if self._accounts is not None:
            self._accounts.will_kept(principal, will)

    def _admit_all(self, _: object) -> None:
        self._overdue = 0
        self._work.do(self, self._admissions())

    def _admissions(self) -> Iterator[int]:
        while self._waiting:
            yield 1
            self._waiting.popleft().callback(None)

    def _schedule(self, pending: _Pending, delay: float) -> None:
        client_id = pending.principal.client_id
        self._pending[client_id] = pending
        if pending.returns_as is not None:
            self._awaited.setdefault(pending.returns_as, set()).add(client_id)
        self._deadlines.set(client_id, delay)

    def _unschedule(self, client_id: str) -> _Pending | None:
        self._deadlines.discard(client_id)
        pending = self._pending.pop(client_id, None)
        if pending is not None:
            self._await_no_longer(pending)
        return pending

    def _await_no_longer(self, pending: _Pending) -> bool:
        """Return False if the Client is back under another Client Identifier."""
        if pending.returns_as is None:
            return True
        awaited = self._awaited.get(pending.returns_as, set())
        if pending.principal.client_id not in awaited:
            return False
        awaited.remove(pending.principal.client_id)
        if not awaited:
            del self._awaited[pending.returns_as]
        return True

    def _due(self, client_id: str) -> Iterator[int]:
        pending = self._pending.pop(client_id)
        if self._await_no_longer(pending):
            self._publish(pending.principal, pending.will)
        else:
            self._forget(client_id, pending.will)
        return iter(())

    def _discard_restored(self, client_ids: set[str]) -> Iterator[int]:
        for client_id in client_ids:
            yield 1
            if self.restored_for(client_id) is not None:
                self.client_back(client_id)

    def _forget(self, client_id: str, will: Will) -> None:
        """Delete a stored Will, unless the Client has come back with another one meanwhile."""
        if self._kept.get(client_id) is will:
            del self._kept[client_id]
            if self._accounts is not None:
                self._accounts.will_over(client_id)
            self._states.will_over(client_id)

    def _publish(self, principal: Principal, will: Will) -> Deferred[None] | None:
        """Publish a Will. Returns None if that is over, else a Deferred that fires when it is."""
        answer = self._authorizer.may_publish(
            principal, will.topic, will.qos, will.retain, will.retain and not will.payload
        )
        if not isinstance(answer, Deferred):
            return self._decided(answer, principal, will)
        published = in_time(answer, self._clock).addCallback(
            lambda allowed: self._decided(allowed, principal, will) or succeed(None)
        )
        return published.addErrback(self._failed, principal)

    def _decided(self, allowed: bool, principal: Principal, will: Will) -> Deferred[None] | None:
        """Publish the Will once its quota is decided, if the authorizer allowed it."""
        if not allowed:
            self._forget(principal.client_id, will)
            self._counters.messages_dropped_not_authorized += 1
            self._denied(principal, action_of(will.retain, will.retain and not will.payload), will.topic)
            self._log.write(
                "a Will is not allowed",
                "Wills",
                lambda: f"the Will of {client_text(principal.client_id)} on {client_text(will.topic)} is not allowed",
                "warn",
            )
            return None
        properties = will.properties
        expiry = properties.message_expiry_interval
        if expiry is not None or properties.will_delay_interval is not None:
            properties = attrs.evolve(properties, message_expiry_interval=None, will_delay_interval=None)
        message = ApplicationMessage(
            will.topic,
            will.payload,
            will.qos,
            will.retain,
            principal.client_id,
            principal.username,
            properties,
            None if expiry is None else self._now() + 1000 * expiry,
            principal.listener,
        )
        undecided = self._retained.admission.undecided(message) if message.retain else None
        if undecided is not None:
            routed = undecided.addCallback(lambda _: self._route(message, will, principal) or succeed(None))
            return routed.addErrback(self._failed, principal)
        return self._route(message, will, principal)

    def _route(self, message: ApplicationMessage, will: Will, principal: Principal) -> Deferred[None] | None:
        """Publish the Will. One commit deletes the stored Will and stores its effects.

        No publisher can be told of a limit: the Will is delivered, if it may clear the older message of its topic.
        """
        self._forget(principal.client_id, will)
        try:
            self._router.publish(message, ChangeOrigin.WILL, silent_clear=self.silent_clears)
        except RetainRefused as refusal:
            answer: Deferred[bool] | bool = True
            if refusal.limit is not Limit.PUBLISH_RATE:
                answer = self._authorizer.may_publish(principal, message.topic, message.qos, True, True)
            if isinstance(answer, Deferred):
                routed = in_time(answer, self._clock).addCallback(self._not_retained, message, refusal)
                return routed.addErrback(self._failed, principal)
            self._not_retained(answer, message, refusal)
        return None

    def _not_retained(self, allowed: bool, message: ApplicationMessage, refusal: RetainRefused) -> None:
        kept = not_retained(message, refusal, ChangeOrigin.WILL, self._retained, self._counters, allowed)
        if kept is not None:
            self._router.route(message)

    def _failed(self, failure: Failure, principal: Principal) -> None:
        self._log.write(
            "a Will is not published",
            "Wills",
            lambda: f"the Will of {client_text(principal.client_id)} is not published: {failure.getErrorMessage()}",
            "error",
        )


def _in_common(principal: Principal, will: Will) -> _Common:
    username = principal.username or None  # nobody can prove an empty name
    return username, "" if username is not None else principal.listener, will.topic, will.payload


def _delay(will: Will, session_expiry: float | None) -> float:
    delay: float = will.properties.will_delay_interval or 0
    return delay if session_expiry is None else min(delay, session_expiry)
