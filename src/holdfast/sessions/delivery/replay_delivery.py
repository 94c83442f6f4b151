"""The Client's end of one replay: room for messages, and the messages in the form of the subscription.

How it works. ``holdfast.retained.replay`` reads the store and asks this end how many messages it may deliver. The
answer is 0 while

- the connection is gone, or so many bytes wait to be sent that it is congested;
- messages that were queued or held (:mod:`.conflation`) before the replay have not been sent, or sent again, or wait
  for the authorizer or for their commit: they may be older than the retained messages, and must not come after them;
- the replay's part of the window is full (QoS 1 and 2 only, see :mod:`.inflight`).

A replay without room pauses. The Session and the outbox wake the replays of their Client when there is room again;
they are given :meth:`Replays.wake` directly.

A slice is then sent in one of four ways: unchanged, if the subscription needs no other form; numbered together, if all
packets get QoS 1 and nothing else, and the Session keeps no packets; packet by packet, if the
subscription needs any other change of QoS, a Subscription Identifier or an expiry interval; or message by message,
if the authorizer answers later.

Permissions (:mod:`holdfast.retained.rules`). If the subscriber may receive some of the matching messages, the
authorizer may name Topic Filters: only these are read. Then it is asked about each message, before the slice is sent
without the others. So a message that is not allowed costs the replay's own turns, like one that is.

The subscription's options are looked up for each slice. So a repeated SUBSCRIBE that does not restart the replay
changes its form from the next slice on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, repeat, takewhile
from struct import pack
from typing import Protocol

from attrs import evolve
from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.extensions import PUBLISHER_FACT, Facts
from holdfast.core.messages import HELD_ENTRY, HELD_IDENTIFIER, ApplicationMessage, has_expired, seconds_left
from holdfast.core.topics import CHANGES_PREFIX, matches
from holdfast.identity.interfaces import Grant, IAuthorizer
from holdfast.retained.replay.interfaces import IDelivery, ReplayForm
from holdfast.retained.rules import NOTHING, Permission, Subscriber
from holdfast.retained.store.slices import only
from holdfast.retained.store.values import Slice
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.outbox import LOW_WATER
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.inflight import AWAITS_COMMIT, UNSENT, Inflight
from holdfast.sessions.delivery.markers import send_marker, send_retained, send_retained_block
from holdfast.sessions.delivery.outgoing import DeliveryOptions, OutgoingMessage
from holdfast.sessions.delivery.replay_positions import ReplayPosition
from holdfast.sessions.delivery.session import Session
from holdfast.sessions.state import NO_HISTORY, NOT_AUTHORIZED, TOO_LARGE, Subscription
from holdfast.wire import PacketParser, ReasonCode, encode_variable_byte_integer
from holdfast.wire.datatypes import read_variable_byte_integer
from holdfast.wire.packets import Publish

#: the room for QoS 0: the window does not count, only the bytes that wait to be sent
_UNLIMITED = 1 << 30
#: The most bytes by which a packet grows when it is rewritten: Packet Identifier, Subscription Identifier, Message
#: Expiry Interval, and longer lengths.
_GROWTH = 2 + 5 + 5 + 4
#: The most packets of a slice that are rewritten in one step, each by itself (some microseconds, and as long if the
#: authorizer is asked about it) or together (less).
_REWRITTEN_AT_ONCE, _NUMBERED_AT_ONCE = 100, 1000
#: Bytes to read at once for QoS 1 and 2. With even less room in the window, some are read ahead: otherwise each
#: acknowledgement would cost a read. With more room, the rest is read later: the client may not read its socket.
_LEAST_READ, _MOST_READ = 64 * 1024, 256 * 1024


class IReplays(Protocol):
    """The methods of all replays of a Client that one replay calls."""

    def save_position(self, topic_filter: str) -> None:
        """Store the position of one replay."""

    def share_window(self) -> None:
        """Share the window between live messages and the replays that have begun."""

    def log_left_out(self, topic_filter: str, count: int) -> None:
        """Log that messages are longer than the Client's Maximum Packet Size."""

    def finished(self, topic_filter: str) -> None:
        """Forget a replay that has delivered everything."""


