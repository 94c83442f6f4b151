"""One PUBLISH with conditions: it is stored, routed and acknowledged once the writer's transaction has decided.

How it works. The Client's later packets are held until the decision, so nothing that it publishes afterwards can
overtake this message. If the conditions hold, the message is routed then, and its PUBACK or PUBREC tells the revision
of the change. Otherwise the answer is 0x83, and tells the present revision. It tells none to a Client that may not
receive the message. Such a Client may have no condition about the payload either: each answer would confirm a guess.

With QoS 2 the Packet Identifier is stored with the deliveries, after the decision. If the broker is killed between the
two commits, the Client repeats the PUBLISH, and the store recognizes the change: it is routed then, for the first time.
If the change is not the present one any more, the repetition is refused, and nothing is routed: subscribers have, or
will be sent, the newer message.

If the store cannot tell whether the change is durable, the connection is closed without an acknowledgement. The Client
then repeats the PUBLISH too.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast.core.extensions import (
    FOR_PUBLISH,
    NO_PUBLISH_REQUESTS,
    RETAIN_WHILE,
    REVISION,
    BadCondition,
    BadRequest,
    Conditions,
    PublishRequests,
    ToldByBroker,
    check_takes_part,
    publish_requests,
)
from holdfast.core.messages import ApplicationMessage, RetainedMessage
from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure, both
from holdfast.identity.interfaces import in_time
from holdfast.retained.compare_and_set import Decision
from holdfast.retained.leases import Wanted
from holdfast.retained.limits import RetainRefused, Treatment
from holdfast.sessions.connection.acknowledgements import failure_reason
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.limits import RetainMode
from holdfast.sessions.router import QueueFull
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode
from holdfast.wire.packets import Puback, Publish, Pubrec


def why_not_conditional(packet: Publish, link: Connection, enabled: bool) -> str | None:
    """Explain why a PUBLISH cannot have conditions, None if it can. ``enabled``: the retainer stores messages."""
    if not packet.qos:
        return "a condition needs QoS 1 or 2: nobody is told its outcome"
    if not packet.retain:
        return "a condition needs RETAIN 1: it is about the retained message"
    if not link.explanations.may_tell:
        return "a condition needs Request Problem Information 1: the acknowledgement has to tell the revision"
    if not enabled or link.limits.retained_messages_mode is not RetainMode.ENABLED:
        return "no retained messages are stored here"
    return None


def tell_again(link: Connection, session: Session, parts: BrokerParts, publish: Publish, topic: str) -> None:
    """Answer a repeated QoS 2 PUBLISH that has succeeded, with the revision if its change is still the present one.

    A conditional clear leaves no message that could tell it.
    """

    identifier, user_properties = publish.packet_identifier, publish.properties.user_properties

    def found(present: RetainedMessage | None) -> None:
        properties = NO_PROPERTIES
        if (
            present is not None
            and (present.client_id, present.payload) == (session.client_id, publish.payload)
            and present.properties.user_properties == user_properties
        ):
            properties = Properties(user_properties=((REVISION, str(present.revision)),))
        if identifier in session.received:
            packet = link.explanations.encode_within(Pubrec(identifier, properties=properties), "")
            ticket = session.received.note_again(identifier)
            link.acknowledgements.send_when_committed(ticket, packet, link.close_after_failure)

    link.wait_for(parts.retained.store.get(topic), None, found)


class ConditionalPublish:
    """The way of one PUBLISH with conditions. It has been allowed by the authorizer.

    With ``silent_clears``, a message that clears the retained one is not routed.
    """

    def __init__(
        self,
        link: Connection,
        session: Session,
        parts: BrokerParts,
        message: ApplicationMessage,
        packet: Publish,
        conditions: Conditions,
        silent_clears: bool,
        lease: Wanted | None = None,
    ) -> None:
        self._link = link
        self._session = session
        self._parts = parts
        self._message = message
        self._identifier = packet.packet_identifier
        self._repeated = packet.dup
        self._conditions = conditions
        self._silent_clears = silent_clears
        self._lease = lease
        self._tells = False  # whether the present revision is told

    def begin(self) -> None:
        """Ask the store for the decision, and hold the Client's later packets until it is known."""
        parts = self._parts
        try:
            if parts.router.rejecting:
                parts.router.check_queues(self._message)
        except QueueFull as full:
            parts.counters.messages_rejected_queue_full += 1
            self._link.client_log.info("its PUBLISH is refused", full)
            self._refuse(ReasonCode.QUOTA_EXCEEDED, str(full))
            return
        self._link.hold(pings=True)
        undecided = parts.retained.admission.undecided(self._message)
        asked = succeed(None) if undecided is None else undecided
        asked.addCallback(self._may_receive).addCallback(self._ask).addErrback(self._failed).addErrback(
            self._link.close_after_error
        )
        asked.addCallback(lambda _: self._link.release())

    def _may_receive(self, _: None) -> Deferred[bool]:
        answer: bool | Deferred[bool] = self._parts.authorizer.may_receive(self._session.principal, self._message)
        if not isinstance(answer, Deferred):
            return succeed(answer)
        return in_time(answer, self._parts.clock).addErrback(self._denied_by_error)

    def _denied_by_error(self, failure: Failure) -> bool:
        self._link.client_log.error("authorizing it failed", failure.getErrorMessage())
        return False

    def _ask(self, may_receive: bool) -> Deferred[None] | None:
        if self._link.is_closed:  # it has waited for a quota; the Client sends the message again
            return None
        self._tells = may_receive
        if self._conditions.payload_sha256 is not None and not may_receive:
            self._parts.counters.messages_dropped_not_authorized += 1
            self._parts.denied(self._session.principal, "subscribe", self._message.topic)
            self._refuse(ReasonCode.NOT_AUTHORIZED, "a condition about the payload is for clients that may receive it")
            return None
        decided = self._parts.retained.retain_if(self._message, self._conditions, self._repeated, self._lease)
        self._parts.pressure.charge(self._link)
        return decided.addCallback(self._decided)

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, RetainRefused):
            self._over_limit(error)
            return
        if not isinstance(error, StorageFailure):
            failure.raiseException()
        self._parts.counters.commits_failed += 1
        if error.kind is FailureKind.UNAVAILABLE:
            self._link.close_after_failure(error)
        else:
            self._refuse(failure_reason(error), "the broker cannot store this now")

    def _over_limit(self, refusal: RetainRefused) -> None:
        """Refuse a message that a limit forbids to retain: one with a condition is never delivered only."""
        counters, retained = self._parts.counters, self._parts.retained
        if retained.admission.on_limit.told is Treatment.DISCONNECT:
            counters.retained_disconnected += 1
            retained.admission.refused(self._message, refusal, "and is disconnected")
            self._link.close(ReasonCode.QUOTA_EXCEEDED, str(refusal))
            return
        counters.retained_refused += 1
        retained.admission.refused(self._message, refusal, "and is told so")
        self._refuse(ReasonCode.QUOTA_EXCEEDED, str(refusal))

    def _decided(self, decision: Decision) -> None:
        counters = self._parts.counters
        if not decision.succeeded:
            counters.conditions_failed += 1
            present = decision.revision if self._tells else None
            self._refuse(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "the condition does not hold", present)
            return
        counters.conditions_held += 1
        message, session = self._message, self._session
        if self._lease is not None:
            self._parts.note_lease(session, message.topic)
        after = COMMITTED
        matched = True
        ticket = COMMITTED
        known = message.qos == 2 and self._identifier in session.received
        if known:  # an earlier connection has sent it too, and it was routed then
            after = session.received.note_again(self._identifier)
        else:
            if message.qos == 2 and not session.is_over:
                after = session.received.note(self._identifier, self._parts.now())
            if not decision.overtaken and (message.payload or not self._silent_clears):
                ticket, matched = self._parts.router.route(message, after)
        reason = ReasonCode.SUCCESS if matched else ReasonCode.NO_MATCHING_SUBSCRIBERS
        self._send(both(after, ticket), reason, "", decision.revision)

    def _refuse(self, reason: ReasonCode, why: str, revision: int | None = None) -> None:
        self._send(COMMITTED, reason, why, revision)

    def _send(self, ticket: CommitTicket, reason: ReasonCode, why: str, revision: int | None) -> None:
        qos = self._message.qos
        properties = NO_PROPERTIES
        if revision is not None:
            properties = Properties(user_properties=((REVISION, str(revision)),))
        packet = (Puback if qos == 1 else Pubrec)(self._identifier, reason, properties)
        self._link.acknowledgements.send_when_committed(
            ticket, self._link.explanations.encode_within(packet, why), self._deliveries_failed, qos == 1
        )

    def _deliveries_failed(self, failure: StorageFailure) -> None:
        """Close without an acknowledgement: the change is stored, but its deliveries are not. The Client repeats it."""
        self._parts.counters.commits_failed += 1
        self._session.received.forget(self._identifier)
        self._link.close_after_failure(failure)


