"""A Client's end of a replay: room, and retained messages in the form its subscription asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.messages import ApplicationMessage, seconds_left
from holdfast.retained.replay.interfaces import IDelivery, ReplayForm
from holdfast.retained.store.values import Slice
from holdfast.sessions.connection.outbox import LOW_WATER
from holdfast.sessions.delivery.inflight import Inflight
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.state.subscription import Subscription
from holdfast.topics import matches
from holdfast.wire import PacketParser, ReasonCode, encode_variable_byte_integer
from holdfast.wire.packets import Publish

if TYPE_CHECKING:
    from holdfast.sessions.connection.connection import Connection
    from holdfast.sessions.session.session import Session

_PLENTY = 1 << 30


@implementer(IDelivery)
class ReplayDelivery:
    """Takes one replay for one subscription of a connected Session.

    The subscription's options are looked up for each slice, so a re-SUBSCRIBE that does not restart the replay changes
    its form from the next slice on. What was queued for the Session before the replay, or waits for its commit to leave
    with QoS 2, is sent before it.

    With QoS 2 every message is noted, and with it (``save``) that the replay has come so far: else it would be sent
    once more by a replay that goes on after a kill. ``share`` is called when it ceases to share the window.
    """

    def __init__(
        self,
        connection: Connection,
        session: Session,
        topic_filter: str,
        save: Callable[[], None],
        share: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._session = session
        self._topic_filter = topic_filter
        self._save = save
        self._share = share
        self.client_id = session.client_id
        self._not_before = session.queue.enqueued
        self._awaited: list[Inflight] | None = None
        #: whether the replay has come to the point where it shares the window with live messages
        self.begun = False

    def form(self) -> ReplayForm:
        """Return the form the subscription's present options ask for."""
        subscription = self._subscription()
        link = self._connection
        return ReplayForm(
            link.protocol_version,
            self._effective(subscription) > 0 or subscription.identifier is not None or link.checks_delivery,
            self._session.client_id if subscription.no_local else None,
            link.maximum_packet_size,
        )

    def room(self) -> int:
        """Return how many messages may be delivered now; the Session lets replays that had no room know of it again."""
        room = self._room()
        if room <= 0:
            self._session.replays_rest = True
        return room

    def _room(self) -> int:
        session = self._session
        if session.link is None or self._connection.unsent >= LOW_WATER or session.queue.dequeued < self._not_before:
            return 0
        if len(session.withheld):
            return 0
        if not self.begun:
            if self._awaited is None:
                self._awaited = session.unsettled()
            if any(entry.waiting for entry in self._awaited):
                return 0
            self.begun = session.replaying = True
        return session.replay_room() if self._effective(self._subscription()) else _PLENTY

    def is_leaving(self, after: str, last: str) -> bool:
        """Tell whether a message of another replay, or of this one before it began again, waits for its commit."""
        leaving = any(
            after < topic <= last and matches(self._topic_filter, topic) for topic in self._session.leaving.values()
        )
        if leaving:
            self._session.replays_rest = True
        return leaving

    def awaits_commits(self) -> bool:
        """Tell whether anything may be sent with QoS 2 in a Session that outlives the connection."""
        return self._session.record.durable and self._effective(self._subscription()) == 2

    def yield_to_queue(self) -> None:
        """Let what is queued or waits for its commit go first."""
        self._not_before = self._session.queue.enqueued
        self._awaited = None
        if self.begun:
            self.begun = False
            self._share()

    def deliver(self, messages: Slice) -> None:
        """Send the slice: in one piece where nothing has to be rewritten, else packet by packet."""
        connection = self._connection
        if connection.checks_delivery:
            self._ask(messages)
        elif not messages.qos:
            connection.send_messages(messages.packets, messages.count)
        else:
            self._rewrite(messages)

    def finished(self) -> None:
        """Everything has been delivered."""
        self._connection.replay_over(self._topic_filter)

    def failed(self, error: BaseException) -> None:
        """The replay cannot go on: end the connection with a reason rather than truncate silently."""
        self._connection.replay_failed(error)

    def cancelled(self) -> None:
        """An operator has ended the replay: end the connection with a reason rather than truncate silently."""
        self._connection.close(ReasonCode.ADMINISTRATIVE_ACTION, "the replay of retained messages was cancelled")

    def _subscription(self) -> Subscription:
        return self._session.subscriptions[self._topic_filter]

    def _effective(self, subscription: Subscription) -> int:
        """Return the highest QoS a message of this replay may be sent with."""
        return 2 if self._session.limits.upgrade_qos and subscription.qos else subscription.qos

    def _rewrite(self, messages: Slice) -> None:
        """Give each packet its QoS and Packet Identifier, Subscription Identifier and remaining expiry interval."""
        subscription = self._subscription()
        session = self._session
        connection = self._connection
        counters = connection.counters
        upgrade = session.limits.upgrade_qos
        most = connection.maximum_packet_size
        v5 = connection.protocol_version == 5
        now = connection.now()
        progress = session.positions.get(self._topic_filter)
        noted = self._effective(subscription) == 2
        identifier = b""
        if v5 and subscription.identifier is not None:
            identifier = b"\x0b" + encode_variable_byte_integer(subscription.identifier)
        data = messages.packets
        position = 0
        plain: list[bytes] = []
        for stored_qos, expires_at in zip(messages.qos, messages.expires_at, strict=True):
            start = position + 1
            length = shift = 0
            while True:
                byte = data[start]
                start += 1
                length |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
            end = start + length
            topic_end = start + 2 + (data[start] << 8 | data[start + 1])
            if expires_at and expires_at <= now:
                counters.messages_dropped_expired += 1
                position = end
                continue
            qos = subscription.qos
            if stored_qos != qos:
                qos = max(stored_qos, qos) if upgrade else min(stored_qos, qos)
            extra = identifier
            if v5 and expires_at:
                extra = extra + b"\x02" + seconds_left(expires_at, now).to_bytes(4, "big")
            if not qos and not extra:
                packet = data[position:end]
            else:
                rest = data[topic_end:end]
                if extra:
                    rest = _with_properties(rest, extra)
                middle = b""
                packet_identifier = 0
                if qos:
                    packet_identifier = session.next_identifier()
                    middle = packet_identifier.to_bytes(2, "big")
                size = encode_variable_byte_integer(topic_end - start + len(middle) + len(rest))
                packet = b"%c%b%b%b%b" % (0x31 | qos << 1, size, data[start:topic_end], middle, rest)
            position = end
            if most is not None and len(packet) > most:
                counters.messages_dropped_too_large += 1
            elif qos:
                if plain:
                    connection.send_messages(b"".join(plain), len(plain))
                    plain.clear()
                topic = data[start + 2 : topic_end].decode()
                entry = session.send_retained(packet, packet_identifier, topic, qos, expires_at, noted)
                if progress is not None and not noted:
                    progress.sent(entry, topic)
            else:
                plain.append(packet)
        if plain:
            connection.send_messages(b"".join(plain), len(plain))
        if noted:
            self._save()

    def _ask(self, messages: Slice) -> None:
        """Ask the authorizer about each message, now or later, keeping their order."""
        subscription = self._subscription()
        session = self._session
        connection = self._connection
        identifiers = () if subscription.identifier is None else (subscription.identifier,)
        options = DeliveryOptions(subscription.qos, True, identifiers)
        parser = PacketParser(len(messages.packets), connection.protocol_version)
        parser.receive_data(messages.packets)
        for qos, expires_at in zip(messages.qos, messages.expires_at, strict=True):
            publish = parser.next_packet()
            assert isinstance(publish, Publish)
            message = ApplicationMessage(
                publish.topic,
                publish.payload,
                qos,
                True,
                properties=publish.properties,
                expires_at=expires_at or None,
            )
            answer = connection.services.authorizer.may_receive(session.principal, message)
            if isinstance(answer, Deferred):
                answer.addErrback(connection.denied_by_error)
            deliver = partial(session.deliver, OutgoingMessage(message), options)
            if session.withheld.add(answer, deliver) is False:
                connection.counters.messages_dropped_not_authorized += 1


def _with_properties(rest: bytes, extra: bytes) -> bytes:
    """Put encoded properties in front of those of a PUBLISH's property block, which begins ``rest``."""
    position = length = shift = 0
    while True:
        byte = rest[position]
        position += 1
        length |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return encode_variable_byte_integer(length + len(extra)) + extra + rest[position:]
