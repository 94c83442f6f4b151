"""What a Client publishes: checks, authorization, QoS 1 and 2 exchanges and their acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from holdfast.messages import ApplicationMessage, ChangeOrigin
from holdfast.retained.quota.limits import OnLimit, RetainRefused
from holdfast.sessions.connection.aliases import IncomingAliases
from holdfast.sessions.limits import RetainMode
from holdfast.sessions.routing.router import QueueFull
from holdfast.sessions.routing.unretained import not_retained
from holdfast.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure, both
from holdfast.topics import is_sys
from holdfast.wire import NO_PROPERTIES, Properties, ProtocolError, ReasonCode
from holdfast.wire.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel

if TYPE_CHECKING:
    from holdfast.sessions.connection.connection import Connection
    from holdfast.sessions.session.session import Session


def failure_reason(failure: StorageFailure) -> ReasonCode:
    """Return the Reason Code that tells a Client why its change was not made durable."""
    if failure.kind is FailureKind.FULL:
        return ReasonCode.QUOTA_EXCEEDED
    return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


class Publications:
    """The Application Messages one Client publishes over one Network Connection."""

    _log = Logger()

    def __init__(self, connection: Connection, session: Session) -> None:
        self._connection = connection
        self._session = session
        self._services = connection.services
        self._limits = connection.limits
        self._aliases = IncomingAliases(connection.limits.max_topic_alias)
        self._v5 = connection.protocol_version == 5
        #: QoS 2 messages of former connections, not released yet: the Receive Maximum is not about them
        self._former = set(session.received)
        self._retain_mode = connection.limits.retained_messages_mode
        self._silent_clears = connection.limits.stop_publish_clear_msg

    def publish(self, packet: Publish) -> None:
        """Take a PUBLISH packet: check it, ask whether it is allowed, then accept it."""
        services = self._services
        services.counters.messages_received += 1
        topic = packet.topic
        properties = packet.properties
        expires_at = None
        if properties is not NO_PROPERTIES:
            topic, properties, expires_at = self._read(packet)
        limits = self._limits
        qos = packet.qos
        if qos > limits.max_qos_allowed:
            raise ProtocolError(  # [MQTT5-3.2.2-11]
                f"QoS {qos} is not supported, at most {limits.max_qos_allowed} is", ReasonCode.QOS_NOT_SUPPORTED
            )
        if packet.retain and not limits.retain_available:
            raise ProtocolError("retained messages are not supported", ReasonCode.RETAIN_NOT_SUPPORTED)
        if topic.count("/") >= limits.max_topic_levels:
            raise ProtocolError(
                f"a Topic Name has at most {limits.max_topic_levels} levels here", ReasonCode.TOPIC_NAME_INVALID
            )
        if qos:
            if qos == 2:
                if limits.await_rel_timeout is not None:
                    since = services.now() - round(1000 * limits.await_rel_timeout)
                    services.counters.unreleased_forgotten += self._session.forget_unreleased(since)
                    self._former &= self._session.received.keys()
                if packet.packet_identifier in self._session.received:
                    self._received_again(packet.packet_identifier)
                    return
            self._check_receive_maximum()
        message = ApplicationMessage(
            topic,
            packet.payload,
            qos,
            packet.retain and self._retain_mode is not RetainMode.DOWNGRADE,
            self._session.client_id,
            self._session.principal.username,
            properties,
            expires_at,
        )
        if topic[0] == "$" and is_sys(topic):
            self._deny(message, packet.packet_identifier)
            return
        answer = services.authorizer.may_publish(self._session.principal, topic, qos, packet.retain)
        if answer is True:
            if packet.retain or qos == 2:
                self._accept(message, packet.packet_identifier)
            else:  # most messages, by the shortest way
                self._hand_on(message, packet.packet_identifier)
        elif isinstance(answer, Deferred):
            self._connection.wait_for(
                answer, False, lambda allowed: self._decided(allowed, message, packet.packet_identifier)
            )
        else:
            self._deny(message, packet.packet_identifier)

    def release(self, packet: Pubrel) -> None:
        """Take a PUBREL: the Packet Identifier is free again [MQTT5-4.3.3-10], [MQTT5-4.3.3-11]."""
        identifier = packet.packet_identifier
        known = identifier in self._session.received
        self._session.received.pop(identifier, None)
        self._former.discard(identifier)
        if known or not self._v5:
            answer = b"\x70\x02" + identifier.to_bytes(2, "big")
        else:
            answer = self._connection.explanations.encode(
                Pubcomp(identifier, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), "no QoS 2 message has this identifier now"
            )
        ticket = self._session.record.released(identifier) if known else COMMITTED
        self._connection.acknowledgements.add(ticket, answer, self._connection.close_for)

    def _read(self, packet: Publish) -> tuple[str, Properties, int | None]:
        """Resolve the Topic Alias and split off what is not forwarded as it came."""
        topic = packet.topic
        properties = packet.properties
        if properties.subscription_identifiers:  # [MQTT5-3.3.4-6]
            raise ProtocolError("a Client does not send Subscription Identifiers in PUBLISH")
        alias = properties.topic_alias
        if alias is not None:
            topic = self._aliases.resolve(alias, topic)
        expiry = properties.message_expiry_interval
        if alias is not None or expiry is not None:
            properties = attrs.evolve(properties, topic_alias=None, message_expiry_interval=None)
        return topic, properties, None if expiry is None else self._services.now() + 1000 * expiry

    def _check_receive_maximum(self) -> None:
        """Refuse more unacknowledged QoS 1 and 2 messages than CONNACK allowed [MQTT5-3.3.4-7].

        They are counted anew on each Network Connection [MQTT5-4.9].
        """
        unreleased = len(self._session.received) - len(self._former)
        outstanding = self._connection.acknowledgements.publishes + unreleased
        if self._v5 and outstanding >= self._limits.max_awaiting_rel:
            raise ProtocolError(
                f"more than {self._limits.max_awaiting_rel} messages are unacknowledged",
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            )

    def _decided(self, allowed: bool, message: ApplicationMessage, identifier: int) -> None:
        if allowed:
            self._accept(message, identifier)
        else:
            self._deny(message, identifier)

    def _accept(self, message: ApplicationMessage, identifier: int) -> None:
        """Hand the message on, at once or, where that is not clear yet, when it is known whether to retain it."""
        if message.retain:
            if self._retain_mode is RetainMode.DROP:
                self._services.counters.messages_dropped_retained += 1
                if message.qos:
                    self._answer(message.qos, identifier, ReasonCode.SUCCESS, "")
                return
            if self._retain_mode is RetainMode.ENABLED:
                undecided = self._services.retained.undecided(message)
                if undecided is not None:
                    self._wait_to_retain(undecided, message, identifier)
                    return
        self._take(message, identifier)

    def _wait_to_retain(self, undecided: Deferred[None], message: ApplicationMessage, identifier: int) -> None:
        """Let this Client's packets wait, to keep their order.

        A QoS 0 message counts as received even if the Client is gone by then; others it will send again.
        """

        def known(_: None) -> None:
            if not self._connection.is_closed or not message.qos:
                self._take(message, identifier)

        self._connection.hold()
        undecided.addCallback(known).addErrback(self._connection.broken)
        undecided.addCallback(lambda _: self._connection.release())

    def _take(self, message: ApplicationMessage, identifier: int) -> None:
        if message.qos != 2:
            self._hand_on(message, identifier)
            return
        # The Packet Identifier, what is retained and what is queued for others are committed together. Until then
        # nothing of the message leaves with QoS 2: whatever happens, it arrives once.
        self._hand_on(message, identifier, self._note_received(identifier))

    def _note_received(self, identifier: int) -> CommitTicket:
        now = self._services.now()
        self._session.received[identifier] = now
        return self._session.record.received(identifier, now, True)

    def _hand_on(self, message: ApplicationMessage, identifier: int, after: CommitTicket = COMMITTED) -> None:
        """Retain and route the message, and acknowledge it when what must be durable is."""
        router = self._services.router
        try:
            ticket, matched = router.publish(
                message, ChangeOrigin.PUBLISH, after, self._v5, self._retain_mode, self._silent_clears
            )
        except RetainRefused as refusal:
            self._not_retained(message, identifier, refusal, after)
            return
        except QueueFull as full:
            self._services.counters.messages_rejected_queue_full += 1
            self._log.info("{client!r} is refused: {why}", client=message.client_id, why=full)
            self._answer(message.qos, identifier, ReasonCode.QUOTA_EXCEEDED, str(full))
            return
        if message.qos or ticket is not COMMITTED:
            self._acknowledge(message, identifier, both(after, ticket), matched)

    def _acknowledge(self, message: ApplicationMessage, identifier: int, ticket: CommitTicket, matched: bool) -> None:
        qos = message.qos
        if qos:
            head = b"\x40" if qos == 1 else b"\x50"
            if matched or not self._v5:
                answer = head + b"\x02" + identifier.to_bytes(2, "big")
            else:
                answer = head + b"\x03" + identifier.to_bytes(2, "big") + b"\x10"
            if ticket.settled and ticket.failure is None:
                self._connection.acknowledgements.add(ticket, answer, self._connection.close_for)
            else:
                self._connection.acknowledgements.add(
                    ticket, answer, lambda failure: self._not_stored(message, identifier, failure), qos == 1
                )
        if not ticket.settled and self._services.pressure.active:
            self._services.pressure.hold(self._connection)

    def _not_stored(self, message: ApplicationMessage, identifier: int, failure: StorageFailure) -> bytes | None:
        """Answer a message whose commit failed: a Reason Code in MQTT 5, a close without acknowledgement in MQTT 3."""
        self._services.counters.commits_failed += 1
        if self._session.received.pop(identifier, None) is not None:
            self._session.record.released(identifier)
        if not self._v5:
            return self._connection.close_for(failure)
        return self._refusal(message.qos, identifier, failure_reason(failure), "the broker cannot store this now")

    def _not_retained(
        self, message: ApplicationMessage, identifier: int, refusal: RetainRefused, after: CommitTicket
    ) -> None:
        """Do with a message that may not be retained what ``retainer.on_limit`` says; who cannot be told is not."""
        counters, retained = self._services.counters, self._services.retained
        policy = retained.on_limit
        if policy is OnLimit.DISCONNECT:
            counters.retained_disconnected += 1
            retained.refused(message, refusal, "and is disconnected")
            if message.qos == 2:
                self._session.received.pop(identifier, None)
                self._session.record.released(identifier)
            self._connection.close(ReasonCode.QUOTA_EXCEEDED, str(refusal))
            return
        if policy is OnLimit.REJECT and self._v5 and message.qos:
            counters.retained_refused += 1
            retained.refused(message, refusal, "and is told so")
            self._answer(message.qos, identifier, ReasonCode.QUOTA_EXCEEDED, str(refusal))
            return
        dropped = not_retained(message, refusal, ChangeOrigin.PUBLISH, retained, counters)
        ticket, matched = self._services.router.route(message, after)
        self._acknowledge(message, identifier, both(after, both(dropped, ticket)), matched)

    def _deny(self, message: ApplicationMessage, identifier: int) -> None:
        """Drop a message that is not allowed; MQTT 3 has no way to say so but a positive acknowledgement or a close."""
        self._services.counters.messages_dropped_not_authorized += 1
        self._log.warn("{client!r} may not publish to {topic!r}", client=message.client_id, topic=message.topic)
        if message.qos:
            reason = ReasonCode.NOT_AUTHORIZED if self._v5 else ReasonCode.SUCCESS
            self._answer(message.qos, identifier, reason, "publishing this is not allowed")

    def _received_again(self, identifier: int) -> None:
        """Answer a repeated QoS 2 PUBLISH without handing it on again [MQTT5-4.3.3-10]."""
        packet = b"\x50\x02" + identifier.to_bytes(2, "big")
        # On this connection the first answer goes out before it; after a reconnect it may not be durable yet.
        ticket = self._session.record.received(identifier, self._session.received[identifier], False)
        self._connection.acknowledgements.add(ticket, packet, self._connection.close_for)

    def _refusal(self, qos: int, identifier: int, reason: ReasonCode, why: str) -> bytes:
        packet = Puback(identifier, reason) if qos == 1 else Pubrec(identifier, reason)
        return self._connection.explanations.encode(packet, why)

    def _answer(self, qos: int, identifier: int, reason: ReasonCode, why: str) -> None:
        """Acknowledge without handing anything on; a PUBREC with a failure ends the QoS 2 exchange."""
        ticket = COMMITTED
        if qos == 2 and reason >= ReasonCode.UNSPECIFIED_ERROR:
            if self._session.received.pop(identifier, None) is not None:
                ticket = self._session.record.released(identifier)
        elif qos == 2:
            ticket = self._note_received(identifier)
        self._connection.acknowledgements.add(
            ticket, self._refusal(qos, identifier, reason, why), self._connection.close_for, qos == 1
        )