# The requests of a Client in the User Properties of its PUBLISH: bad ones are refused.


#: acknowledges a message that is not published: its QoS, its Packet Identifier, Reason Code and Reason String
Answer = Callable[[int, int, ReasonCode, str], None]


def requests_of(packet: Publish, link: Connection, parts: BrokerParts, answer: Answer) -> PublishRequests | None:
    """Return what a PUBLISH with User Properties asks for.

    None: it is refused, since it has a User Property that it cannot have, or one that is not understood. The messages
    of a Client that does not take part may have any others, and are forwarded unaltered [MQTT-3.3.2-17].
    """
    properties = packet.properties.user_properties
    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    requests, unmet = NO_PUBLISH_REQUESTS, None
    try:
        if not link.participant:
            check_takes_part(properties, FOR_PUBLISH)
            return NO_PUBLISH_REQUESTS
        requests = publish_requests(properties)
        if requests.lease is not None:
            _check_lease(packet, link, parts.retained.admission.enabled)
        if requests.conditions is not None:
            unmet = why_not_conditional(packet, link, parts.retained.admission.enabled)
    except BadCondition as bad:
        unmet = str(bad)
    except BadRequest as bad:
        if isinstance(bad, ToldByBroker):
            reason = ReasonCode.PAYLOAD_FORMAT_INVALID
        _refuse(packet, link, parts, answer, reason, str(bad))
        return None
    if unmet is None:
        return requests
    if packet.qos and packet.retain:
        _refuse(packet, link, parts, answer, reason, unmet)
        return None
    parts.counters.messages_dropped_conditional += 1
    link.client_log.debug("its PUBLISH with a condition is dropped", unmet)
    if packet.qos:
        answer(packet.qos, packet.packet_identifier, reason, unmet)
    return None


def _check_lease(packet: Publish, link: Connection, enabled: bool) -> None:
    """Raise :class:`BadRequest` for a PUBLISH that cannot have a lease. ``enabled``: the retainer stores messages."""
    if not packet.retain:
        raise BadRequest(f"User Property {RETAIN_WHILE} needs RETAIN 1: it is about the retained message")
    if not packet.payload:
        raise BadRequest(f"User Property {RETAIN_WHILE} needs a payload: an empty one clears the topic at once")
    if not enabled or link.limits.retained_messages_mode is not RetainMode.ENABLED:
        raise BadRequest(f"User Property {RETAIN_WHILE} has no effect here: no retained messages are stored")


def _refuse(
    packet: Publish, link: Connection, parts: BrokerParts, answer: Answer, reason: ReasonCode, why: str
) -> None:
    parts.counters.messages_rejected_properties += 1
    link.client_log.info("its PUBLISH is refused", why)
    if packet.qos:
        answer(packet.qos, packet.packet_identifier, reason, why)