@implementer(IDelivery)
class ReplayDelivery:
    """Takes one replay for one subscription of a connected Session.

    With QoS 2 the delivery of every message is stored, and with it the position of the replay: otherwise a replay that
    continues after a crash would send the message a second time. ``begun`` tells whether the replay shares the window
    already.
    """

    def __init__(
        self,
        *,
        topic_filter: str,
        link: Connection,
        session: Session,
        replays: IReplays,
        authorizer: IAuthorizer,
        counters: Counters,
        position: ReplayPosition,
        cursor: Callable[[], str],
    ) -> None:
        self.client_id = session.client_id
        self.begun = False
        self._topic_filter = topic_filter
        self._link = link
        self._session = session
        self._replays = replays
        self._authorizer = authorizer
        self._counters = counters
        self._position = position
        self._cursor = cursor
        self._was_queued = False  # whether messages may wait that come before the marker
        self._concludes = False  # whether all messages of the replay have been delivered once
        self._permission = NOTHING
        self._judged_at: object = None  # the epoch of this permission, and the facts asked for
        self._not_before = session.queue.enqueued  # so many messages must have left the queue
        self._held_until = session.hurry_held()  # the number of the last held message that must have left
        self._awaited: list[Inflight] | None = None  # the messages that must have been sent

    @property
    def epoch(self) -> object:
        """The authorizer's epoch."""
        return self._authorizer.epoch

    def form(self) -> ReplayForm:
        """Return the form that the subscription's present options ask for."""
        subscription = self._subscription()
        permission = self._present_permission()
        return ReplayForm(
            self._link.protocol_version,
            self._highest_qos(subscription) > 0
            or subscription.identifier is not None
            or permission.grant is Grant.FILTERED
            or bool(permission.facts),  # each length is compared with the Maximum Packet Size
            self._session.client_id if subscription.no_local else None,
            self._link.maximum_packet_size,
            permission.within,
            permission.facts,
        )

    @property
    def _subscriber(self) -> Subscriber:
        return Subscriber(self._authorizer, self._session.principal)

    def _present_permission(self) -> Permission:
        """Ask the authorizer if its epoch has changed since the last time."""
        epoch = self._authorizer.epoch
        asked = epoch, self._position.facts
        if epoch is None or asked != self._judged_at:
            self._judged_at = asked
            self._permission = NOTHING
            with self._link.guard:
                self._permission = self._subscriber.permission(self._topic_filter)
                if self._position.facts:
                    self._permission = evolve(self._permission, facts=self._facts())
            if self._permission.grant is not Grant.GRANTED:
                self._note_left_out(NOT_AUTHORIZED)
        return self._permission

    def _facts(self) -> Facts:
        """Return what the Client may be told of each message, of what it has asked for."""
        link = self._link
        if not link.participant:  # also a Client of MQTT 3 that has taken over the Session
            return ()
        permitted = link.limits.tell_publishers and self._subscriber.may_know_publishers(self._topic_filter)
        return tuple(fact for fact in self._position.facts if fact != PUBLISHER_FACT or permitted)

    def room(self) -> int:
        """Return how many messages may be delivered now. After 0 the Session wakes the replay when there is room."""
        room = self._room()
        if room <= 0:
            self._session.note_waiting_replay()
        return room

    def _room(self) -> int:
        session = self._session
        if session.link is None or self._link.unsent >= LOW_WATER or not session.queue.have_left(self._not_before):
            return 0
        if session.inflight.to_resend or session.permissions.is_awaited:
            return 0
        if self._held_until:
            if session.holds_until(self._held_until):
                return 0
            self._held_until = 0
            self._not_before = session.queue.enqueued
            if not session.queue.have_left(self._not_before):
                return 0
        if not self.begun:
            if self._awaited is None:
                self._awaited = session.inflight.unsent()
            if any(entry.state in (AWAITS_COMMIT, UNSENT) for entry in self._awaited):
                return 0
            self.begun = True
            session.share_window(with_replays=True)
        return session.replay_room() if self._highest_qos(self._subscription()) else _UNLIMITED

    def fitting(self, messages: Slice) -> int:
        """Return how many messages of a slice may be delivered now, by their bytes and the work that they cost."""
        session = self._session
        in_window = self._highest_qos(self._subscription()) > 0
        most = session.replay_bytes() if in_window else self._unchecked_bytes()
        beside = _GROWTH  # what a message takes beside its bytes in the slice
        wanted = messages.count
        if self._is_numbered(messages):
            beside += HELD_IDENTIFIER
            wanted = min(wanted, _NUMBERED_AT_ONCE if self._permission.grant is Grant.GRANTED else _REWRITTEN_AT_ONCE)
        else:
            if in_window:
                beside += HELD_ENTRY
            if messages.qos:
                wanted = min(wanted, _REWRITTEN_AT_ONCE)
        if len(messages.packets) + beside * messages.count <= most:
            return wanted
        ends = enumerate((end for _, _, _, end in islice(packets_of(messages.packets), wanted)), start=1)
        count = sum(1 for _ in takewhile(lambda packet: packet[1] + beside * packet[0] <= most, ends))
        if not count and not (in_window and session.window.replayed_bytes):
            return 1
        if not count:
            session.note_waiting_replay()
        return count

    def most_bytes(self) -> int:
        """Return how many bytes of messages the next read may have."""
        if not self._highest_qos(self._subscription()):
            return _UNLIMITED
        return min(_MOST_READ, max(_LEAST_READ, self._session.replay_bytes()))

    def _unchecked_bytes(self) -> int:
        """Return how many bytes may be sent without regard to ``force_shutdown``."""
        most = self._link.limits.max_buffered_bytes
        return most - self._link.unsent if most else _UNLIMITED

    def is_leaving(self, after: str, last: str) -> bool:
        """Tell whether an earlier message of a topic in this range still awaits its commit."""
        # That message comes from another replay, or from this replay before it began again.
        leaving = any(
            after < topic <= last and matches(self._topic_filter, topic)
            for topic in self._session.inflight.unsent_replayed_topics()
        )
        if leaving:
            self._session.note_waiting_replay()
        return leaving

    def awaits_commits(self) -> bool:
        """Tell whether a message of this replay may have to await a commit: QoS 2, in a stored Session."""
        return self._session.record.durable and self._highest_qos(self._subscription()) == 2

    def yield_to_queue(self) -> None:
        """Let the messages that are queued now, or await their commit, go first."""
        self._not_before = self._session.queue.enqueued
        self._held_until = self._session.hurry_held()
        self._awaited = None
        if self.begun:
            self.begun = False
            self._replays.share_window()

    def deliver(self, messages: Slice) -> None:
        """Send the allowed messages of the slice."""
        if self._permission.grant is Grant.GRANTED:
            self._send(messages)
        else:
            with self._link.guard:  # an authorizer that fails ends this connection, and no other replay
                self._authorize(messages)

    def _send(self, messages: Slice) -> None:
        """Send the slice in the fastest of the ways that its subscription allows."""
        if not messages.qos:
            self._note_sent(messages.count, len(messages.packets))
            self._link.send_messages(messages.packets, messages.count)
        elif not (self._is_numbered(messages) and self._send_numbered(messages)):
            self._send_rewritten(messages)

    def left_out(self, count: int) -> None:
        """Count messages above the Client's Maximum Packet Size, like live ones [MQTT5-3.1.2-25], and log them."""
        self._counters.messages_dropped_too_large += count
        self._note_left_out(TOO_LARGE)
        self._replays.log_left_out(self._topic_filter, count)

    def lost(self, why: str = NO_HISTORY) -> None:
        """Note that what the replay reads is not kept any more."""
        self._note_left_out(why)
        self._link.client_log.info("a replay ends early", f"{{}}: {why}", self._topic_filter)

    def lacks_topics(self) -> None:
        """Note that the history does not know some topics of the replay."""
        self._note_left_out(NO_HISTORY)

    def conclude(self) -> bool:
        """Send the marker that is due, if any."""
        if self._position.marker is None:
            return True
        if not self._concludes:
            self._concludes = self._was_queued = True
        if self._was_queued:  # Messages in the queue, held, or awaiting their commit come before the marker.
            self._was_queued = False
            self.yield_to_queue()
            if self.room() <= 0:
                return False
        return send_marker(
            self._topic_filter, self._position, self._cursor(), self._link, self._session, self._counters
        )

    def finished(self) -> None:
        """End: everything has been delivered."""
        self._replays.finished(self._topic_filter)

    def failed(self, error: BaseException) -> None:
        """End the connection: the replay cannot continue, and the Client must not think that it is complete."""
        self._link.client_log.error("a replay to it failed", error)
        self._link.close(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, "retained messages cannot be read now")

    def cancelled(self) -> None:
        """End the connection: an operator has ended the replay, and the Client must not think that it is complete."""
        self._link.close(ReasonCode.ADMINISTRATIVE_ACTION, "the replay of retained messages was cancelled")

    def _subscription(self) -> Subscription:
        return self._session.subscriptions[self._topic_filter]

    def _highest_qos(self, subscription: Subscription) -> int:
        """Return the highest QoS with which a message of this replay may be sent."""
        return 2 if self._upgrades() and subscription.qos else subscription.qos

    def _upgrades(self) -> bool:
        """Tell whether the higher QoS counts. Changes of the past have QoS 2, so that none overtakes another."""
        return self._session.limits.upgrade_qos and not self._topic_filter.startswith(CHANGES_PREFIX)

    def _is_numbered(self, messages: Slice) -> bool:
        """Tell whether each packet gets QoS 1 and a Packet Identifier, and no other change."""
        subscription = self._subscription()
        maximum = self._link.maximum_packet_size
        return (
            subscription.qos == 1
            and self._session.inflight.in_blocks
            and not self._upgrades()
            and subscription.identifier is None
            and not messages.soonest_expiry
            and bool(messages.qos)
            and 0 not in messages.qos
            and (maximum is None or len(messages.packets) + _GROWTH <= maximum)
        )

    def _send_numbered(self, messages: Slice) -> bool:
        """Send the slice with QoS 1. Returns False if no free Packet Identifiers follow each other."""
        first = self._session.inflight.next_block(messages.count)
        if first:
            self._note_sent(messages.count, len(messages.packets))
            packets = numbered(messages.packets, messages.count, first)
            send_retained_block(self._session, packets, first, messages.count)
        return bool(first)

    def _send_rewritten(self, messages: Slice) -> None:
        """Send each packet with its QoS, Packet Identifier, Subscription Identifier and remaining expiry interval."""
        session = self._session
        link = self._link
        subscription = self._subscription()
        upgrade = self._upgrades()
        maximum = link.maximum_packet_size
        v5 = link.protocol_version == 5
        now = session.now()
        position = session.replay_positions.get(self._topic_filter) if session.record.durable else None
        noted = self._highest_qos(subscription) == 2
        identifier = b""
        if v5 and subscription.identifier is not None:
            identifier = subscription_identifier(subscription.identifier)
        joined = messages.packets
        too_large = sent = size = 0
        together: list[bytes] = []  # QoS 0 packets not sent yet; sent before the next QoS 1 or 2 packet, in order
        cursors = messages.cursors or repeat("", messages.count)
        for packet, stored_qos, expires_at, cursor in zip(
            packets_of(joined), messages.qos, messages.expires_at, cursors, strict=True
        ):
            # The slice was read a moment ago, and a message may have expired since.
            if has_expired(expires_at, now):
                self._counters.messages_dropped_expired += 1
                continue
            qos = subscription.qos
            if stored_qos != qos:
                qos = max(stored_qos, qos) if upgrade else min(stored_qos, qos)
            properties = identifier
            if v5 and expires_at:
                properties = properties + message_expiry_interval(seconds_left(expires_at, now))
            packet_identifier = session.inflight.next_identifier() if qos else 0
            data = rewritten(joined, packet, qos, packet_identifier, properties)
            if maximum is not None and len(data) > maximum:
                too_large += 1
                continue
            sent += 1
            size += len(data)
            if qos:
                if together:
                    link.send_messages(b"".join(together), len(together))
                    together.clear()
                topic = topic_of(joined, packet)
                entry = send_retained(session, data, packet_identifier, topic, qos, expires_at, noted)
                if position is not None and not noted:
                    position.sent(entry, cursor or topic)
            else:
                together.append(data)
        if together:
            link.send_messages(b"".join(together), len(together))
        if too_large:
            self.left_out(too_large)
        self._note_sent(sent, size)
        if noted:  # in the same transaction as the deliveries
            self._replays.save_position(self._topic_filter)

    def _authorize(self, messages: Slice) -> None:
        """Ask the authorizer about each message, and send the allowed ones in their order."""
        # With an epoch, answers depend on the topic only, as for live messages: decoding the rest would cost more.
        subjects = self._decoded(messages) if self._authorizer.epoch is None else self._named(messages)
        subscriber = self._subscriber
        answers = [subscriber.may_receive(message) for message in subjects]
        if any(isinstance(answer, Deferred) for answer in answers):
            self._send_when_allowed(list(zip(self._decoded(messages), answers, strict=True)))
            return
        allowed = [number for number, answer in enumerate(answers) if answer]
        self._note_withheld(len(answers) - len(allowed))
        if allowed:
            self._send(only(messages, allowed, self._link.protocol_version))

    def _named(self, messages: Slice) -> Iterator[ApplicationMessage]:
        joined = messages.packets
        for packet in packets_of(joined):
            yield ApplicationMessage(topic_of(joined, packet), b"")

    def _decoded(self, messages: Slice) -> Iterator[ApplicationMessage]:
        parser = PacketParser(len(messages.packets), self._link.protocol_version)
        parser.receive_data(messages.packets)
        for qos, expires_at in zip(messages.qos, messages.expires_at, strict=True):
            publish = parser.next_packet()
            assert isinstance(publish, Publish)
            yield ApplicationMessage(
                publish.topic,
                publish.payload,
                qos,
                True,
                properties=publish.properties,
                expires_at=expires_at or None,
            )

    def _send_when_allowed(self, asked: Sequence[tuple[ApplicationMessage, bool | Deferred[bool]]]) -> None:
        """Deliver the messages like live ones: the queue bounds them, since the authorizer may take long."""
        session = self._session
        subscription = self._subscription()
        identifiers = () if subscription.identifier is None else (subscription.identifier,)
        options = DeliveryOptions(subscription.qos, True, identifiers)
        self._was_queued = True
        for message, answer in asked:
            deliver = partial(self._deliver_like_live, OutgoingMessage(message), options)
            if session.permissions.order.add(answer, deliver) is False:
                self._note_withheld(1)

    def _deliver_like_live(self, outgoing: OutgoingMessage, options: DeliveryOptions) -> None:
        self._note_sent(1, outgoing.size())
        self._session.deliver(outgoing, options, conflates=False)

    def _note_sent(self, count: int, size: int) -> None:
        if self._position.marker is not None:
            self._position.marker.sent(count, size)

    def _note_left_out(self, reason: str) -> None:
        if self._position.marker is not None:
            self._position.marker.left_out.add(reason)

    def _note_withheld(self, count: int) -> None:
        self._counters.deliveries_not_authorized += count
        self._counters.replayed_not_authorized += count


