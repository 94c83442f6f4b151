"""Will Messages [MQTT5-3.1.2.5]: published when a Client is lost, perhaps after a delay.

The states of a Will, by the call that ends each:

    kept       ``keep`` stores it before its Client is admitted
    discarded  ``discard``: the Client disconnected normally [MQTT5-3.1.2-10]
    pending    ``client_lost``: its delay runs
    discarded  ``client_back``: the Client resumed its Session in time [MQTT5-3.1.3-9]
    published  the delay is over, or ``session_ended`` [MQTT5-3.1.3-9]

A Will found at start belongs to a Client that was lost together with the broker, or was already lost. ``restore`` makes
it pending again. It waits at least ``restart_grace`` seconds, so that its Client can connect again first.

Many Wills may be due at one moment, after a cut of the network or a restart. They are published in portions, so a Will
may wait for its turn. ``publish_due`` publishes it before its Client is admitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from holdfast.auth.answer_in_time import in_time
from holdfast.auth.denials import Denied, action_of, tell_nobody
from holdfast.auth.interfaces import IAuthorizer, Principal
from holdfast.log.client_log import ClientLog, client_text
from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.quota.limits import RetainRefused
from holdfast.retained.service import IRetainedMessages
from holdfast.scheduling.deadlines import Deadlines
from holdfast.scheduling.long_work import LongWork
from holdfast.sessions.accounts import Accounts
from holdfast.sessions.counters import Counters
from holdfast.sessions.routing.router import Router
from holdfast.sessions.routing.unretained import not_retained
from holdfast.sessions.state.interfaces import ISessionStates, StoredWill
from holdfast.tickets import CommitTicket
from holdfast.wire.packets import Will


@frozen
class _Pending:
    """A Will whose delay runs, or that is due. ``restored`` tells that it was found at start."""

    principal: Principal
    will: Will
    restored: bool


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
        retained: IRetainedMessages,
        work: LongWork,
        log: ClientLog,
        restart_grace: float = 60,
        silent_clears: bool = False,
        denied: Denied = tell_nobody,
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
        self._accounts = accounts

    def keep(self, principal: Principal, will: Will, session_expiry: float | None) -> CommitTicket:
        """Store the Will of a Client that is about to be admitted."""
        self._note_kept(principal, will)
        return self._states.will_kept(principal, will, _delay(will, session_expiry), None)

    def discard(self, client_id: str) -> None:
        """Discard the Will of a Client that disconnects normally [MQTT5-3.1.2-10]."""
        will = self._kept.get(client_id)
        if will is not None:
            self._forget(client_id, will)

    def client_lost(self, principal: Principal, will: Will, session_expiry: float | None) -> None:
        """Publish after the Will Delay Interval, or when the Session ends before that [MQTT5-3.1.3-9]."""
        delay = _delay(will, session_expiry)
        if delay > 0:
            self._states.will_kept(principal, will, delay, self._now() + round(1000 * delay))
        self._schedule(principal, will, delay, False)

    def client_back(self, client_id: str) -> None:
        """Discard the Will of a Client that resumes its Session in time [MQTT5-3.1.3-9]."""
        pending = self._unschedule(client_id)
        if pending is not None:
            self._forget(client_id, pending.will)

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
        """Schedule the Wills of the last process. The delay of a Client that was connected begins now."""
        now = self._now()
        for stored in wills:
            due_at = stored.due_at
            if due_at is None:  # stored at once, so that a further restart does not begin the delay anew
                due_at = now + round(1000 * stored.delay)
                self._states.will_kept(stored.principal, stored.will, stored.delay, due_at)
            self._note_kept(stored.principal, stored.will)
            delay = max((due_at - now) / 1000, self._restart_grace)
            self._schedule(stored.principal, stored.will, delay, True)

    def stop(self) -> None:
        """Publish no more Wills: the broker stops, and the next process restores the pending ones."""
        self._pending.clear()
        self._deadlines.stop()

    def _note_kept(self, principal: Principal, will: Will) -> None:
        self._kept[principal.client_id] = will
        if self._accounts is not None:
            self._accounts.will_kept(principal, will)

    def _schedule(self, principal: Principal, will: Will, delay: float, restored: bool) -> None:
        self._pending[principal.client_id] = _Pending(principal, will, restored)
        self._deadlines.set(principal.client_id, delay)

    def _unschedule(self, client_id: str) -> _Pending | None:
        self._deadlines.discard(client_id)
        return self._pending.pop(client_id, None)

    def _due(self, client_id: str) -> Iterator[int]:
        pending = self._pending.pop(client_id)
        self._publish(pending.principal, pending.will)
        return iter(())

    def _forget(self, client_id: str, will: Will) -> None:
        """Delete a stored Will, unless the Client has come back with another one meanwhile."""
        if self._kept.get(client_id) is will:
            del self._kept[client_id]
            if self._accounts is not None:
                self._accounts.will_over(client_id)
            self._states.will_over(client_id)

    def _publish(self, principal: Principal, will: Will) -> None:
        answer = self._authorizer.may_publish(
            principal, will.topic, will.qos, will.retain, will.retain and not will.payload
        )
        if isinstance(answer, Deferred):
            in_time(answer, self._clock).addCallback(self._decided, principal, will)
            answer.addErrback(self._failed, principal)
        else:
            self._decided(answer, principal, will)

    def _decided(self, allowed: bool, principal: Principal, will: Will) -> None:
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
            return
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
        undecided = self._retained.undecided(message) if message.retain else None
        if undecided is None:
            self._route(message, will)
        else:
            undecided.addCallback(lambda _: self._route(message, will)).addErrback(self._failed, principal)

    def _route(self, message: ApplicationMessage, will: Will) -> None:
        """Publish the Will. One commit deletes the stored Will and stores its effects.

        A Will over a limit is delivered, but not retained: no publisher waits for an answer.
        """
        assert message.client_id is not None
        self._forget(message.client_id, will)
        try:
            self._router.publish(message, ChangeOrigin.WILL, silent_clear=self.silent_clears)
        except RetainRefused as refusal:
            not_retained(message, refusal, ChangeOrigin.WILL, self._retained, self._counters)
            self._router.route(message)

    def _failed(self, failure: Failure, principal: Principal) -> None:
        self._log.write(
            "a Will is not published",
            "Wills",
            lambda: f"the Will of {client_text(principal.client_id)} is not published: {failure.getErrorMessage()}",
            "error",
        )


def _delay(will: Will, session_expiry: float | None) -> float:
    delay: float = will.properties.will_delay_interval or 0
    return delay if session_expiry is None else min(delay, session_expiry)
