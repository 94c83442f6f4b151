"""One Session: its subscriptions, and what is on its way to its Client [MQTT5-4.1]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from holdfast.auth.interfaces import Principal
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.authorization_order import Withheld
from holdfast.sessions.delivery.deliveries import Deliveries
from holdfast.sessions.delivery.inflight import Delivery, Inflight, PacketIdentifiers
from holdfast.sessions.delivery.outgoing import DeliveryOptions, Expired, OutgoingMessage
from holdfast.sessions.delivery.queue import MessageQueue, Queued
from holdfast.sessions.delivery.replay_position import ReplayPosition
from holdfast.sessions.limits import Limits, WhenFull
from holdfast.sessions.state.interfaces import ISessionRecord, ISessionStates
from holdfast.sessions.state.subscription import Subscription
from holdfast.tickets import COMMITTED, CommitTicket, StorageFailure


class ILink(Protocol):
    """The Session's present Network Connection."""

    protocol_version: int
    maximum_packet_size: int | None

    def send_message(self, packet: bytes) -> None:
        """Send a PUBLISH."""

    def send(self, packet: bytes) -> None:
        """Send any other packet."""

    def send_uncounted(self, packet: bytes) -> None:
        """Send a PUBLISH of the broker's own topics, which does not count as a message."""

    def queued(self) -> None:
        """Messages wait for this Client's window: see that it stays within bounds."""

    def storage_failed(self, failure: StorageFailure) -> None:
        """Session State could not be made durable."""

    def wake_replays(self) -> None:
        """The window has room for retained messages."""