# Rewrites the PUBLISH packets of a replay for one subscription, without decoding and encoding them.
#
# How it works. A slice of retained messages comes from the store as PUBLISH packets, one behind the other, encoded for
# QoS 0 and the Client's protocol version. For a plain QoS 0 subscription the slice is sent unchanged.
# Otherwise a subscription may need three changes, all of them near the beginning of a packet:
#
#     31 0b | 00 03 a/b |         00                      | hello    read: QoS 0, no properties
#     33 14 | 00 03 a/b | 00 07 | 07 0b 2a 02 00 00 00 3c | hello    sent: QoS 1, Packet Identifier 7, Subscription
#                                                                    Identifier 42, 60 seconds to live
#
# So a packet is cut at three places (:data:`Packet`) and joined again around the new fields. The payload and the stored
# properties are copied, never read. Decoding every packet into a PUBLISH and encoding it again took several times as
# long, and was left out: a replay may have a million packets.
#
# Most often all packets of a slice get QoS 1 and nothing else, under Packet Identifiers that follow each other. Then
# :func:`numbered` rewrites them together: four pieces for each packet, and one join. Its plain twin is
# :func:`rewritten`, packet by packet.


#: identifiers of properties
_MESSAGE_EXPIRY_INTERVAL, _SUBSCRIPTION_IDENTIFIER = b"\x02", b"\x0b"
#: the first byte of a PUBLISH with RETAIN 1 and QoS 0
_PUBLISH_RETAIN = 0x31
#: By the Remaining Length of a short QoS 0 packet: the fixed header of the same packet with QoS 1. It has a Packet
#: Identifier of two bytes more, and the length is still one byte.
_SHORT = 126
_NUMBERED_HEADERS = tuple(bytes((_PUBLISH_RETAIN | 1 << 1, length + 2)) for length in range(_SHORT))

