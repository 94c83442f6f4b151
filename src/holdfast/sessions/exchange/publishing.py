"""PUBLISH and PUBREL of one Client: checks, authorization, routing, acknowledgement.

How it works. A PUBLISH is checked against the limits, the authorizer allows it, the router retains and delivers it, and
its PUBACK or PUBREC leaves once everything it promises is durable. :meth:`Acknowledgements.send_when_committed` waits
for that; this module only passes the commit ticket on.

With QoS 2 the Packet Identifier, the retained message and the messages queued for other Clients are committed
together. Until that commit the broker sends the message to no Client with QoS 2, so it arrives once, also after a
crash.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from holdfast.core.extensions import CONDITIONS, NO_PUBLISH_REQUESTS, PublishRequests, named
from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure, both
from holdfast.core.topics import ASKED, before_wildcard, is_bridge_state, matches
from holdfast.core.units import Rate, TokenBucket
from holdfast.identity.interfaces import action_of
from holdfast.retained.leases import Wanted
from holdfast.retained.limits import Limit, RetainRefused, Treatment
from holdfast.sessions.connection.acknowledgements import failure_reason
from holdfast.sessions.connection.aliases import IncomingAliases
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.packet_order import PACKETS_OF_A_STEP
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.exchange.asking import Asking
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.conditional_publish import ConditionalPublish, requests_of, tell_again
from holdfast.sessions.exchange.retained_runs import RetainedRuns
from holdfast.sessions.leases import MOST_PER_CLIENT, wanted
from holdfast.sessions.limits import Limits, RetainMode
from holdfast.sessions.router import QueueFull, not_retained
from holdfast.wire import NO_PROPERTIES, KnownTopics, Properties, ProtocolError, ReasonCode, Run, Single
from holdfast.wire.packets import ExcessivePublish, Puback, Pubcomp, Publish, Pubrec, Pubrel
from holdfast.wire.property_codec import encode_properties

#: For how many more packets some count: most take 10 microseconds, a message with RETAIN 1 or QoS 2 40 that comes by
#: itself, and a PUBREL 30. Where policies record messages, one that comes by itself may take 20. So many User
#: Properties count as one packet.
_FOR_STORED, _FOR_PUBREL, _FOR_RECORDED, _PROPERTIES_OF_A_PACKET = 3, 2, 1, 5
#: A look at one change of a subscription takes a sixteenth of the time for learning a topic. For all changes since the
#: last message, so many topics are looked at, and so many compared with a filter: each takes a third of a millisecond
#: together. Beyond, all topics are forgotten.
_CHANGES_OF_A_TOPIC, _MOST_LOOKS, _MOST_COMPARISONS = 16, 6_000, 200
#: these count as one packet
_LOOKS_OF_A_PACKET, _COMPARISONS_OF_A_PACKET = 200, 6
#: With this many slashes in a topic, it is looked up what the search for its rules has cost.
_DEEP = 6
#: of Sessions without such messages; nothing is ever added
_NONE: set[int] = set()


class Publishing:
    """The Application Messages one Client publishes over one Network Connection."""

    def __init__(self, link: Connection, session: Session, parts: BrokerParts) -> None:
        self._link = link
        self._session = session
        self._parts = parts
        self._limits = link.limits
        self._aliases = IncomingAliases(link.limits.max_topic_alias)
        self._v5 = link.protocol_version == 5
        self._known: KnownTopics | None = None  #: made with the first message that may be in a run
        self._takes_retained_runs = False
        self._changes = 0  #: of the routing table, until which the routes of the known topics are true
        self._epoch: object = None  #: that of the authorizer's answers about the known topics
        #: unreleased QoS 2 messages of former connections, which do not count against the Receive Maximum
        self._former = set(session.received) if len(session.received) else _NONE
        self._retain_mode = link.limits.retained_messages_mode
        self._silent_clears = link.limits.stop_publish_clear_msg
        self._asking: Asking | None = None  # made with the first question
        self._pace = pace_of(link, parts.clock, parts.counters)  # None for most

    def publish(self, packet: Publish) -> None:
        """Take a PUBLISH: check it, ask the authorizer, then accept or deny it."""
        parts = self._parts
        parts.counters.messages_received += 1
        if self._pace is not None:
            self._pace.took(packet)
        topic = packet.topic
        properties = packet.properties
        expires_at = None
        if properties is not NO_PROPERTIES:
            topic, properties, expires_at = self._read(packet)
            if len(properties.user_properties) >= _PROPERTIES_OF_A_PACKET:
                self._link.charge(len(properties.user_properties) // _PROPERTIES_OF_A_PACKET)
        limits = self._limits
        qos = packet.qos
        depth = topic.count("/")
        if (
            qos > limits.max_qos_allowed
            or (packet.retain and not limits.retain_available)
            or depth >= limits.max_topic_levels
        ):
            self._check_limits(packet, topic)
        if qos and self._is_repeated(qos, packet.packet_identifier, packet, topic):
            return
        requests = NO_PUBLISH_REQUESTS
        if properties.user_properties:
            asked = requests_of(packet, self._link, parts, self._answer)
            if asked is None:
                return
            requests = asked
        principal = self._session.principal
        message = ApplicationMessage(
            topic,
            packet.payload,
            qos,
            packet.retain and self._retain_mode is not RetainMode.DOWNGRADE,
            principal.client_id,
            principal.username,
            properties,
            expires_at,
            principal.listener,
        )
        # Only the broker publishes to its own topics, so the authorizer is not asked about them.
        if topic[0] == "$" and parts.router.is_own(topic):
            self._own_topic(message, packet.packet_identifier)
            return
        retain = packet.retain
        clears = retain and not packet.payload
        if retain or qos == 2:
            self._link.charge(_FOR_STORED)
        effort = parts.authorizer.effort if depth >= _DEEP else 0
        answer = parts.authorizer.may_publish(principal, topic, qos, retain, clears)
        if depth >= _DEEP and parts.authorizer.effort != effort:
            self._link.charge(PACKETS_OF_A_STEP * (parts.authorizer.effort - effort))
        if answer is True:
            if retain or qos == 2 or ((forces := parts.retained.admission.forces) is not None and forces(topic)):
                self._accept(message, packet, requests)
                if retain and not self._takes_retained_runs and self._pace is None:
                    self._expect_retained_runs()
            else:  # the shortest way, since most messages take it
                if parts.router.keeps_others or (
                    (sparkplug := parts.router.sparkplug) is not None and sparkplug.concerns(topic)
                ):
                    self._link.charge(_FOR_RECORDED)
                self._publish(message, packet.packet_identifier)
                if packet.properties is NO_PROPERTIES and self._pace is None:
                    self._expect_runs(message)
        elif isinstance(answer, Deferred):
            self._link.ask(answer, False, lambda allowed: self._decided(allowed, message, packet, requests))
        else:
            self._deny(message, packet.packet_identifier, action_of(retain, clears))

    def close(self) -> None:
        """Let go of the connection, which is over."""
        if self._pace is not None:
            self._pace.close()
        if self._asking is not None:
            self._asking.close()
        if self._known is not None:
            self._known.clear()

    def publish_run(self, run: Run | Single) -> bool:
        """Take a run. Return False, without any effect, if its packets have to be taken one by one."""
        parts = self._parts
        assert self._known is not None
        if run.qos and not self._takes_answers(run):
            return False
        if parts.router.table.changes != self._changes and self._forget_changed(self._known):
            return False
        routed = None
        if parts.authorizer.epoch == self._epoch:
            routed = parts.router.publish_run(run, self._session.client_id, self._session.principal.username)
        if routed is None:
            self._known.clear()
            return False
        parts.counters.messages_received += run.count
        if isinstance(routed, list):
            for packet, (ticket, matched) in zip(run.publishes(), routed, strict=True):
                message = ApplicationMessage(packet.topic, packet.payload, packet.qos)
                self._acknowledge(message, packet.packet_identifier, ticket, matched)
        elif run.qos:
            ticket, matched = routed
            answers = run.acknowledgements(0 if matched or not self._v5 else ReasonCode.NO_MATCHING_SUBSCRIBERS)
            self._link.acknowledgements.send_when_committed(
                ticket, answers, self._link.close_after_failure, number=run.count
            )
        return True

    def refuse(self, packet: ExcessivePublish) -> None:
        """Take a PUBLISH with too many properties: it is acknowledged as refused, and goes nowhere."""
        self._parts.counters.messages_received += 1
        if packet.qos > self._limits.max_qos_allowed:
            raise self._qos_not_supported(packet.qos)
        # The Topic Alias counts all the same: otherwise a later packet would use an older one, of another topic.
        if packet.topic_alias:
            self._aliases.resolve(packet.topic_alias, packet.topic)
        elif packet.topic_alias is None:
            self._aliases.forget()
        if self._is_repeated(packet.qos, packet.packet_identifier):
            return
        self._parts.counters.messages_rejected_properties += 1
        self._link.client_log.info("its PUBLISH is refused", packet.explanation)
        self._answer(packet.qos, packet.packet_identifier, ReasonCode.QUOTA_EXCEEDED, packet.explanation)

    def release(self, packet: Pubrel) -> None:
        """Take a PUBREL: the Packet Identifier is free again [MQTT5-4.3.3-10], [MQTT5-4.3.3-11]."""
        self._link.charge(_FOR_PUBREL)
        identifier = packet.packet_identifier
        known = identifier in self._session.received
        ticket = self._session.received.forget(identifier)
        self._former.discard(identifier)
        if known or not self._v5:
            answer = b"\x70\x02" + identifier.to_bytes(2, "big")
        else:
            answer = self._link.explanations.encode(
                Pubcomp(identifier, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND), "no QoS 2 message has this identifier now"
            )
        self._link.acknowledgements.send_when_committed(ticket, answer, self._link.close_after_failure)

    def _expect_runs(self, message: ApplicationMessage) -> None:
        """Let further messages of this topic and QoS come in runs, since this one has passed all checks."""
        topic = message.topic.encode()
        if self._known is not None and self._known.has(message.qos, topic):
            return
        epoch = self._parts.authorizer.epoch
        route = None if epoch is None else self._parts.router.route_for_runs(message, self._v5)
        if route is None:
            return
        if self._known is None:
            self._known = KnownTopics(self._parts.topic_pool)
            self._link.take_runs(self._known, self.publish_run)
        if epoch != self._epoch:
            self._known.clear()
            self._epoch = epoch
        if not self._known:
            self._changes = self._parts.router.table.changes
        self._known.add(message.qos, topic, route)

    def _forget_changed(self, known: KnownTopics) -> bool:
        """Forget the known topics whose routes have changed; return whether there were any."""
        table = self._parts.router.table
        filters = table.changed_since(self._changes)
        self._changes = table.changes
        if filters is None or len(filters) > _CHANGES_OF_A_TOPIC * len(known):
            known.clear()
            return True
        forgotten = False
        looks, comparisons = _MOST_LOOKS, _MOST_COMPARISONS
        for topic_filter in filters:
            start = before_wildcard(topic_filter)
            if start == topic_filter:
                forgotten |= known.forget(topic_filter.encode())
                continue
            looks -= len(known)
            topics = known.beginning_with(start.encode()) if looks >= 0 else ()
            comparisons -= len(topics)
            if looks < 0 or comparisons < 0:
                known.clear()
                return True
            for topic in topics:
                if matches(topic_filter, topic.decode()):
                    forgotten |= known.forget(topic)
        self._link.charge(
            (_MOST_LOOKS - looks) // _LOOKS_OF_A_PACKET + (_MOST_COMPARISONS - comparisons) // _COMPARISONS_OF_A_PACKET
        )
        return forgotten

    def _expect_retained_runs(self) -> None:
        """Let further messages with RETAIN 1 come in runs."""
        self._takes_retained_runs = True
        self._link.take_retained_runs(
            RetainedRuns(self._link, self._session, self._parts, self._allowance, self._not_stored)
        )

    def _allowance(self) -> int:
        """Return how many QoS 1 messages may come now."""
        return self._limits.max_awaiting_rel - self._outstanding() if self._v5 else sys.maxsize

    def _takes_answers(self, run: Run | Single) -> bool:
        """Tell whether the Receive Maximum and the answers that wait have room for a whole run."""
        if self._v5 and self._outstanding() + run.count > self._limits.max_awaiting_rel:
            return False
        return self._link.takes_answers(5 * run.count)

    def _read(self, packet: Publish) -> tuple[str, Properties, int | None]:
        """Return the Topic Name, the properties to forward, and the time of expiry (milliseconds since the epoch)."""
        topic = packet.topic
        properties = packet.properties
        alias = properties.topic_alias
        if alias is not None:
            topic = self._aliases.resolve(alias, topic)
        expiry = properties.message_expiry_interval
        if alias is not None or expiry is not None:
            properties = attrs.evolve(properties, topic_alias=None, message_expiry_interval=None)
        return topic, properties, None if expiry is None else self._parts.now() + 1000 * expiry

    def _qos_not_supported(self, qos: int) -> ProtocolError:
        return ProtocolError(  # [MQTT5-3.2.2-11]
            f"QoS {qos} is not supported, at most {self._limits.max_qos_allowed} is (mqtt.max_qos_allowed)",
            ReasonCode.QOS_NOT_SUPPORTED,
        )

    def _is_repeated(self, qos: int, identifier: int, packet: Publish | None = None, topic: str = "") -> bool:
        """Answer a repeated QoS 2 message, and tell that. Refuse other QoS 1 and 2 messages if they are too many.

        The ``packet`` to this ``topic`` may have conditions: then the answer tells the revision.
        """
        if qos == 2 and identifier in self._session.received:
            if (
                packet is not None
                and self._link.participant
                and self._link.explanations.may_tell
                and named(packet.properties.user_properties, CONDITIONS)
            ):
                tell_again(self._link, self._session, self._parts, packet, topic)
            else:
                self._received_again(identifier)
            return True
        # A repeated QoS 2 message is not checked: it counts already.
        self._check_receive_maximum()
        return False

    def _check_limits(self, packet: Publish, topic: str) -> None:
        """Raise ProtocolError for a message beyond the limits, unless it is the state of a bridge, which is dropped."""
        limits = self._limits
        if is_bridge_state(topic):
            return
        if packet.qos > limits.max_qos_allowed:
            raise self._qos_not_supported(packet.qos)
        if packet.retain and not limits.retain_available:
            raise ProtocolError(
                "retained messages are not supported (mqtt.retain_available)", ReasonCode.RETAIN_NOT_SUPPORTED
            )
        raise ProtocolError(
            f"a Topic Name has at most {limits.max_topic_levels} levels here (mqtt.max_topic_levels)",
            ReasonCode.TOPIC_NAME_INVALID,
        )

    def _check_receive_maximum(self) -> None:
        """Refuse more unacknowledged QoS 1 and 2 messages than CONNACK allowed [MQTT5-3.3.4-7].

        The count begins with 0 on each Network Connection [MQTT5-4.9].
        """
        if self._v5 and self._outstanding() >= self._limits.max_awaiting_rel:
            raise ProtocolError(
                f"more than {self._limits.max_awaiting_rel} messages are unacknowledged (mqtt.max_awaiting_rel)",
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            )

    def _outstanding(self) -> int:
        unreleased = len(self._session.received) - len(self._former)
        return self._link.acknowledgements.unacknowledged_publishes + unreleased

    def _decided(self, allowed: bool, message: ApplicationMessage, packet: Publish, requests: PublishRequests) -> None:
        if allowed:
            self._accept(message, packet, requests)
        else:
            action = action_of(packet.retain, packet.retain and not packet.payload)
            self._deny(message, packet.packet_identifier, action)

    def _accept(self, message: ApplicationMessage, packet: Publish, requests: PublishRequests) -> None:
        """Take an allowed message, once it is known whether a quota allows to retain it."""
        identifier = packet.packet_identifier
        lease = None
        if message.retain:
            if requests is not NO_PUBLISH_REQUESTS:
                lease = wanted(requests.lease, self._session)
                if lease is not None and not self._parts.leases.has_room(message.client_id or "", message.topic):
                    self._too_many_leases(message, identifier)
                    return
                if requests.conditions is not None:
                    publish = ConditionalPublish(
                        self._link, self._session, self._parts, message, packet, requests.conditions,
                        self._silent_clears, lease,
                    )  # fmt: skip
                    publish.begin()
                    return
            if self._retain_mode is RetainMode.DROP:
                self._parts.counters.messages_dropped_retained += 1
                if message.qos:
                    self._answer(message.qos, identifier, ReasonCode.SUCCESS, "")
                return
        if self._retain_mode is RetainMode.ENABLED and (
            message.retain or ((forces := self._parts.retained.admission.forces) is not None and forces(message.topic))
        ):
            undecided = self._parts.retained.admission.undecided(message)
            if undecided is not None:
                self._wait_to_retain(undecided, message, identifier, lease)
                return
        self._publish(message, identifier, lease)

    def _wait_to_retain(
        self, undecided: Deferred[None], message: ApplicationMessage, identifier: int, lease: Wanted | None
    ) -> None:
        """Hold the Client's later packets until the quota is known.

        If the Client is gone by then, a QoS 0 message is still accepted; the Client sends other messages again.
        """

        def known(_: None) -> None:
            if not self._link.is_closed or not message.qos:
                self._publish(message, identifier, lease)

        # Held even if QoS is 0: otherwise a later message of the topic could be retained before this one. A Client may
        # take PINGRESP for the proof that its QoS 0 messages were taken, and may leave at once behind the last one.
        answered = message.qos > 0
        self._link.hold(reads=answered, pings=answered)
        undecided.addCallback(known).addErrback(self._link.close_after_error)
        undecided.addCallback(lambda _: self._link.release())

    def _too_many_leases(self, message: ApplicationMessage, identifier: int) -> None:
        """Refuse a message with one lease too many. It is routed nowhere: nothing would ever clear it."""
        why = f"a client has at most {MOST_PER_CLIENT} leases"
        self._parts.counters.leases_refused += 1
        self._link.client_log.info("its PUBLISH is refused", why)
        if message.qos:
            self._answer(message.qos, identifier, ReasonCode.QUOTA_EXCEEDED, why)

    def _publish(self, message: ApplicationMessage, identifier: int, lease: Wanted | None = None) -> None:
        """Retain and route the message, and acknowledge it."""
        # Noted before the message is routed: both changes are then committed in one transaction.
        after = self._session.received.note(identifier, self._parts.now()) if message.qos == 2 else COMMITTED
        try:
            ticket, matched = self._parts.router.publish(
                message, ChangeOrigin.PUBLISH, after, self._v5, self._retain_mode, self._silent_clears, lease=lease
            )
        except RetainRefused as refusal:
            self._over_limit(message, identifier, refusal, after, lease)
            return
        except QueueFull as full:
            self._parts.counters.messages_rejected_queue_full += 1
            self._link.client_log.info("its PUBLISH is refused", full)
            self._answer(message.qos, identifier, ReasonCode.QUOTA_EXCEEDED, str(full))
            return
        if lease is not None:
            self._parts.note_lease(self._session, message.topic)
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
            if ticket.settled and ticket.failure is None:  # the shortest way, since most messages take it
                self._link.acknowledgements.send_when_committed(ticket, answer, self._link.close_after_failure)
            else:
                self._link.acknowledgements.send_when_committed(
                    ticket, answer, lambda failure: self._not_stored(identifier, failure, qos), qos == 1
                )
        elif not ticket.settled:  # no answer waits for its commit
            self._parts.pressure.charge(self._link)

    def _not_stored(self, identifier: int, failure: StorageFailure, qos: int = 1) -> bytes | None:
        """Answer a message whose commit failed: a Reason Code in MQTT 5, a close without acknowledgement in MQTT 3."""
        self._parts.counters.commits_failed += 1
        # The Client sends the message again, and it must count as a new one then.
        self._session.received.forget(identifier)
        if not self._v5:
            self._link.close_after_failure(failure)
            return None
        return self._refusal(qos, identifier, failure_reason(failure), "the broker cannot store this now")

    def _over_limit(
        self,
        message: ApplicationMessage,
        identifier: int,
        refusal: RetainRefused,
        after: CommitTicket,
        lease: Wanted | None,
    ) -> None:
        """Treat a message that a limit forbids to retain as ``retainer.on_limit`` says."""
        counters, retained = self._parts.counters, self._parts.retained
        policy = retained.admission.on_limit
        told = self._v5 and message.qos > 0
        treatment = policy.told if told else policy.untold
        if treatment is Treatment.DISCONNECT:
            counters.retained_disconnected += 1
            retained.admission.refused(message, refusal, "and is disconnected")
            if message.qos == 2:
                self._session.received.forget(identifier)
            self._link.close(ReasonCode.QUOTA_EXCEEDED, str(refusal))
            return
        if treatment is Treatment.REFUSE:
            counters.retained_refused += 1
            retained.admission.refused(message, refusal, "and is told so")
            self._answer(message.qos, identifier, ReasonCode.QUOTA_EXCEEDED, str(refusal))
        elif refusal.limit is not Limit.PUBLISH_RATE:
            principal = self._session.principal
            answer = self._parts.authorizer.may_publish(principal, message.topic, message.qos, True, True)
            if isinstance(answer, Deferred):
                self._link.ask(
                    answer, False, lambda allowed: self._not_retained(message, identifier, refusal, after, allowed)
                )
            else:
                self._not_retained(message, identifier, refusal, after, answer)
        elif lease is None:
            self._not_retained(message, identifier, refusal, after, False)
            room = retained.delayed.room(message.client_id or "")
            if room is not None:
                self._wait_for_rate(room)
        else:  # nothing would clear the message before it is stored
            counters.retained_not_delivered += 1
            retained.admission.refused(message, refusal, "and a lease does not wait, so nobody gets it")
            self._drop_over_limit(message, identifier, refusal)

    def _not_retained(
        self, message: ApplicationMessage, identifier: int, refusal: RetainRefused, after: CommitTicket, allowed: bool
    ) -> None:
        """Deliver a message that is not retained, or not yet, unless an older one has to stay: no clear is allowed."""
        parts = self._parts
        kept = not_retained(message, refusal, ChangeOrigin.PUBLISH, parts.retained, parts.counters, allowed)
        if kept is None:
            self._drop_over_limit(message, identifier, refusal)
            return
        ticket, matched = parts.router.route(message, after)
        self._acknowledge(message, identifier, both(after, both(kept, ticket)), matched)

    def _drop_over_limit(self, message: ApplicationMessage, identifier: int, refusal: RetainRefused) -> None:
        """Acknowledge a message that goes nowhere. MQTT 3 cannot say that."""
        if message.qos:
            reason = ReasonCode.QUOTA_EXCEEDED if self._v5 else ReasonCode.SUCCESS
            self._answer(message.qos, identifier, reason, str(refusal))

    def _wait_for_rate(self, room: Deferred[None]) -> None:
        """Do not read the Client until less of it waits for the publish rate."""

        def go_on(_: None) -> None:
            with self._link.guard:
                self._link.release()

        self._parts.counters.publishers_delayed += 1
        self._link.hold(reads=False)
        room.addCallback(go_on)

    def _deny(self, message: ApplicationMessage, identifier: int, action: str) -> None:
        """Drop a message that is not allowed. MQTT 3 cannot report that: there the message is acknowledged."""
        self._parts.counters.messages_dropped_not_authorized += 1
        self._parts.denied(self._session.principal, action, message.topic)
        self._link.client_log.warn("may not publish this", "to {}", message.topic)
        if message.qos:
            reason = ReasonCode.NOT_AUTHORIZED if self._v5 else ReasonCode.SUCCESS
            self._answer(message.qos, identifier, reason, "publishing this is not allowed")

    def _own_topic(self, message: ApplicationMessage, identifier: int) -> None:
        """Drop a message to one of the broker's own topics. That of a bridge about its state is acknowledged.

        Questions about retained messages are answered; MQTT 3 has no Response Topic for them.
        """
        if message.topic in ASKED and self._v5:
            if self._asking is None:
                self._asking = Asking(self._link, self._session, self._parts)
            self._asking.take(message, partial(self._acknowledge_question, message.qos, identifier))
            return
        if not is_bridge_state(message.topic):
            self._deny(message, identifier, action_of(message.retain, message.retain and not message.payload))
            return
        self._parts.counters.messages_dropped_bridge_state += 1
        if message.qos:
            self._answer(message.qos, identifier, ReasonCode.SUCCESS, "")

    def _acknowledge_question(self, qos: int, identifier: int, reason: ReasonCode, why: str) -> None:
        if qos:
            self._answer(qos, identifier, reason, why)

    def _received_again(self, identifier: int) -> None:
        """Answer a repeated QoS 2 PUBLISH without publishing it again [MQTT5-4.3.3-10]."""
        packet = b"\x50\x02" + identifier.to_bytes(2, "big")
        # After a reconnect the commit of the first PUBLISH may still be under way, and its PUBREC was never sent.
        ticket = self._session.received.note_again(identifier)
        self._link.acknowledgements.send_when_committed(ticket, packet, self._link.close_after_failure)

    def _refusal(self, qos: int, identifier: int, reason: ReasonCode, why: str) -> bytes:
        packet = Puback(identifier, reason) if qos == 1 else Pubrec(identifier, reason)
        return self._link.explanations.encode(packet, why)

    def _answer(self, qos: int, identifier: int, reason: ReasonCode, why: str) -> None:
        """Acknowledge without publishing. A PUBREC with a failure ends the QoS 2 exchange."""
        ticket = COMMITTED
        if qos == 2 and reason >= ReasonCode.UNSPECIFIED_ERROR:
            ticket = self._session.received.forget(identifier)
        elif qos == 2:
            ticket = self._session.received.note(identifier, self._parts.now())
        self._link.acknowledgements.send_when_committed(
            ticket, self._refusal(qos, identifier, reason, why), self._link.close_after_failure, qos == 1
        )


# The rates of the PUBLISH packets of one Client (``limits.messages_rate`` and ``limits.bytes_rate``).
#
# How it works. Each PUBLISH is taken whole, and takes its tokens, perhaps more than there are. Without tokens left, the
# connection is held: the broker does not read it, and acts on no later packet, until a tenth of the rate's amount has
# come together again. A Client that goes on sending fills the network's buffers, then it cannot send. One that sends
# DISCONNECT and leaves is not noticed before all that it has sent. So nothing is dropped, and nobody else waits.


class PublishPace:
    """Holds the connection of a Client that publishes faster than its rates allow."""

    def __init__(self, link: Connection, limits: Limits, clock: IReactorTime, counters: Counters) -> None:
        self._link = link
        self._clock = clock
        self._counters = counters
        now = clock.seconds()
        self._messages = _bucket(limits.messages_rate, now)
        self._bytes = _bucket(limits.bytes_rate, now)
        self._delayed: Any = None

    def took(self, packet: Publish) -> None:
        """Count a PUBLISH, and hold the connection if it came too early."""
        now = self._clock.seconds()
        wait = 0.0
        for bucket, tokens in ((self._messages, 1), (self._bytes, 0 if self._bytes is None else _size_of(packet))):
            if bucket is not None:
                bucket.take(tokens, now)
                if bucket.wait(1, now):
                    wait = max(wait, bucket.wait(bucket.rate.tenth, now))
        if wait and self._delayed is None:
            self._counters.publishers_delayed += 1
            self._link.hold(reads=False)
            self._delayed = self._clock.callLater(wait, self._go_on)

    def close(self) -> None:
        """Let go of the connection, which is over."""
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None

    def _go_on(self) -> None:
        self._delayed = None
        with self._link.guard:
            self._link.release()


def pace_of(link: Connection, clock: IReactorTime, counters: Counters) -> PublishPace | None:
    """Return the pace of a connection, None if its zone has no rates."""
    limits = link.limits
    if limits.messages_rate is None and limits.bytes_rate is None:
        return None
    return PublishPace(link, limits, clock, counters)


def _bucket(rate: Rate | None, now: float) -> TokenBucket | None:
    return None if rate is None else TokenBucket(rate, now)


def _size_of(packet: Publish) -> int:
    """Return the bytes of the topic, the properties and the payload."""
    size = len(packet.topic.encode()) + len(packet.payload)
    return size if packet.properties is NO_PROPERTIES else size + len(encode_properties(packet.properties))