class Session:
    """A Client's Session, with or without a Network Connection.

    ``window`` is how many QoS 1 and 2 messages may be unacknowledged: the lesser of the Client's Receive Maximum and
    ``mqtt.max_inflight``. ``expiry_interval`` is in seconds after disconnecting, None for never, 0 for at once. What
    has to outlive the process goes to the ``record``.
    """

    def __init__(
        self,
        client_id: str,
        principal: Principal,
        limits: Limits,
        states: ISessionStates,
        record: ISessionRecord,
        counters: Counters,
        now: Callable[[], int],
    ) -> None:
        self.client_id = client_id
        self.principal = principal
        self.limits = limits
        self.record = record
        self.subscriptions: dict[str, Subscription] = {}
        self.inflight: dict[int, Inflight] = {}
        #: of these, what is to be sent again once the window of a resumed Session has room
        self._unsent: dict[int, Inflight] = {}
        #: QoS 2 messages from the Client, not yet released: Packet Identifier -> when it came (ms since the epoch)
        self.received: dict[int, int] = {}
        self.suspended: dict[str, str] = {}  #: replays cut off by a disconnect: Topic Filter -> last topic sent
        self.leaving: dict[int, str] = {}  #: messages of replays that wait for their commit, and their topics
        self.withheld = Withheld(self.fill)
        self.link: ILink | None = None
        self.expiry_interval: float | None = 0
        self.window = limits.max_inflight
        self.replaying = False  #: whether any replay shares the window
        self.replays_rest = False  #: whether one has found no room since replays were last told to look for it
        self.positions: dict[str, ReplayPosition] = {}  #: of replays whose end is not acknowledged yet
        self.queue = MessageQueue()
        self._durable = record.durable
        self._deliveries = Deliveries(record, states)
        self._replayed = 0
        self._identifiers = PacketIdentifiers()
        self._counters = counters
        self._now = now

    def deliver(self, outgoing: OutgoingMessage, options: DeliveryOptions, shared_filter: str | None = None) -> None:
        """Send a message that matches the subscriptions, or queue it until the Client can take it.

        ``shared_filter`` names the shared subscription it is sent for, if it is.
        """
        message = outgoing.message
        qos = message.qos
        if qos != options.qos:
            qos = max(qos, options.qos) if self.limits.upgrade_qos else min(qos, options.qos)
        retain = message.retain and options.retain_as_published
        link = self.link
        if not qos and link is None and not self.limits.mqueue_store_qos0:
            return
        if message.retain and self.leaving:
            self._overtake(message.topic)
        if not qos and link is not None:
            self._send(link, outgoing, 0, retain, options.identifiers, None)
            return
        delivery = None
        if self._durable or shared_filter is not None:
            delivery = self._deliveries.begin(outgoing, qos, retain, options.identifiers, shared_filter)
        if link is not None and not self.queue and self._live_room() > 0:
            self._send(link, outgoing, qos, retain, options.identifiers, delivery)
        else:
            self._enqueue(Queued(outgoing, qos, retain, options.identifiers, delivery))

    def send_retained(
        self, packet: bytes, packet_identifier: int, topic: str, qos: int, expires_at: int, noted: bool
    ) -> Inflight:
        """Send one message of a replay with QoS 1 or 2, under an identifier of :meth:`next_identifier`.

        Either it is ``noted`` like any other message, or the replay's position stands for what the Client has.
        """
        assert self.link is not None
        delivery = None
        if self._durable and noted:
            outgoing, identifiers = OutgoingMessage.of_packet(packet, self.link.protocol_version, expires_at)
            delivery = self._deliveries.begin(outgoing, qos, True, identifiers, None)
        entry = Inflight(packet, qos, self.link.protocol_version, expires_at, True, delivery)
        self._replayed += 1
        self._track(self.link, packet_identifier, entry)
        if entry.waiting:
            self.leaving[packet_identifier] = topic
        return entry

    def next_identifier(self) -> int:
        """Return a free Packet Identifier."""
        return self._identifiers.next(self.inflight)

    def unsettled(self) -> list[Inflight]:
        """Return what is in flight and has not left yet, because its commit is awaited."""
        return [entry for entry in self.inflight.values() if entry.waiting]

    def replay_room(self) -> int:
        """Return how many QoS 1 and 2 messages replays may send now: half of the window while live ones wait."""
        free = self.window - len(self.inflight)
        if self.queue:
            free = min(free, max(1, self.window // 2) - self._replayed)
        return free

    def acknowledged(self, packet_identifier: int, qos: int) -> bool:
        """The Client has the message for good (PUBACK for QoS 1, PUBCOMP for QoS 2). False if none is in flight."""
        entry = self.inflight.get(packet_identifier)
        if entry is None or entry.qos != qos or entry.released != (qos == 2):
            return False
        self._complete(packet_identifier, entry)
        self.fill()
        return True

    def refused(self, packet_identifier: int) -> bool:
        """The Client has refused a QoS 2 message with PUBREC >= 0x80: the exchange is over [MQTT5-4.3.3-4]."""
        entry = self.inflight.get(packet_identifier)
        if entry is None or entry.qos != 2:
            return False
        self._complete(packet_identifier, entry)
        self.fill()
        return True

    def received_by_client(self, packet_identifier: int) -> CommitTicket | None:
        """The Client has a QoS 2 message; PUBREL follows once the ticket is settled. None if it is not in flight."""
        entry = self.inflight.get(packet_identifier)
        if entry is None or entry.qos != 2:
            return None
        delivery = entry.delivery
        if entry.released or delivery is None or delivery.message is None:
            entry.released = True
            return COMMITTED
        entry.released = True
        ticket = self.record.delivering(delivery.state(packet_identifier, True), False)
        delivery.message.release()  # only the Packet Identifier matters from here on
        delivery.message = None
        return ticket

    def forget_unreleased(self, before: int) -> int:
        """Forget QoS 2 messages from the Client that came before this (ms since the epoch); return how many."""
        old = [packet_identifier for packet_identifier, at in self.received.items() if at < before]
        for packet_identifier in old:
            del self.received[packet_identifier]
            self.record.released(packet_identifier)
        return len(old)

    def resume(self) -> None:
        """Send again what was in flight, in its original order [MQTT5-4.4.0-1], then what has been queued.

        A Client that comes back with a lower Receive Maximum is sent no more PUBLISH packets at a time [MQTT5-3.3.4-9];
        that holds up no PUBREL [MQTT5-3.3.4-10].
        """
        self._unsent = {
            packet_identifier: entry for packet_identifier, entry in self.inflight.items() if not entry.waiting
        }
        link = self.link
        if link is not None:
            self._send_again(link)
            for packet_identifier, entry in list(self._unsent.items()):
                if entry.released:
                    self._release_again(link, packet_identifier)
        self.fill()

    def fill(self) -> None:
        """Send queued messages while the window has room; then let replays go on."""
        link = self.link
        queue = self.queue
        if link is None or not (queue or self.replays_rest or self._unsent):
            return
        if self._unsent:
            self._send_again(link)
        if self.window == 1 and self.replaying and queue and not self._replayed and self._turn_of_replays():
            link.wake_replays()
            return
        while queue and (not queue.first.qos or self._live_room() > 0):
            queued = queue.pop()
            self._send(link, queued.outgoing, queued.qos, queued.retain, queued.identifiers, queued.delivery)
        if self.replays_rest and len(self.inflight) < self.window:
            self.replays_rest = False
            link.wake_replays()

    def is_full(self) -> bool:
        """Tell whether the Client is away and its queue has no place left."""
        most = self.limits.max_mqueue_len
        return self.link is None and self.queue.exceeds(
            None if most is None else most - 1, self.limits.max_mqueue_bytes - 1
        )

    def give_up_shared(self, shared_filter: str) -> list[OutgoingMessage]:
        """Hand back what was meant for a shared subscription and never came to be this Client's.

        That is what is in flight with QoS 1, and what is queued; a QoS 2 exchange that has begun is completed with this
        Client or by nobody [MQTT5-4.8.2-4], [MQTT5-4.8.2-5].
        """
        given: list[OutgoingMessage] = []
        for packet_identifier, entry in list(self.inflight.items()):
            delivery = entry.delivery
            if entry.qos == 1 and delivery is not None and delivery.shared_filter == shared_filter:
                assert delivery.outgoing is not None
                given.append(delivery.outgoing)
                self._complete(packet_identifier, entry)
        for queued in self.queue.take_shared(shared_filter):
            assert queued.delivery is not None
            given.append(queued.outgoing)
            self._deliveries.forget(queued.delivery)
        return given

    def restore(
        self, deliveries: Iterable[tuple[Delivery, OutgoingMessage | None, int, bool]], received: Mapping[int, int]
    ) -> None:
        """Take back, in order, what was on its way when the process ended: Packet Identifier 0 for what was queued.

        A message in flight is sent again as an MQTT 5 PUBLISH, or re-encoded for the version its Client comes with.
        """
        self.received.update(received)
        for delivery, outgoing, packet_identifier, released in deliveries:
            self._deliveries.restored(delivery)
            if released:
                self.inflight[packet_identifier] = Inflight(b"", 2, 5, delivery=delivery, released=True)
            elif outgoing is None:
                self.record.delivered(delivery.seq)
            elif packet_identifier:
                expires_at = outgoing.message.expires_at or 0
                now = min(self._now(), expires_at - 1)  # what was on its way may have expired since
                packet = outgoing.packet(5, delivery.qos, delivery.retain, delivery.identifiers, packet_identifier, now)
                self.inflight[packet_identifier] = Inflight(packet, delivery.qos, 5, expires_at, False, delivery)
            else:
                self.queue.append(Queued(outgoing, delivery.qos, delivery.retain, delivery.identifiers, delivery))

    def end(self) -> CommitTicket:
        """Discard all state; the ticket is settled when it is gone for good."""
        for entry in self.inflight.values():
            entry.over = True  # its commit may still be under way
            if entry.delivery is not None and entry.delivery.message is not None:
                entry.delivery.message.release()
        for queued in self.queue:
            if queued.delivery is not None and queued.delivery.message is not None:
                queued.delivery.message.release()
        self.inflight.clear()
        self._unsent.clear()
        self.leaving.clear()
        self.queue.clear()
        return self.record.ended()

    _last_was_replay = True

    def _turn_of_replays(self) -> bool:
        """With a window of one, live messages and replays alternate."""
        self._last_was_replay = not self._last_was_replay
        return self._last_was_replay

    def _live_room(self) -> int:
        """Return how many live QoS 1 and 2 messages may be sent now: half of the window while replays run."""
        free = self.window - len(self.inflight)
        if self.replaying and self.window > 1:
            free = min(free, self.window - self.window // 2 - (len(self.inflight) - self._replayed))
        return free

    def _send(
        self,
        link: ILink,
        outgoing: OutgoingMessage,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        delivery: Delivery | None,
    ) -> None:
        version = link.protocol_version
        packet_identifier = self.next_identifier() if qos else 0
        message = outgoing.message
        try:
            now = self._now() if message.expires_at is not None else 0
            packet = outgoing.packet(version, qos, retain, identifiers, packet_identifier, now)
        except Expired:
            self._counters.messages_dropped_expired += 1
        else:
            if link.maximum_packet_size is None or len(packet) <= link.maximum_packet_size:
                if qos:
                    entry = Inflight(packet, qos, version, message.expires_at or 0, False, delivery)
                    self._track(link, packet_identifier, entry, outgoing.after)
                    return
                link.send_message(packet)
            else:
                self._counters.messages_dropped_too_large += 1  # [MQTT5-3.1.2-25]
        if delivery is not None:
            self._deliveries.forget(delivery)

    def _send_again(self, link: ILink) -> None:
        """Send again, with DUP 1, what was in flight as the Session was resumed, as far as the window has room."""
        unsent = self._unsent
        now = self._now()
        while unsent and len(self.inflight) - len(unsent) < self.window:
            packet_identifier, entry = next(iter(unsent.items()))
            if entry.released:
                self._release_again(link, packet_identifier)
                continue
            del unsent[packet_identifier]
            packet = entry.again(link.protocol_version, now)
            if link.maximum_packet_size is not None and len(packet) > link.maximum_packet_size:
                self._counters.messages_dropped_too_large += 1
                self._complete(packet_identifier, entry)
            else:
                link.send_message(packet)

    def _release_again(self, link: ILink, packet_identifier: int) -> None:
        """Send PUBREL again."""
        del self._unsent[packet_identifier]
        link.send(b"\x62\x02" + packet_identifier.to_bytes(2, "big"))

    def _track(self, link: ILink, packet_identifier: int, entry: Inflight, after: CommitTicket = COMMITTED) -> None:
        """Put a PUBLISH in flight. At QoS 2 it leaves only once its state is durable."""
        self.inflight[packet_identifier] = entry
        delivery = entry.delivery
        first = delivery is None or not delivery.noted
        ticket = COMMITTED if delivery is None else self._deliveries.note(delivery, packet_identifier)
        if entry.qos == 1:
            link.send_message(entry.packet)
            return
        if ticket is COMMITTED:
            ticket = after  # else it was submitted later than that, and is settled later
        if ticket.settled and ticket.failure is None:
            link.send_message(entry.packet)
            return
        entry.waiting = True

        def settled(failure: StorageFailure | None) -> None:
            entry.waiting = False
            if entry.over:
                return
            self.leaving.pop(packet_identifier, None)
            if failure is None:
                packet = entry.late(self._now())
                if packet is None:
                    self._counters.messages_dropped_expired += 1
                    self._complete(packet_identifier, entry)
                    self.fill()
                elif self.link is link:
                    link.send_message(packet)
                    if self.replays_rest:  # some may wait for what was on its way before them
                        self.replays_rest = False
                        link.wake_replays()
                elif self.link is not None:  # the Session was resumed meanwhile, by a Client that may be another
                    self._unsent[packet_identifier] = entry
                    self.fill()
            elif first and not entry.replayed:  # its publisher is told; it was never sent
                self._complete(packet_identifier, entry)
                self.fill()
            elif self.link is link:
                link.storage_failed(failure)

        ticket.when_settled(settled)

    def _overtake(self, topic: str) -> None:
        """A newer value of a topic is about to be sent: what a replay has of it and is still here never leaves.

        QoS 2 waits for a commit before it leaves; QoS 0 and 1 do not, and would be followed by the older value.
        """
        overtaken = [packet_identifier for packet_identifier, known in self.leaving.items() if known == topic]
        for packet_identifier in overtaken:
            self._complete(packet_identifier, self.inflight[packet_identifier])
        if overtaken:
            self.fill()

    def _complete(self, packet_identifier: int, entry: Inflight) -> None:
        del self.inflight[packet_identifier]
        self._unsent.pop(packet_identifier, None)
        self.leaving.pop(packet_identifier, None)
        entry.over = True
        self._replayed -= entry.replayed
        if entry.delivery is not None:
            self._deliveries.forget(entry.delivery)

    def _enqueue(self, queued: Queued) -> None:
        if self.link is None and self.limits.mqueue_full is not WhenFull.DROP_OLDEST and self.is_full():
            self._counters.messages_dropped_queue_full += 1
            if queued.delivery is not None:
                self._deliveries.forget(queued.delivery)
            return
        self.queue.append(queued)
        if queued.delivery is not None:
            self._deliveries.note(queued.delivery, 0)
            ticket = queued.outgoing.ticket
            if not ticket.settled:
                ticket.when_settled(lambda failure: self._unqueue(queued) if failure else None)
        if self.link is not None:
            self.link.queued()
            return
        while self.queue and self.queue.exceeds(self.limits.max_mqueue_len, self.limits.max_mqueue_bytes):
            dropped = self.queue.pop()  # the oldest: what is newest is worth most to a Client that comes back
            self._counters.messages_dropped_queue_full += 1
            if dropped.delivery is not None:
                self._deliveries.forget(dropped.delivery)

    def _unqueue(self, queued: Queued) -> None:
        """A message could not be stored, and its publisher is told so: it is not delivered from the queue."""
        if self.queue.remove(queued):
            assert queued.delivery is not None
            self._deliveries.forget(queued.delivery)