#: The positions of one QoS 0 PUBLISH among joined packets: its start; the Topic Name with its length, after the fixed
#: header; the properties (MQTT 5) and the payload; its end. A plain tuple, since one is made for every message.
Packet = tuple[int, int, int, int]


def packets_of(joined: bytes) -> Iterator[Packet]:
    """Yield the positions of each packet."""
    start = 0
    while start < len(joined):
        length = joined[start + 1]
        topic = start + 2
        if length > 127:  # most packets are short, and need no call
            length, topic = read_variable_byte_integer(joined, start + 1)
        end = topic + length
        yield start, topic, topic + 2 + (joined[topic] << 8 | joined[topic + 1]), end
        start = end


def topic_of(joined: bytes, packet: Packet) -> str:
    """Return the Topic Name of a packet."""
    return joined[packet[1] + 2 : packet[2]].decode()


def subscription_identifier(identifier: int) -> bytes:
    """Return the encoded Subscription Identifier property."""
    return _SUBSCRIPTION_IDENTIFIER + encode_variable_byte_integer(identifier)


def message_expiry_interval(seconds: int) -> bytes:
    """Return the encoded Message Expiry Interval property."""
    return _MESSAGE_EXPIRY_INTERVAL + seconds.to_bytes(4, "big")


def rewritten(joined: bytes, packet: Packet, qos: int, packet_identifier: int, properties: bytes) -> bytes:
    """Return a packet with this QoS and Packet Identifier, and with these encoded properties before its own.

    ``properties`` is b"" where none are added, as always in MQTT 3.
    """
    start, topic, rest, end = packet
    if not qos and not properties:
        return joined[start:end]
    tail = joined[rest:end]
    if properties:
        length, after = read_variable_byte_integer(tail, 0)
        tail = encode_variable_byte_integer(length + len(properties)) + properties + tail[after:]
    middle = packet_identifier.to_bytes(2, "big") if qos else b""
    size = encode_variable_byte_integer(rest - topic + len(middle) + len(tail))
    return b"%c%b%b%b%b" % (_PUBLISH_RETAIN | qos << 1, size, joined[topic:rest], middle, tail)


def numbered(joined: bytes, packets: int, first: int) -> bytes:
    """Return the joined packets with QoS 1, under Packet Identifiers from ``first`` on.

    There are as many free ones as ``packets``.
    """
    pieces: list[bytes] = []
    identifiers = pack(f">{packets}H", *range(first, first + packets))
    start = number = 0
    size = len(joined)
    while start < size:  # a slice has many packets: no call for a short one
        length, topic = joined[start + 1], start + 2
        if length < _SHORT:
            header = _NUMBERED_HEADERS[length]
        else:
            length, topic = read_variable_byte_integer(joined, start + 1)
            header = _NUMBERED_HEADERS[0][:1] + encode_variable_byte_integer(length + 2)
        start = topic + length
        rest = topic + 2 + (joined[topic] << 8 | joined[topic + 1])
        pieces += (header, joined[topic:rest], identifiers[number : number + 2], joined[rest:start])
        number += 2
    return b"".join(pieces)
