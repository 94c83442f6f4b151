"""UNSUBSCRIBE of one Client: checks, the subscriptions and replays that it ends, and the answer."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from holdfast.scheduling.long_work import Meter
from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.exchange.broker_parts import BrokerParts
from holdfast.sessions.exchange.filter_checks import CHECKS_PER_STEP, TopicFilterChecks, weight_of_check
from holdfast.sessions.exchange.long_packets import LongPackets
from holdfast.sessions.replays.replays import Replays
from holdfast.sessions.session.session import Session
from holdfast.tickets import TicketsTogether
from holdfast.wire import ReasonCode, encode
from holdfast.wire.datatypes import check_characters
from holdfast.wire.packets import Unsuback, Unsubscribe


@define(eq=False)
class _Removed:
    """An UNSUBSCRIBE that is worked on: how many Topic Filters it has, and the Reason Code of each so far."""

    packet_identifier: int
    count: int = 0
    codes: bytearray = field(factory=bytearray)
    tickets: TicketsTogether = field(factory=TicketsTogether)


class Unsubscribing:
    """Handles the UNSUBSCRIBE packets of one Client."""

    def __init__(self, link: IClientLink, session: Session, parts: BrokerParts, replays: Replays) -> None:
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
            ticket = self._parts.registry.unsubscribe(self._session, topic_filter)
            removed.codes.append(ReasonCode.NO_SUBSCRIPTION_EXISTED if ticket is None else ReasonCode.SUCCESS)
            if ticket is not None:
                removed.tickets.add(ticket)

    def _unsubscribed(self, removed: _Removed) -> None:
        """Answer with UNSUBACK."""
        self._replays.share_window()
        answer = Unsuback(removed.packet_identifier, bytes(removed.codes) if self._v5 else ())
        self._link.acknowledgements.send_when_committed(
            removed.tickets.ticket(), encode(answer, self._link.protocol_version), self._link.close_after_failure
        )
