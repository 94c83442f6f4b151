"""SUBSCRIBE and UNSUBSCRIBE of one Client, and the replays they start and stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attrs import frozen
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from holdfast.retained.replay.replay import Replay
from holdfast.sessions.connection.explanations import why_refused
from holdfast.sessions.delivery.replay_position import ReplayPosition
from holdfast.sessions.exchange.publishing import failure_reason
from holdfast.sessions.replays.replay_delivery import ReplayDelivery
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

if TYPE_CHECKING:
    from holdfast.sessions.connection.connection import Connection
    from holdfast.sessions.session.session import Session


#: seconds between two notes of where a replay to a Session that outlives the process stands
SAVE_INTERVAL = 1.0


@frozen
class _Running:
    replay: Replay
    delivery: ReplayDelivery


#: whether a subscription is granted, or the Reason Code of its refusal
Verdict = ReasonCode | bool


class Subscriptions:
    """The subscriptions one Client makes over one Network Connection, and their running replays."""

    _log = Logger()

    def __init__(self, connection: Connection, session: Session) -> None:
        self._connection = connection
        self._session = session
        self._services = connection.services
        self._limits = connection.limits
        self._v5 = connection.protocol_version == 5
        self._replays: dict[str, _Running] = {}
        self._saving: IDelayedCall | None = None

    @property
    def replay_count(self) -> int:
        """How many replays run."""
        return len(self._replays)

    def subscribe(self, packet: Subscribe) -> None:
        """Grant what may be granted, answer with SUBACK, and start replays [MQTT5-3.8.4]."""
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
            answer = self._services.authorizer.may_subscribe(self._session.principal, topic_filter, request.qos)
            if isinstance(answer, Deferred):
                answer.addErrback(self._connection.denied_by_error)
                waiting.append(answer.addCallback(partial(verdicts.__setitem__, len(verdicts))))
                verdicts.append(False)
            else:
                verdicts.append(answer)
        if waiting:
            together: Deferred[list[None]] = gatherResults(waiting)
            self._connection.wait_for(together, [], lambda _: self._decided(packet, verdicts))
        else:
            self._decided(packet, verdicts)

    def unsubscribe(self, packet: Unsubscribe) -> None:
        """Remove subscriptions, stop their replays, answer with UNSUBACK [MQTT5-3.10.4]."""
        for topic_filter in packet.topic_filters:
            self._parsed(topic_filter)
        if not self._can_answer(Unsuback(packet.packet_identifier, (0,) * len(packet.topic_filters))):
            return
        codes = []
        ticket = COMMITTED
        for topic_filter in packet.topic_filters:
            running = self._replays.pop(topic_filter, None)
            if running is not None:
                running.replay.stop()
            removed = self._services.registry.unsubscribe(self._session, topic_filter)
            codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED if removed is None else ReasonCode.SUCCESS)
            ticket = removed or ticket  # the last ticket settles last
        self._set_replaying()
        answer = Unsuback(packet.packet_identifier, tuple(codes) if self._v5 else ())
        self._connection.acknowledgements.add(
            ticket, encode(answer, self._connection.protocol_version), self._connection.close_for
        )

    def resume(self) -> None:
        """Let the replays go on that a disconnect had cut off, each from where it was."""
        suspended, self._session.suspended = self._session.suspended, {}
        for topic_filter, cursor in suspended.items():
            if topic_filter in self._session.subscriptions:
                self._start(topic_filter, cursor)
        self._set_replaying()

    def suspend(self) -> None:
        """Stop all replays because the Network Connection is gone, and remember where they were."""
        self._save()
        if self._saving is not None:
            self._saving.cancel()
            self._saving = None
        for topic_filter, running in self._replays.items():
            self._session.suspended[topic_filter] = running.replay.cursor
            running.replay.stop()
        self._replays.clear()
        self._set_replaying()

    def wake(self) -> None:
        """There may be room for replays."""
        for running in list(self._replays.values()):
            running.replay.wake()

    def replay_over(self, topic_filter: str) -> None:
        """Forget a replay that has delivered everything."""
        self._replays.pop(topic_filter, None)
        position = self._session.positions.get(topic_filter)
        if position is not None:
            position.delivered = True
            self._save()
        self._set_replaying()

    def _set_replaying(self) -> None:
        self._session.replaying = any(running.delivery.begun for running in self._replays.values())
        if not self._session.replaying:
            self._session.fill()  # live messages have the whole window again

    def _parsed(self, text: str) -> tuple[str | None, str] | None:
        """Return ShareName and Topic Filter, or None for what is well formed but not accepted.

        What is not well formed ends the connection [MQTT5-4.7.1-1], [MQTT5-4.7.1-2], [MQTT311-4.8.0-1].
        """
        try:
            group, topic_filter = split_shared(text)
            check_topic_filter(topic_filter, self._limits.max_topic_levels)
        except TooManyLevels:
            return None
        except InvalidTopicFilter as wrong:
            if isinstance(wrong, InvalidShare) and not self._v5:  # to MQTT 3 a Topic Filter like any other
                return None
            raise ProtocolError(str(wrong)) from None
        return group, topic_filter

    def _check(self, request: SubscriptionRequest) -> ReasonCode | None:
        """Return why the subscription cannot be granted, or None."""
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
        most = limits.max_subscriptions
        if most is not None and len(subscriptions) >= most and request.topic_filter not in subscriptions:
            return ReasonCode.QUOTA_EXCEEDED
        return None

    def _not_offered(self, what: str, reason: ReasonCode) -> ReasonCode:
        """Refuse what CONNACK told is not available: asking all the same is a Protocol Error [MQTT5-3.2.2.3.11], 13."""
        if self._v5:
            raise ProtocolError(f"{what} are not offered here", reason)
        return reason

    def _can_answer(self, answer: Suback | Unsuback) -> bool:
        """Tell whether the Client takes an answer of this size; else its connection is over [MQTT5-3.1.2-24]."""
        connection = self._connection
        if connection.maximum_packet_size is None or connection.explanations.fits(encode(answer, 5)):
            return True
        connection.close(ReasonCode.PACKET_TOO_LARGE, "the answer would exceed the Maximum Packet Size")
        return False

    def _decided(self, packet: Subscribe, verdicts: list[Verdict]) -> None:
        connection = self._connection
        session = self._session
        identifiers = packet.properties.subscription_identifiers
        codes: list[int] = []
        replays: list[str] = []
        ticket: CommitTicket = COMMITTED
        for request, verdict in zip(packet.subscriptions, verdicts, strict=True):
            if verdict is not True:
                codes.append(verdict if isinstance(verdict, ReasonCode) else ReasonCode.NOT_AUTHORIZED)
                continue
            if self._check(request) is ReasonCode.QUOTA_EXCEEDED:  # filled up by this very packet
                codes.append(ReasonCode.QUOTA_EXCEEDED)
                continue
            key = request.topic_filter
            group, topic_filter = split_shared(key)
            existed = key in session.subscriptions
            qos = min(request.qos, self._limits.max_qos_allowed)
            subscription = Subscription(
                topic_filter,
                qos,
                request.no_local or (self._limits.ignore_loop_deliver and not self._v5),
                request.retain_as_published or connection.bridge,
                request.retain_handling,
                identifiers[0] if identifiers else None,
                group,
            )
            # Shared subscriptions get no replay; Retain Handling 2 none, 1 only when new [MQTT5-3.3.1-9..11].
            wanted = group is None and (request.retain_handling == 0 or (request.retain_handling == 1 and not existed))
            replayed = wanted and not self._is_denied(topic_filter)
            if replayed and self._services.retained.refuses_replays:
                codes.append(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
                continue
            position = session.positions.get(key)
            replay_after = "" if replayed else position.saved if position is not None else None
            ticket = self._services.registry.subscribe(session, key, subscription, replay_after)
            codes.append(qos)
            if replayed:
                replays.append(key)
            elif key in self._replays:
                self._replays[key].replay.reread()  # goes on, under the new options
        if not self._v5:
            codes = [code if code < ReasonCode.UNSPECIFIED_ERROR else 0x80 for code in codes]
        suback = Suback(packet.packet_identifier, tuple(codes))
        if self._v5 and max(codes) >= ReasonCode.UNSPECIFIED_ERROR:
            answer = connection.explanations.encode(suback, why_refused(codes, self._limits))
        else:
            answer = encode(suback, connection.protocol_version)

        def failed(failure: StorageFailure) -> bytes | None:
            if not self._v5:
                return connection.close_for(failure)
            refused = tuple(max(code, failure_reason(failure)) for code in codes)
            suback = Suback(packet.packet_identifier, refused)
            return connection.explanations.encode(suback, "the broker cannot store this now")

        connection.acknowledgements.add(ticket, answer, failed)
        for key in replays:
            self._start(key, "")
        self._set_replaying()
        own = [key for key in replays if is_sys(key)]
        if own:
            connection.acknowledgements.then(partial(self._tell_present, ticket, own))

    def _is_denied(self, topic_filter: str) -> bool:
        """Tell whether retained messages are withheld from subscriptions to so much at once; log and count it then."""
        least = self._limits.min_replay_levels
        if not least or not has_wildcard(topic_filter) or is_sys(topic_filter):
            return False
        if levels_before_wildcard(topic_filter) >= least:
            return False
        self._connection.counters.replays_denied += 1
        self._log.info(
            "{client!r} gets live messages only for {filter!r}: mqtt.min_replay_levels is {least}",
            client=self._session.client_id,
            filter=topic_filter,
            least=least,
        )
        return True

    def _tell_present(self, ticket: CommitTicket, own: list[str]) -> None:
        """Tell the present values of the broker's own topics, after the SUBACK that grants these subscriptions."""
        for key in own:
            subscription = self._session.subscriptions.get(key)
            if subscription is not None and ticket.failure is None:
                self._services.sys_topics.tell(self._session, subscription)

    def _start(self, topic_filter: str, cursor: str) -> None:
        running = self._replays.get(topic_filter)
        if running is not None:
            running.replay.stop()
        if self._session.record.durable:
            if not cursor or topic_filter not in self._session.positions:
                self._session.positions[topic_filter] = ReplayPosition(cursor)
            self._save_later()
        delivery = ReplayDelivery(self._connection, self._session, topic_filter, self._save, self._set_replaying)
        replay = self._services.retained.replay(topic_filter, delivery, cursor)
        self._replays[topic_filter] = _Running(replay, delivery)

    def _save_later(self) -> None:
        if self._saving is None and self._session.positions:
            self._saving = self._services.clock.callLater(SAVE_INTERVAL, self._saved)

    def _saved(self) -> None:
        self._saving = None
        self._save()
        self._save_later()

    def _save(self) -> None:
        """Keep where the replays stand, where that has changed."""
        session = self._session
        for topic_filter, position in list(session.positions.items()):
            running = self._replays.get(topic_filter)
            present = position.present("" if running is None else running.replay.cursor)
            if present is None:
                del session.positions[topic_filter]
            if present != position.saved:
                position.saved = present
                session.record.subscribed(topic_filter, session.subscriptions[topic_filter], present)
