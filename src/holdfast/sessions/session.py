"""One Session: its subscriptions, and what is on its way to its Client [MQTT5-4.1]."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from holdfast.interfaces import Principal
from holdfast.sessions.counters import Counters
from holdfast.sessions.inflight import Inflight, PacketIdentifiers
from holdfast.sessions.limits import Limits
from holdfast.sessions.outgoing import DeliveryOptions, Expired, OutgoingMessage
from holdfast.sessions.states import ISessionStates
from holdfast.sessions.subscriptions import Subscription
from holdfast.sessions.withheld import Withheld
from holdfast.tickets import CommitTicket, StorageFailure


class ILink(Protocol):
    """The Session's present Network Connection."""

    protocol_version: int
    maximum_packet_size: int | None

    def send_message(self, packet: bytes) -> None:
        """Send a PUBLISH."""

    def send(self, packet: bytes) -> None:
        """Send any other packet."""

    def queued(self) -> None:
        """Messages wait for this Client's window: see that it stays within bounds."""

    def storage_failed(self, failure: StorageFailure) -> None:
        """Session State could not be made durable."""

    def wake_replays(self) -> None:
        """The window has room for retained messages."""


@frozen
class _Queued:
    outgoing: OutgoingMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]


class Session:
    """A Client's Session, with or without a Network Connection.

    ``window`` is how many QoS 1 and 2 messages may be unacknowledged: the lesser of the Client's Receive Maximum and
    ``mqtt.max_inflight``. ``expiry_interval`` is in seconds after disconnecting, None for never, 0 for at once.
    """

    def __init__(
        self,
        client_id: str,
        principal: Principal,
        limits: Limits,
        states: ISessionStates,
        counters: Counters,
        now: Callable[[], int],
    ) -> None:
        self.client_id = client_id
        self.principal = principal
        self.limits = limits
        self.subscriptions: dict[str, Subscription] = {}
        self.inflight: dict[int, Inflight] = {}
        self.received: set[int] = set()  #: Packet Identifiers of QoS 2 messages from the Client, not yet released
        self.suspended: dict[str, str] = {}  #: replays cut off by a disconnect: Topic Filter -> last topic sent
        self.withheld = Withheld(self.fill)
        self.link: ILink | None = None
        self.expiry_interval: float | None = 0
        self.window = limits.max_inflight
        self.has_replays = False  #: whether any replay runs, and (``replaying``) shares the window
        self.replaying = False
        self.enqueued = 0  #: messages ever put into the queue
        self.dequeued = 0  #: messages ever taken from it
        self._queue: deque[_Queued] = deque()
        self.queue_bytes = 0
        self._replayed = 0
        self._identifiers = PacketIdentifiers()
        self._states = states
        self._counters = counters
        self._now = now

    @property
    def queue_length(self) -> int:
        """How many messages wait for the Client."""
        return len(self._queue)

    def deliver(self, outgoing: OutgoingMessage, options: DeliveryOptions) -> None:
        """Send a message that matches the subscriptions, or queue it until the Client can take it."""
        message = outgoing.message
        qos = message.qos
        if qos != options.qos:
            qos = max(qos, options.qos) if self.limits.upgrade_qos else min(qos, options.qos)
        retain = message.retain and options.retain_as_published
        link = self.link
        if not qos:
            if link is not None:
                self._send(link, outgoing, 0, retain, options.identifiers)
            elif self.limits.mqueue_store_qos0:
                self._enqueue(_Queued(outgoing, 0, retain, options.identifiers))
        elif link is not None and not self._queue and self._live_room() > 0:
            self._send(link, outgoing, qos, retain, options.identifiers)
        else:
            self._enqueue(_Queued(outgoing, qos, retain, options.identifiers))

    def send_retained(self, packet: bytes, packet_identifier: int, qos: int, expires_at: int) -> None:
        """Send one message of a replay with QoS 1 or 2, under an identifier of :meth:`next_identifier`."""
        assert self.link is not None
        entry = Inflight(packet, qos, self.link.protocol_version, expires_at, replayed=True)
        self._replayed += 1
        self._track(self.link, packet_identifier, entry)

    def next_identifier(self) -> int:
        """Return a free Packet Identifier."""
        return self._identifiers.next(self.inflight)

    def replay_room(self) -> int:
        """Return how many QoS 1 and 2 messages replays may send now: half of the window while live ones wait."""
        free = self.window - len(self.inflight)
        if self._queue:
            free = min(free, max(1, self.window // 2) - self._replayed)
        return free

    def acknowledged(self, packet_identifier: int, qos: int) -> bool:
        """The Client has the message for good (PUBACK for QoS 1, PUBCOMP for QoS 2). False if none is in flight."""
        entry = self.inflight.get(packet_identifier)
        if entry is None or entry.qos != qos:
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
        entry.released = True
        return self._states.received_by_client(self.client_id, packet_identifier)

    def resume(self, link: ILink) -> None:
        """Send again what was in flight, in its original order [MQTT5-4.4.0-1], then what has been queued."""
        now = self._now()
        for packet_identifier, entry in list(self.inflight.items()):
            if entry.released:
                link.send(b"\x62\x02" + packet_identifier.to_bytes(2, "big"))
            else:
                packet = entry.again(link.protocol_version, now)
                if link.maximum_packet_size is not None and len(packet) > link.maximum_packet_size:
                    self._counters.messages_dropped_too_large += 1
                    self._complete(packet_identifier, entry)
                else:
                    link.send_message(packet)
        self.fill()

    def fill(self) -> None:
        """Send queued messages while the window has room; then let replays go on."""
        link = self.link
        queue = self._queue
        if link is None or not (queue or self.has_replays):
            return
        if self.window == 1 and self.replaying and queue and not self._replayed and self._turn_of_replays():
            link.wake_replays()
            return
        while queue and (not queue[0].qos or self._live_room() > 0):
            queued = queue.popleft()
            self.dequeued += 1
            self.queue_bytes -= queued.outgoing.size()
            self._send(link, queued.outgoing, queued.qos, queued.retain, queued.identifiers)
        if self.has_replays and len(self.inflight) < self.window:
            link.wake_replays()

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
        self, link: ILink, outgoing: OutgoingMessage, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        version = link.protocol_version
        packet_identifier = self.next_identifier() if qos else 0
        message = outgoing.message
        try:
            now = self._now() if message.expires_at is not None else 0
            packet = outgoing.packet(version, qos, retain, identifiers, packet_identifier, now)
        except Expired:
            self._counters.messages_dropped_expired += 1
            return
        if link.maximum_packet_size is not None and len(packet) > link.maximum_packet_size:
            self._counters.messages_dropped_too_large += 1  # [MQTT5-3.1.2-25]
            return
        if qos:
            self._track(link, packet_identifier, Inflight(packet, qos, version, message.expires_at or 0))
        else:
            link.send_message(packet)

    def _track(self, link: ILink, packet_identifier: int, entry: Inflight) -> None:
        """Put a PUBLISH in flight. At QoS 2 it leaves only once its state is durable."""
        self.inflight[packet_identifier] = entry
        ticket = self._states.sent(self.client_id, packet_identifier, entry.packet)
        if entry.qos == 1 or (ticket.settled and ticket.failure is None):
            link.send_message(entry.packet)
            return

        def settled(failure: StorageFailure | None) -> None:
            if self.link is link:
                if failure is None:
                    link.send_message(entry.packet)
                else:
                    link.storage_failed(failure)

        ticket.when_settled(settled)

    def _complete(self, packet_identifier: int, entry: Inflight) -> None:
        del self.inflight[packet_identifier]
        self._replayed -= entry.replayed
        self._states.completed(self.client_id, packet_identifier)

    def _enqueue(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self.enqueued += 1
        self.queue_bytes += queued.outgoing.size()
        if self.link is not None:
            self.link.queued()
            return
        most = self.limits.max_mqueue_len
        while self._queue and (
            (most is not None and len(self._queue) > most) or self.queue_bytes > self.limits.max_mqueue_bytes
        ):
            dropped = self._queue.popleft()  # the oldest: what is newest is worth most to a Client that comes back
            self.dequeued += 1
            self.queue_bytes -= dropped.outgoing.size()
            self._counters.messages_dropped_queue_full += 1
