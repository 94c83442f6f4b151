"""All messages in flight to one Client: sent, acknowledged, and sent again after a reconnect.

The states of one message are explained in :mod:`inflight`.

A QoS 2 message that has not been sent yet can be overtaken by a newer QoS 0 or 1 message of its topic. If the older one
comes from a replay, :meth:`InflightMessages.drop_overtaken` drops it: a Client never receives a retained message after
a newer one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure
from holdfast.sessions.connection.connection import Connection
from holdfast.sessions.connection.outbox import LOW_WATER
from holdfast.sessions.counters import Counters
from holdfast.sessions.delivery.deliveries import Deliveries
from holdfast.sessions.delivery.inflight import (
    AWAITS_COMMIT,
    OVER,
    PROTOCOL_ERRORS,
    RELEASED,
    SENT,
    UNSENT,
    Inflight,
    InflightEvent,
    InflightTable,
    Window,
    window_size,
)
from holdfast.wire import ProtocolError

_PUBACK, _PUBREC, _PUBREC_REFUSES, _PUBCOMP = (
    InflightEvent.PUBACK,
    InflightEvent.PUBREC,
    InflightEvent.PUBREC_REFUSES,
    InflightEvent.PUBCOMP,
)


#: shared by all Sessions without such Packet Identifiers: a deque takes 0.6 KiB
_NONE: deque[int] = deque()


def _tell_none() -> None:
    """Tell no Session: it has ended."""


def _allow(_entry: Inflight) -> bool:
    """Ask nobody: no message has waited, or the Session has ended."""
    return True


class InflightMessages(InflightTable):
    """The messages in flight of one Session.

    ``on_room`` is called when a message is over, ``on_sent`` when a message has left that awaited its commit,
    ``on_lost`` when a message is dropped. The Session may set ``may_send``, which tells whether a message may be sent
    late, or sent again; None if the authorizer has not answered yet.
    """

    __slots__ = (
        "_counters",
        "_link",
        "_now",
        "_on_lost",
        "_on_room",
        "_on_sent",
        "_to_release",
        "_unknown_released",
        "may_send",
    )

    def __init__(
        self,
        *,
        window: Window,
        deliveries: Deliveries,
        counters: Counters,
        now: Callable[[], int],
        on_room: Callable[[], None],
        on_sent: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        super().__init__(window, deliveries)
        self._link: Connection | None = None
        self._counters = counters
        self._now = now
        self._on_room = on_room
        self._on_sent = on_sent
        self._on_lost = on_lost
        self.may_send: Callable[[Inflight], bool | None] = _allow
        #: of those to resend, the Packet Identifiers whose PUBREL is to be repeated, even if the window is full
        self._to_release = _NONE
        self._unknown_released = 0  # PUBREL packets on this connection that answered an unknown identifier

    # --- sending

    def send(self, link: Connection, packet_identifier: int, entry: Inflight, after: CommitTicket = COMMITTED) -> None:
        """Send a PUBLISH: with QoS 1 at once, with QoS 2 once its delivery and ``after`` are durable."""
        self.entries[packet_identifier] = entry
        size = entry.size = window_size(entry)
        self._window.bytes += size
        delivery = entry.delivery
        first = delivery is None or not delivery.noted
        ticket = COMMITTED if delivery is None else self._deliveries.note(delivery, packet_identifier)
        if entry.qos == 2:
            if ticket is COMMITTED:  # otherwise the delivery was noted after that change, and so is committed later
                ticket = after
            if not ticket.settled or ticket.failure is not None:
                self._await_commit(link, packet_identifier, entry, ticket, first)
                return
            entry.outgoing = None
        if entry.replayed:
            link.send_messages(entry.packet, 1)
        else:
            link.send_message(entry.packet)
        if not self.keeps_packets:
            entry.packet = b""

    def _await_commit(
        self, link: Connection, packet_identifier: int, entry: Inflight, ticket: CommitTicket, first: bool
    ) -> None:
        """Send a PUBLISH once this ticket is settled. ``first`` tells that it was not stored before."""
        self._note_awaiting(packet_identifier, entry)

        def settled(failure: StorageFailure | None) -> None:
            self._awaits_no_longer(packet_identifier, entry)
            if entry.state is OVER:
                return
            with (self._link or link).guard:
                act(failure)

        def act(failure: StorageFailure | None) -> None:
            if failure is None and self._link is link:
                self._send_late(link, packet_identifier, entry)
            elif failure is not None and first and not entry.replayed:
                # The message was never stored, and its publisher is told to send it again.
                self._on_lost()
                self._complete(packet_identifier, entry)
                self._on_room()
            else:
                entry.state = UNSENT
                if self._link is link:
                    assert failure is not None
                    self._note_unsent(entry)
                    link.close_after_failure(failure)
                elif self._link is not None:
                    # The Client has reconnected meanwhile. Its window, version and packet size may be others.
                    self.to_resend[packet_identifier] = entry
                    self._waiting_bytes += entry.size
                    self._on_room()

        ticket.when_settled(settled)

    def send_block(self, link: Connection, packet: bytes, packet_identifier: int) -> None:
        """Send a QoS 1 PUBLISH of a Session whose messages are in blocks."""
        self.add_block(packet_identifier, 1, len(packet), False)
        link.send_message(packet)

    def send_replayed_block(self, link: Connection, packets: bytes, first: int, count: int) -> None:
        """Send QoS 1 PUBLISH packets of a replay, joined. Their Packet Identifiers follow each other."""
        self.add_block(first, count, len(packets), True)
        link.send_messages(packets, count)

    def send_replayed(self, link: Connection, packet_identifier: int, entry: Inflight, topic: str) -> None:
        """Send a PUBLISH of a replay."""
        self._window.replayed += 1
        self._window.replayed_bytes += window_size(entry)
        self.send(link, packet_identifier, entry)
        if entry.state is AWAITS_COMMIT:
            self._unsent_topics[packet_identifier] = topic

    def _send_late(self, link: Connection, packet_identifier: int, entry: Inflight) -> None:
        """Send a PUBLISH whose commit was awaited."""
        allowed = self.may_send(entry)
        if allowed is None:
            entry.state = UNSENT
            self.to_resend[packet_identifier] = entry
            self._waiting_bytes += entry.size
            return
        if not allowed:
            self._withhold(packet_identifier, entry)
            self._on_room()
            return
        packet = entry.late(entry.protocol_version, self._now())
        if packet is None:
            self._expire(packet_identifier, entry)
            self._on_room()
        else:
            entry.state = SENT
            entry.outgoing = None
            self._unsent_topics.pop(packet_identifier, None)
            if not self.keeps_packets:
                entry.packet = b""
            link.send_message(packet)
            self._on_sent()

    def _expire(self, packet_identifier: int, entry: Inflight) -> None:
        """Drop a message that has expired before it could be sent [MQTT5-3.3.2-5]."""
        self._counters.messages_dropped_expired += 1
        self._on_lost()
        self._complete(packet_identifier, entry)

    def _withhold(self, packet_identifier: int, entry: Inflight) -> None:
        """Drop a message that the Client is not allowed to receive any more."""
        self._counters.deliveries_not_authorized += 1
        self._on_lost()
        self._complete(packet_identifier, entry)

    def _note_unsent(self, entry: Inflight) -> None:
        """Store a message that was never sent like a queued one: after a restart it is sent with DUP 0."""
        if entry.delivery is not None:
            self._deliveries.note(entry.delivery, 0)

    # --- messages that have not been sent yet

    def drop_overtaken(self, topic: str) -> None:
        """Drop replayed messages of a topic that have not been sent yet: a newer message is about to be sent."""
        if not self._unsent_topics:  # the usual case
            return
        overtaken = [identifier for identifier, known in self._unsent_topics.items() if known == topic]
        for packet_identifier in overtaken:
            self._complete(packet_identifier, self.entries[packet_identifier])
        if overtaken:
            self._on_room()

    # --- acknowledgements of the Client: see the tables in ``inflight``

    def all_acknowledged(self, pubacks: bytes) -> int:
        """Complete the exchanges of joined PUBACK packets. Raise ProtocolError at the first one of the wrong kind.

        Returns the number of steps: packets that acknowledge one block in its order take one step.
        """
        position, end, blocks = 0, len(pubacks), self.blocks
        steps = 0
        before = self.count
        try:
            while position < end:
                taken = blocks.acknowledged_first(pubacks, position)
                if not taken:
                    self._acknowledged(pubacks[position + 2] << 8 | pubacks[position + 3], 1)
                    taken = 1
                position += 4 * taken
                steps += 1
        finally:
            if self.count < before:
                self._on_room()
        return steps

    def acknowledged(self, packet_identifier: int, qos: int) -> None:
        """Complete an exchange: PUBACK for QoS 1, PUBCOMP for QoS 2. Raise ProtocolError for one of the wrong kind."""
        if self._acknowledged(packet_identifier, qos):
            self._on_room()

    def _acknowledged(self, packet_identifier: int, qos: int) -> bool:
        """Complete an exchange. Return False if none ends with this acknowledgement."""
        entry = self.entries.get(packet_identifier)
        if entry is not None and entry.qos == qos and entry.state is (SENT if qos == 1 else RELEASED):
            self._complete(packet_identifier, entry)
            return True
        if qos == 1 and entry is None and self.blocks.acknowledged(packet_identifier):
            return True
        self._out_of_place(packet_identifier, _PUBACK if qos == 1 else _PUBCOMP)
        return False

    def refused(self, packet_identifier: int) -> None:
        """End a QoS 2 exchange, because the Client has refused the message with PUBREC >= 0x80 [MQTT5-4.3.3-4].

        Raise ProtocolError if the message has QoS 1.
        """
        entry = self.entries.get(packet_identifier)
        if entry is not None and entry.qos == 2 and (entry.state is SENT or entry.state is RELEASED):
            self._complete(packet_identifier, entry)
            self._on_room()
        else:
            self._out_of_place(packet_identifier, _PUBREC_REFUSES)

    def received_by_client(self, packet_identifier: int) -> CommitTicket | None:
        """Note a PUBREC. PUBREL may be sent once the ticket is settled. Return None if no such exchange is due.

        Raise ProtocolError if the message has QoS 1.
        """
        entry = self.entries.get(packet_identifier)
        if entry is None or entry.qos != 2 or (entry.state is not SENT and entry.state is not RELEASED):
            self._out_of_place(packet_identifier, _PUBREC)
            self._unknown_released += 1
            return None
        entry.state = RELEASED
        ticket = COMMITTED
        if entry.delivery is not None:
            ticket = self._deliveries.note_released(entry.delivery, packet_identifier)
        if entry.size:
            self._free(packet_identifier, entry)
            self._on_room()
        return ticket

    def _out_of_place(self, packet_identifier: int, event: InflightEvent) -> None:
        """Raise ProtocolError if this acknowledgement is of the wrong kind; otherwise it is harmless."""
        if event is _PUBCOMP and self._unknown_released:
            # It answers the PUBREL for an unknown identifier, which may have been given to a new message since.
            self._unknown_released -= 1
            return
        entry = self.entries.get(packet_identifier)
        if entry is not None:
            qos, state = entry.qos, entry.state
        elif packet_identifier in self.blocks:
            qos, state = 1, SENT
        else:
            return
        least = PROTOCOL_ERRORS.get((qos, state, event))
        if least is not None and self._link is not None and self._link.protocol_version >= least:
            packet = event.name.partition("_")[0]
            raise ProtocolError(f"{packet} is no answer to the QoS {qos} message {packet_identifier}: {state.value}")

    # --- disconnect and reconnect

    def resume(self, link: Connection) -> None:
        """Let :meth:`send_again` repeat the messages in flight, in their original order [MQTT5-4.4.0-1].

        If the Client comes back with a lower Receive Maximum, no more PUBLISH packets are sent at a time
        [MQTT5-3.3.4-9]. PUBREL packets do not count against it [MQTT5-3.3.4-10].
        """
        self._link = link
        self._unknown_released = 0
        self.to_resend = {
            packet_identifier: entry
            for packet_identifier, entry in self.entries.items()
            if entry.state is not AWAITS_COMMIT
        }
        self._waiting_bytes = sum(entry.size for entry in self.to_resend.values())
        released = [identifier for identifier, entry in self.to_resend.items() if entry.state is RELEASED]
        self._to_release = deque(released) if released else _NONE

    def detach(self) -> None:
        """Note that the connection is gone."""
        self._link = None
        for entry in self._awaiting.values():
            self._note_unsent(entry)

    def close(self) -> None:
        """Tell the Session nothing any more: it has ended. Each refers to the other otherwise."""
        self._on_room = self._on_sent = self._on_lost = _tell_none
        self.may_send = _allow

    def ask_again(self) -> None:
        """Let ``may_send`` decide about each message before it is sent, or sent again."""
        for entry in self.entries.values():
            entry.unasked = entry.state is not RELEASED

    def send_again(self, link: Connection, most: int) -> int:
        """Repeat messages with DUP 1 while the window has room, and send those that were never sent with DUP 0.

        PUBREL packets are repeated in any case. Does ``most`` steps, and rests while enough bytes wait to be sent.
        Returns how many steps are left: 0 tells that it must go on later, -1 that it waits for the authorizer.
        """
        waiting = self.to_resend
        # The connection may end within the loop: a message that it does not take was not sent.
        window = self._window
        while waiting and self.count - len(waiting) < window.size and self._link is link:
            if not most or link.unsent >= LOW_WATER:
                return 0
            most -= 1
            packet_identifier, entry = next(iter(waiting.items()))
            if entry.state is RELEASED:
                self._release_again(link, packet_identifier)
                continue
            sent = window.bytes - self._waiting_bytes
            if sent and sent + entry.size > window.max_bytes:
                break
            if entry.unasked:
                allowed = self.may_send(entry)
                if allowed is None:
                    return -1
                if not allowed:
                    self._withhold(packet_identifier, entry)
                    continue
            self._waits_no_longer(packet_identifier)
            version, now = link.protocol_version, self._now()
            if entry.state is UNSENT:
                packet = entry.first(version, packet_identifier, now)
            else:
                packet = entry.again(version, now)
            if packet is None:
                self._expire(packet_identifier, entry)
            elif link.maximum_packet_size is not None and len(packet) > link.maximum_packet_size:
                self._counters.messages_dropped_too_large += 1
                self._on_lost()
                self._complete(packet_identifier, entry)
            elif entry.state is UNSENT:
                self._send_first(link, packet_identifier, entry, packet)
            else:
                if not self.keeps_packets:
                    entry.packet = b""
                link.send_message(packet)
        while self._to_release and self._link is link:
            packet_identifier = self._to_release[0]
            released = waiting.get(packet_identifier)
            if released is not None and released.state is RELEASED:
                if not most:
                    return 0
                most -= 1
                self._release_again(link, packet_identifier)
            self._to_release.popleft()
        return most

    def _send_first(self, link: Connection, packet_identifier: int, entry: Inflight, packet: bytes) -> None:
        """Send a PUBLISH that an earlier connection did not send, under the Packet Identifier that it has."""
        self._free(packet_identifier, entry)
        entry.packet, entry.protocol_version, entry.state = packet, link.protocol_version, SENT
        if entry.replayed:
            self._window.replayed_bytes += window_size(entry)
        self.send(link, packet_identifier, entry)
        if entry.state is SENT:
            self._unsent_topics.pop(packet_identifier, None)

    def _release_again(self, link: Connection, packet_identifier: int) -> None:
        """Repeat PUBREL."""
        self._waits_no_longer(packet_identifier)
        link.send(b"\x62\x02" + packet_identifier.to_bytes(2, "big"))
