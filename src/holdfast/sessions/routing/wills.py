"""Will Messages [MQTT5-3.1.2.5]: published when a Client goes without saying goodbye, perhaps after a delay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.auth.interfaces import IAuthorizer, Principal
from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.quota.limits import RetainRefused
from holdfast.retained.service import IRetainedMessages
from holdfast.sessions.counters import Counters
from holdfast.sessions.routing.router import Router
from holdfast.sessions.routing.unretained import not_retained
from holdfast.sessions.state.interfaces import ISessionStates, StoredWill
from holdfast.tickets import CommitTicket
from holdfast.wire.packets import Will


@frozen
class _Pending:
    call: IDelayedCall
    principal: Principal
    will: Will
    restored: bool


class Wills:
    """Publishes Will Messages, at once or after their Will Delay Interval.

    A Will is kept from before its Client is admitted until it is published or discarded. One found at start belongs to
    a Client that died with the broker, or would have come back: it gets its delay, and at least ``restart_grace``
    seconds, to do so. With ``silent_clears``, nobody is sent a Will that clears a retained message.
    """

    _log = Logger()

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
        restart_grace: float = 60,
        silent_clears: bool = False,
    ) -> None:
        self._clock = clock
        self._now = now
        self._router = router
        self._authorizer = authorizer
        self._states = states
        self._counters = counters
        self._retained = retained
        self._restart_grace = restart_grace
        self._silent_clears = silent_clears
        self._pending: dict[str, _Pending] = {}
        self._armed: dict[str, Will] = {}

    def armed(self, principal: Principal, will: Will, session_expiry: float | None) -> CommitTicket:
        """A Client with a Will is about to be admitted."""
        self._armed[principal.client_id] = will
        return self._states.will_kept(principal, will, _delay(will, session_expiry), None)

    def disarmed(self, client_id: str) -> None:
        """The Client has said goodbye: its Will is discarded [MQTT5-3.1.2-10]."""
        will = self._armed.get(client_id)
        if will is not None:
            self._over(client_id, will)

    def client_lost(self, principal: Principal, will: Will, session_expiry: float | None) -> None:
        """Publish after the Will Delay Interval or when the Session ends, whichever is first [MQTT5-3.1.3-9]."""
        delay = _delay(will, session_expiry)
        if delay <= 0:
            self._publish(principal, will)
            return
        self._states.will_kept(principal, will, delay, self._now() + round(1000 * delay))
        self._schedule(principal, will, delay, False)

    def client_back(self, client_id: str) -> None:
        """The Client has come back to its Session in time: its Will is not published [MQTT5-3.1.3-9]."""
        pending = self._unschedule(client_id)
        if pending is not None:
            self._over(client_id, pending.will)

    def forgive(self, client_id: str) -> None:
        """The Client has come back, even if to a new Session, after the broker was away: its Will is not published."""
        pending = self._pending.get(client_id)
        if pending is not None and pending.restored:
            self.client_back(client_id)

    def session_ended(self, client_id: str) -> None:
        """Publish the Will that was waiting, if there is one that does not wait for a Client's return."""
        pending = self._pending.get(client_id)
        if pending is not None and not pending.restored:
            self._due(client_id)

    def restore(self, wills: Sequence[StoredWill]) -> None:
        """Schedule the Wills of the process before. The delay of a Client that was connected begins now, once."""
        now = self._now()
        for stored in wills:
            due_at = stored.due_at
            if due_at is None:
                due_at = now + round(1000 * stored.delay)
                self._states.will_kept(stored.principal, stored.will, stored.delay, due_at)
            self._armed[stored.principal.client_id] = stored.will
            delay = max((due_at - now) / 1000, self._restart_grace)
            self._schedule(stored.principal, stored.will, delay, True)

    def stop(self) -> None:
        """Publish nothing any more: the broker stops, and the next process sees to what is left."""
        for client_id in list(self._pending):
            self._unschedule(client_id)

    def _schedule(self, principal: Principal, will: Will, delay: float, restored: bool) -> None:
        call = self._clock.callLater(delay, self._due, principal.client_id)
        self._pending[principal.client_id] = _Pending(call, principal, will, restored)

    def _unschedule(self, client_id: str) -> _Pending | None:
        pending = self._pending.pop(client_id, None)
        if pending is not None and pending.call.active():
            pending.call.cancel()
        return pending

    def _due(self, client_id: str) -> None:
        pending = self._unschedule(client_id)
        if pending is not None:
            self._publish(pending.principal, pending.will)

    def _over(self, client_id: str, will: Will) -> None:
        """This Will has not to be kept any more; the Client may have come back with another one meanwhile."""
        if self._armed.get(client_id) is will:
            del self._armed[client_id]
            self._states.will_over(client_id)

    def _publish(self, principal: Principal, will: Will) -> None:
        answer = self._authorizer.may_publish(principal, will.topic, will.qos, will.retain)
        if isinstance(answer, Deferred):
            answer.addCallback(self._decided, principal, will)
            answer.addErrback(self._failed, principal)
        else:
            self._decided(answer, principal, will)

    def _decided(self, allowed: bool, principal: Principal, will: Will) -> None:
        """Publish the Will, when it is known whether to retain it."""
        if not allowed:
            self._over(principal.client_id, will)
            self._counters.messages_dropped_not_authorized += 1
            self._log.warn(
                "the Will of {client!r} on {topic!r} is not allowed", client=principal.client_id, topic=will.topic
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
        )
        undecided = self._retained.undecided(message) if message.retain else None
        if undecided is None:
            self._hand_on(message, will)
        else:
            undecided.addCallback(lambda _: self._hand_on(message, will)).addErrback(self._failed, principal)

    def _hand_on(self, message: ApplicationMessage, will: Will) -> None:
        """Publish the Will; it is forgotten in the same commit that stores what it brings about.

        Nobody is there to be told that it may not be retained: then it is delivered only.
        """
        assert message.client_id is not None
        self._over(message.client_id, will)
        try:
            self._router.publish(message, ChangeOrigin.WILL, silent_clear=self._silent_clears)
        except RetainRefused as refusal:
            not_retained(message, refusal, ChangeOrigin.WILL, self._retained, self._counters)
            self._router.route(message)

    def _failed(self, failure: Failure, principal: Principal) -> None:
        self._log.error(
            "the Will of {client!r} is not published: {error}",
            client=principal.client_id,
            error=failure.getErrorMessage(),
        )


def _delay(will: Will, session_expiry: float | None) -> float:
    delay: float = will.properties.will_delay_interval or 0
    return delay if session_expiry is None else min(delay, session_expiry)
