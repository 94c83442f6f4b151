"""The deliveries of one Session: numbered in order, and stored if they must survive the process."""

from __future__ import annotations

from attrs import define

from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.state.interfaces import DeliveryState, ISessionRecord, ISessionStates, KeptMessage
from holdfast.tickets import COMMITTED, CommitTicket


@define(eq=False)
class Delivery:
    """The delivery of one message to one Session, without its packet.

    ``message`` is the stored copy, None where nothing is stored. ``outgoing`` is kept for shared subscriptions only,
    for which another member may have to take the message. ``noted`` tells that the store has a row for the delivery.
    """

    seq: int
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    message: KeptMessage | None
    shared_filter: str | None = None
    outgoing: OutgoingMessage | None = None
    noted: bool = False

    def state(self, packet_identifier: int, released: bool = False) -> DeliveryState:
        """Return the row to store now."""
        message = None if self.message is None or released else self.message.identifier
        return DeliveryState(
            self.seq, message, self.qos, self.retain, self.identifiers, packet_identifier, released, self.shared_filter
        )


class Deliveries:
    """Begins, stores and forgets deliveries. For a Session that ends with its connection nothing is stored."""

    __slots__ = ("_record", "_seq", "_states")

    def __init__(self, record: ISessionRecord, states: ISessionStates) -> None:
        self._record = record
        self._states = states
        self._seq = 0

    @property
    def are_stored(self) -> bool:
        """Whether the Session is stored."""
        durable: bool = self._record.durable
        return durable

    def begin(
        self,
        outgoing: OutgoingMessage,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        shared_filter: str | None,
    ) -> Delivery:
        """Begin the next delivery. ``shared_filter`` is the shared subscription that it serves, if any."""
        self._seq += 1
        message = outgoing.keep(self._states) if self._record.durable else None
        redeliverable = None if shared_filter is None else outgoing
        return Delivery(self._seq, qos, retain, identifiers, message, shared_filter, redeliverable)

    def restored(self, delivery: Delivery) -> None:
        """Note a delivery that an earlier process has stored. New deliveries get higher numbers."""
        self._seq = max(self._seq, delivery.seq)

    def note(self, delivery: Delivery, packet_identifier: int) -> CommitTicket:
        """Store a delivery: queued (Packet Identifier 0), or sent under a Packet Identifier."""
        if delivery.message is None:
            return COMMITTED
        # A message that is queued and then sent writes its row twice. The writer merges both writes if the first one is
        # not committed yet.
        fresh = not delivery.noted
        delivery.noted = True
        return self._record.delivering(delivery.state(packet_identifier), fresh)

    def note_released(self, delivery: Delivery, packet_identifier: int) -> CommitTicket:
        """Store that PUBREC has come. From now on only the Packet Identifier matters, so the message is forgotten."""
        if delivery.message is None:
            return COMMITTED
        ticket = self._record.delivering(delivery.state(packet_identifier, True), False)
        delivery.message.release()
        delivery.message = None
        return ticket

    def forget(self, delivery: Delivery) -> None:
        """Delete a delivery that is over."""
        if delivery.noted:
            self._record.delivered(delivery.seq)
        if delivery.message is not None:
            delivery.message.release()
            delivery.message = None
