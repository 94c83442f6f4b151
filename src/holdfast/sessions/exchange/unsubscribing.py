"""UNSUBSCRIBE of one Client, and what it shares with SUBSCRIBE: long requests and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, evolve, field
from twisted.python.failure import Failure

from holdfast.core.tickets import TicketsTogether
from holdfast.core.topics import (
    InvalidShare,
    InvalidTopicFilter,
    TooManyLevels,
    check_topic_filter,
    has_wildcard,
    split_shared,
    without_queue,
)
from holdfast.scheduling.long_work import Meter
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.delivery.replays import Replays
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.wire import ProtocolError, ReasonCode, encode
from holdfast.wire.datatypes import check_characters
from holdfast.wire.packets import Suback, SubscriptionRequest, Unsuback, Unsubscribe

# The checks of a Topic Filter in SUBSCRIBE and UNSUBSCRIBE: is it well formed, and do the limits allow it?


#: the weight of the Topic Filters that are checked in one step of long work (:class:`Meter`)
CHECKS_PER_STEP = 8
#: so many characters of a Topic Filter count as one more check
_CHARACTERS = 1024


def weight_of_check(topic_filter: str) -> int:
    """Return for how many checks a Topic Filter counts: they look at all its characters."""
    return 1 + len(topic_filter) // _CHARACTERS


class TopicFilterChecks:
    """Checks the Topic Filters of one Client."""

    def __init__(self, link: Connection) -> None:
        self._limits = link.limits
        self._v5 = link.protocol_version == 5

    def parsed(self, text: str) -> tuple[str | None, str] | None:
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

    def without_queue(self, request: SubscriptionRequest) -> SubscriptionRequest:
        """Return a request with ``$share/$queue/FILTER`` in place of ``$queue/FILTER``.

        With No Local it ends the connection, as for every shared subscription [MQTT5-3.8.3-4].
        """
        topic_filter = without_queue(request.topic_filter)
        if topic_filter is request.topic_filter:
            return request
        if request.no_local:
            raise ProtocolError("No Local is not allowed on $queue/, which is a shared subscription here")
        return evolve(request, topic_filter=topic_filter)

    def refusal(self, request: SubscriptionRequest) -> ReasonCode | None:
        """Return why the limits forbid the subscription, or None."""
        limits = self._limits
        parsed = self.parsed(request.topic_filter)
        if parsed is None:
            return ReasonCode.TOPIC_FILTER_INVALID
        group, topic_filter = parsed
        if group is not None and not limits.shared_subscription:
            return self._not_offered("shared subscriptions", ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
        if not limits.wildcard_subscription and has_wildcard(topic_filter):
            return self._not_offered("wildcards", ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)
        return None

    def _not_offered(self, feature: str, reason: ReasonCode) -> ReasonCode:
        """Refuse a feature that CONNACK has declared unavailable: in MQTT 5 a Protocol Error [MQTT5-3.2.2.3.11], 13."""
        if self._v5:
            raise ProtocolError(f"{feature} are not offered here", reason)
        return reason


# What SUBSCRIBE and UNSUBSCRIBE share: both may be long, and so may be their answers.


class LongPackets:
    """Works on the long packets of one Client in parts."""

    def __init__(self, link: Connection, session: Session, parts: BrokerParts) -> None:
        self._link = link
        self._session = session
        self._parts = parts

    def in_portions(self, steps: Iterator[int], then: Callable[[], None]) -> None:
        """Do long work for this Client, then call ``then``, unless the connection has ended meanwhile."""
        link = self._link
        done = self._parts.long_work.do(self._session.client_id, steps)
        if done is None:
            if not link.is_closed:
                then()
            return

        def error_of(failure: Failure) -> BaseException:
            return failure.value or RuntimeError(failure.getErrorMessage())

        def go_on(error: BaseException | None) -> None:
            if error is not None:  # the connection handles it, like an error that is raised at once
                raise error
            then()

        link.wait_for(done.addErrback(error_of), None, go_on)

    def can_answer(self, answer: Suback | Unsuback) -> bool:
        """Tell whether the Client accepts an answer of this size. If not, end its connection [MQTT5-3.1.2-24]."""
        # Asked before the first change: a change without an answer would leave the Client in doubt. Checked with the
        # codes 0, since all codes take one byte.
        link = self._link
        if link.maximum_packet_size is None or link.explanations.fits(encode(answer, 5)):
            return True
        link.close(ReasonCode.PACKET_TOO_LARGE, "the answer would exceed the Maximum Packet Size")
        return False


@define(eq=False)
class _Removed:
    """An UNSUBSCRIBE that is worked on: how many Topic Filters it has, and the Reason Code of each so far."""

    packet_identifier: int
    count: int = 0
    codes: bytearray = field(factory=bytearray)
    tickets: TicketsTogether = field(factory=TicketsTogether)


class Unsubscribing:
    """Handles the UNSUBSCRIBE packets of one Client."""

    def __init__(self, link: Connection, session: Session, parts: BrokerParts, replays: Replays) -> None:
        self._link = link
        self._session = session
        self._parts = parts
        self._replays = replays
        self._limits = link.limits
        self._v5 = link.protocol_version == 5
        self._checks = TopicFilterChecks(link)
        self._long = LongPackets(link, session, parts)

    def unsubscribe(self, packet: Unsubscribe) -> None:
        """Remove subscriptions, stop their replays, answer with UNSUBACK [MQTT5-3.10.4]."""
        removed = _Removed(packet.packet_identifier)
        # All filters are checked before the first change: a malformed one ends the connection before any change.
        self._long.in_portions(self._count_all(packet, removed), lambda: self._unsubscribe(packet, removed))

    def _count_all(self, packet: Unsubscribe, removed: _Removed) -> Iterator[int]:
        meter = Meter(CHECKS_PER_STEP)
        for topic_filter in packet.topic_filters:
            due = meter.add(weight_of_check(topic_filter))
            if due:
                yield due
            self._checks.parsed(topic_filter)
            if topic_filter not in self._session.subscriptions:
                check_characters(topic_filter, "a Topic Filter", self._limits.reception)
            removed.count += 1

    def _unsubscribe(self, packet: Unsubscribe, removed: _Removed) -> None:
        if self._long.can_answer(Unsuback(packet.packet_identifier, bytes(removed.count))):
            self._long.in_portions(self._remove_all(packet, removed), lambda: self._unsubscribed(removed))

    def _remove_all(self, packet: Unsubscribe, removed: _Removed) -> Iterator[int]:
        for topic_filter in packet.topic_filters:
            yield weight_of_check(topic_filter)
            if self._link.is_closed:  # its Session may have ended
                return
            self._replays.stop(topic_filter)
            # A Session may have $queue/FILTER under both names, if mqtt.queue_subscription has changed meanwhile.
            existed = False
            for name in dict.fromkeys((topic_filter, without_queue(topic_filter))):
                ticket = self._parts.registry.unsubscribe(self._session, name)
                if ticket is not None:
                    removed.tickets.add(ticket)
                    existed = True
            removed.codes.append(ReasonCode.SUCCESS if existed else ReasonCode.NO_SUBSCRIPTION_EXISTED)

    def _unsubscribed(self, removed: _Removed) -> None:
        """Answer with UNSUBACK."""
        self._replays.share_window()
        answer = Unsuback(removed.packet_identifier, bytes(removed.codes) if self._v5 else ())
        self._link.acknowledgements.send_when_committed(
            removed.tickets.ticket(), encode(answer, self._link.protocol_version), self._link.close_after_failure
        )
