"""SUBSCRIBE and UNSUBSCRIBE of one Client: checks, authorization, the answer, and the replays that they begin or stop.

How it works. A SUBSCRIBE is answered in three steps. First every Topic Filter is checked against the limits; a filter
that is not well formed ends the connection. Then the authorizer is asked about each filter; the Client's later packets
wait for the answers. Then all granted subscriptions are stored and take effect together, SUBACK waits for that commit,
and the replays begin. A replay may deliver before SUBACK leaves: the standard allows that.
"""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.connection.explanations import explain_refusals, failure_reason
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.replays.replays import Replays
from holdfast.sessions.session.session import Session
from holdfast.sessions.state.subscription import Subscription
from holdfast.tickets import COMMITTED, CommitTicket, StorageFailure
from holdfast.topics import (
    InvalidShare,
    InvalidTopicFilter,
    TooManyLevels,
    check_topic_filter,
    has_wildcard,
    is_sys,
    levels_before_wildcard,
    split_shared,
)
from holdfast.wire import ProtocolError, ReasonCode, encode
from holdfast.wire.packets import Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe

#: whether a subscription is allowed, or the Reason Code of its refusal
Verdict = ReasonCode | bool


class Subscribing:
    """Handles the SUBSCRIBE and UNSUBSCRIBE packets of one Client."""

    _log = Logger()

    def __init__(self, link: IClientLink, session: Session, parts: BrokerParts, replays: Replays) -> None:
        self._link = link
        self._session = session
        self._parts = parts
        self._replays = replays
        self._limits = link.limits
        self._v5 = link.protocol_version == 5

    def subscribe(self, packet: Subscribe) -> None:
        """Check each subscription, ask the authorizer, then grant the allowed ones [MQTT5-3.8.4]."""
        if packet.properties.subscription_identifiers and not self._limits.subscription_identifiers:
            raise ProtocolError(
                "Subscription Identifiers are not offered", ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED
            )
        if not self._can_answer(Suback(packet.packet_identifier, (0,) * len(packet.subscriptions))):
            return
        verdicts: list[Verdict] = []
        waiting: list[Deferred[None]] = []
        for request in packet.subscriptions:
            refused = self._check(request)
            if refused is not None:
                verdicts.append(refused)
                continue
            _, topic_filter = split_shared(request.topic_filter)
            answer = self._parts.authorizer.may_subscribe(self._session.principal, topic_filter, request.qos)
            if isinstance(answer, Deferred):
                answer.addErrback(self._denied_by_error)
                waiting.append(answer.addCallback(partial(verdicts.__setitem__, len(verdicts))))
                verdicts.append(False)  # replaced by the answer when it comes
            else:
                verdicts.append(answer)
        if waiting:
            together: Deferred[list[None]] = gatherResults(waiting)
            self._link.wait_for(together, [], lambda _: self._grant(packet, verdicts))
        else:
            self._grant(packet, verdicts)

    def unsubscribe(self, packet: Unsubscribe) -> None:
        """Remove subscriptions, stop their replays, answer with UNSUBACK [MQTT5-3.10.4]."""
        # All filters are checked before the first change: a malformed one ends the connection before any change.
        for topic_filter in packet.topic_filters:
            self._parsed(topic_filter)
        if not self._can_answer(Unsuback(packet.packet_identifier, (0,) * len(packet.topic_filters))):
            return
        codes = []
        ticket = COMMITTED
        for topic_filter in packet.topic_filters:
            self._replays.stop(topic_filter)
            removed = self._parts.registry.unsubscribe(self._session, topic_filter)
            codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED if removed is None else ReasonCode.SUCCESS)
            ticket = removed or ticket  # the ticket of the last change is settled last
        self._replays.share_window()
        answer = Unsuback(packet.packet_identifier, tuple(codes) if self._v5 else ())
        self._link.acknowledgements.send_when_committed(
            ticket, encode(answer, self._link.protocol_version), self._link.close_after_failure
        )

    # --- checks

    def _parsed(self, text: str) -> tuple[str | None, str] | None:
        """Return ShareName and Topic Filter. None: the filter is well formed, but not accepted here.

        A filter that is not well formed ends the connection [MQTT5-4.7.1-1], [MQTT5-4.7.1-2], [MQTT311-4.8.0-1].
        """
        try:
            group, topic_filter = split_shared(text)
            check_topic_filter(topic_filter, self._limits.max_topic_levels)
        except TooManyLevels:
            return None
        except InvalidTopicFilter as wrong:
            if isinstance(wrong, InvalidShare) and not self._v5:  # MQTT 3 knows no shares: a filter like any other
                return None
            raise ProtocolError(str(wrong)) from None
        return group, topic_filter

    def _check(self, request: SubscriptionRequest) -> ReasonCode | None:
        """Return why the limits forbid the subscription, or None."""
        limits = self._limits
        parsed = self._parsed(request.topic_filter)
        if parsed is None:
            return ReasonCode.TOPIC_FILTER_INVALID
        group, topic_filter = parsed
        if group is not None and not limits.shared_subscription:
            return self._not_offered("shared subscriptions", ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
        if not limits.wildcard_subscription and has_wildcard(topic_filter):
            return self._not_offered("wildcards", ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)
        subscriptions = self._session.subscriptions
        maximum = limits.max_subscriptions
        if maximum is not None and len(subscriptions) >= maximum and request.topic_filter not in subscriptions:
            return ReasonCode.QUOTA_EXCEEDED
        return None

    def _not_offered(self, feature: str, reason: ReasonCode) -> ReasonCode:
        """Refuse a feature that CONNACK has declared unavailable: in MQTT 5 a Protocol Error [MQTT5-3.2.2.3.11], 13."""
        if self._v5:
            raise ProtocolError(f"{feature} are not offered here", reason)
        return reason

    def _can_answer(self, answer: Suback | Unsuback) -> bool:
        """Tell whether the Client accepts an answer of this size. If not, end its connection [MQTT5-3.1.2-24]."""
        # Asked before the first change: a change without an answer would leave the Client in doubt. Checked with the
        # codes 0, since all codes take one byte.
        link = self._link
        if link.maximum_packet_size is None or link.explanations.fits(encode(answer, 5)):
            return True
        link.close(ReasonCode.PACKET_TOO_LARGE, "the answer would exceed the Maximum Packet Size")
        return False

    def _denied_by_error(self, failure: Failure) -> bool:
        self._log.error(
            "authorizing {client!r} failed: {error}", client=self._link.name, error=failure.getErrorMessage()
        )
        return False

    # --- granting

    def _grant(self, packet: Subscribe, verdicts: list[Verdict]) -> None:
        """Store the allowed subscriptions, answer with SUBACK, and begin the replays."""
        link = self._link
        identifiers = packet.properties.subscription_identifiers
        identifier = identifiers[0] if identifiers else None
        codes: list[int] = []
        replays: list[str] = []
        ticket: CommitTicket = COMMITTED
        for request, verdict in zip(packet.subscriptions, verdicts, strict=True):
            if verdict is not True:
                codes.append(verdict if isinstance(verdict, ReasonCode) else ReasonCode.NOT_AUTHORIZED)
                continue
            if self._check(request) is ReasonCode.QUOTA_EXCEEDED:  # an earlier request of this packet took the rest
                codes.append(ReasonCode.QUOTA_EXCEEDED)
                continue
            subscription = self._subscription(request, identifier)
            replayed = self._wants_replay(request, subscription) and not self._is_denied(subscription.topic_filter)
            if replayed and self._parts.retained.refuses_replays:
                codes.append(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
                continue
            key = request.topic_filter
            # Without a new replay the present one, if any, keeps its stored position.
            position = self._session.replay_positions.get(key)
            replay_after = "" if replayed else position.saved if position is not None else None
            ticket = self._parts.registry.subscribe(self._session, key, subscription, replay_after)
            codes.append(subscription.qos)
            if replayed:
                replays.append(key)
            else:
                self._replays.reread(key)  # a running replay continues under the new options
        if not self._v5:  # MQTT 3 has one code for all failures
            codes = [code if code < ReasonCode.UNSPECIFIED_ERROR else 0x80 for code in codes]
        self._answer(packet.packet_identifier, tuple(codes), ticket)
        self._replays.begin(replays)
        # The broker's own topics are not in the retained store, so no replay brings their values.
        own = [key for key in replays if is_sys(key)]
        if own:
            link.acknowledgements.call_after_answers(partial(self._send_own_topics, ticket, own))

    def _subscription(self, request: SubscriptionRequest, identifier: int | None) -> Subscription:
        group, topic_filter = split_shared(request.topic_filter)
        return Subscription(
            topic_filter,
            min(request.qos, self._limits.max_qos_allowed),
            request.no_local or (self._limits.ignore_loop_deliver and not self._v5),
            request.retain_as_published or self._link.bridge,
            request.retain_handling,
            identifier,
            group,
        )

    def _wants_replay(self, request: SubscriptionRequest, subscription: Subscription) -> bool:
        """Tell whether the subscription asks for retained messages [MQTT5-3.3.1-9] to [MQTT5-3.3.1-11].

        A shared subscription never does. Retain Handling 1 asks for them only if the subscription is new, 2 never.
        """
        if subscription.group is not None:
            return False
        is_new = request.topic_filter not in self._session.subscriptions
        return request.retain_handling == 0 or (request.retain_handling == 1 and is_new)

    def _is_denied(self, topic_filter: str) -> bool:
        """Tell whether ``mqtt.min_replay_levels`` forbids to replay this Topic Filter; log and count it then."""
        least = self._limits.min_replay_levels
        if not least or not has_wildcard(topic_filter) or is_sys(topic_filter):
            return False
        if levels_before_wildcard(topic_filter) >= least:
            return False
        self._parts.counters.replays_denied += 1
        self._log.info(
            "{client!r} gets live messages only for {filter!r}: mqtt.min_replay_levels is {least}",
            client=self._session.client_id,
            filter=topic_filter,
            least=least,
        )
        return True

    def _answer(self, packet_identifier: int, codes: tuple[int, ...], ticket: CommitTicket) -> None:
        """Send SUBACK once the subscriptions are durable."""
        link = self._link
        suback = Suback(packet_identifier, codes)
        if self._v5 and max(codes) >= ReasonCode.UNSPECIFIED_ERROR:
            answer = link.explanations.encode(suback, explain_refusals(codes, self._limits))
        else:
            answer = encode(suback, link.protocol_version)

        def failed(failure: StorageFailure) -> bytes | None:
            if not self._v5:
                link.close_after_failure(failure)
                return None
            refused = tuple(max(code, failure_reason(failure)) for code in codes)
            return link.explanations.encode(Suback(packet_identifier, refused), "the broker cannot store this now")

        link.acknowledgements.send_when_committed(ticket, answer, failed)

    def _send_own_topics(self, ticket: CommitTicket, own: list[str]) -> None:
        """Send the present values of the broker's own topics, after the SUBACK that grants these subscriptions."""
        for key in own:
            subscription = self._session.subscriptions.get(key)
            if subscription is not None and ticket.failure is None:
                self._parts.sys_topics.tell(self._session, subscription)
