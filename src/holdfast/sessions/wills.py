"""Will Messages [MQTT5-3.1.2.5]: published when a Client goes without saying goodbye, perhaps after a delay."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.interfaces import IAuthorizer, Principal
from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.service import RetainRefused
from holdfast.sessions.counters import Counters
from holdfast.sessions.router import Router
from holdfast.wire.packets import Will


@frozen
class _Pending:
    call: IDelayedCall
    principal: Principal
    will: Will


class Wills:
    """Publishes Will Messages, at once or after their Will Delay Interval."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        now: Callable[[], int],
        router: Router,
        authorizer: IAuthorizer,
        counters: Counters,
    ) -> None:
        self._clock = clock
        self._now = now
        self._router = router
        self._authorizer = authorizer
        self._counters = counters
        self._pending: dict[str, _Pending] = {}

    def client_lost(self, principal: Principal, will: Will, session_expiry: float | None) -> None:
        """Publish after the Will Delay Interval or when the Session ends, whichever is first [MQTT5-3.1.3-9]."""
        delay: float = will.properties.will_delay_interval or 0
        if session_expiry is not None:
            delay = min(delay, session_expiry)
        if delay <= 0:
            self._publish(principal, will)
            return
        call = self._clock.callLater(delay, self.session_ended, principal.client_id)
        self._pending[principal.client_id] = _Pending(call, principal, will)

    def client_back(self, client_id: str) -> None:
        """The Client has come back to its Session in time: its Will is not published [MQTT5-3.1.3-9]."""
        pending = self._pending.pop(client_id, None)
        if pending is not None and pending.call.active():
            pending.call.cancel()

    def session_ended(self, client_id: str) -> None:
        """Publish the Will that was waiting, if there is one."""
        pending = self._pending.pop(client_id, None)
        if pending is not None:
            if pending.call.active():
                pending.call.cancel()
            self._publish(pending.principal, pending.will)

    def publish_all(self) -> None:
        """Publish every Will still waiting: the broker stops."""
        for client_id in list(self._pending):
            self.session_ended(client_id)

    def _publish(self, principal: Principal, will: Will) -> None:
        answer = self._authorizer.may_publish(principal, will.topic, will.qos, will.retain)
        if isinstance(answer, Deferred):
            answer.addCallback(self._decided, principal, will)
            answer.addErrback(self._failed, principal)
        else:
            self._decided(answer, principal, will)

    def _decided(self, allowed: bool, principal: Principal, will: Will) -> None:
        if not allowed:
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
        try:
            self._router.publish(message, ChangeOrigin.WILL)
        except RetainRefused as refusal:
            self._counters.retained_not_stored += 1
            self._log.warn(
                "the Will of {client!r} on {topic!r} is delivered but not retained: {refusal}",
                client=principal.client_id,
                topic=will.topic,
                refusal=refusal,
            )
            self._router.route(message)

    def _failed(self, failure: Failure, principal: Principal) -> None:
        self._log.error(
            "the Will of {client!r} is not published: {error}",
            client=principal.client_id,
            error=failure.getErrorMessage(),
        )
