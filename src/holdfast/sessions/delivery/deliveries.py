"""Where each delivery of one Session stands: numbered in order, and noted in its record as far as it must last."""

from __future__ import annotations

from holdfast.sessions.delivery.inflight import Delivery
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.state.interfaces import ISessionRecord, ISessionStates
from holdfast.tickets import COMMITTED, CommitTicket


class Deliveries:
    """Begins, notes and forgets deliveries. A Session that need not last has them, but nothing is noted."""

    __slots__ = ("_record", "_seq", "_states")

    def __init__(self, record: ISessionRecord, states: ISessionStates) -> None:
        self._record = record
        self._states = states
        self._seq = 0

    def begin(
        self,
        outgoing: OutgoingMessage,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        shared_filter: str | None,
    ) -> Delivery:
        """Begin the next delivery; ``shared_filter`` names the shared subscription it is for, if it is."""
        self._seq += 1
        message = outgoing.keep(self._states) if self._record.durable else None
        redeliverable = None if shared_filter is None else outgoing
        return Delivery(self._seq, qos, retain, identifiers, message, shared_filter, redeliverable)

    def restored(self, delivery: Delivery) -> None:
        """Take note of a delivery of the process before: those to come are numbered after it."""
        self._seq = max(self._seq, delivery.seq)

    def note(self, delivery: Delivery, packet_identifier: int) -> CommitTicket:
        """Keep where a delivery stands: queued (0), or sent under a Packet Identifier."""
        if delivery.message is None:
            return COMMITTED
        fresh = not delivery.noted
        delivery.noted = True
        return self._record.delivering(delivery.state(packet_identifier), fresh)

    def forget(self, delivery: Delivery) -> None:
        """The delivery is over."""
        if delivery.noted:
            self._record.delivered(delivery.seq)
        if delivery.message is not None:
            delivery.message.release()
            delivery.message = None
