"""The deliveries of one Session: numbered in order, and stored if they must survive the process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.core.tickets import COMMITTED, CommitTicket
from holdfast.identity.interfaces import in_time
from holdfast.sessions.delivery.outgoing import OutgoingMessage
from holdfast.sessions.state import DeliveryState, ISessionRecord, ISessionStates, KeptMessage
from holdfast.watch.log import LastingFailure


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


# Deliveries to one Session that wait for the authorizer: each keeps its place in the order.


_log = Logger()


class _Waiting:
    __slots__ = ("answer", "call")

    def __init__(self, answer: bool | None, call: Callable[[], None]) -> None:
        self.answer = answer
        self.call = call


def _log_late(failure: Failure) -> None:
    """Log an error of a Session that has ended."""
    _log.failure("a delivery of a Session that has ended failed", failure)


def _tell_none() -> None:
    """Tell no Session: it has ended."""


class AuthorizationOrder:
    """Makes calls in the order in which they were added, each once the authorizer has allowed it.

    ``on_empty`` is called when no call waits any more, ``on_error`` after an unexpected error in one of these calls;
    the calls behind it are still made. ``clock`` limits the time of each answer.
    """

    __slots__ = ("_clock", "_on_empty", "_on_error", "_report", "_waiting")

    def __init__(self, on_empty: Callable[[], None], on_error: Callable[[Failure], None], clock: IReactorTime) -> None:
        self._clock = clock
        self._on_empty = on_empty
        self._on_error = on_error
        self._report: LastingFailure | None = None  # made with the first failure: most Sessions never have one
        self._waiting: deque[_Waiting] = deque()

    def add(self, answer: bool | Deferred[bool], call: Callable[[], None]) -> bool | None:
        """Make the call once it is allowed and all earlier calls are decided. Return False if it is denied at once.

        An authorizer that fails, or does not answer in time, denies the delivery.
        """
        if not isinstance(answer, Deferred):
            if not answer:
                return False
            if not self._waiting:
                call()
                return True
            self._waiting.append(_Waiting(True, call))
            return None
        entry = _Waiting(None, call)
        self._waiting.append(entry)

        def answered(allowed: bool) -> None:
            entry.answer = allowed
            self._make_calls()

        in_time(answer, self._clock).addCallbacks(self._answered, self._denied_by_error).addCallback(answered)
        return None

    def close(self) -> None:
        """Tell the Session nothing any more: it has ended. Each refers to the other otherwise."""
        self._on_empty = _tell_none
        self._on_error = _log_late

    def _make_calls(self) -> None:
        waiting = self._waiting
        while waiting and waiting[0].answer is not None:
            entry = waiting.popleft()
            if entry.answer:
                self._make(entry.call)
        if not waiting:
            self._make(self._on_empty)

    def _make(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # noqa: BLE001 - the authorizer is not to blame
            self._on_error(Failure())

    def _answered(self, allowed: bool) -> bool:
        if self._report is not None:
            self._report.succeeded()
        return allowed

    def _denied_by_error(self, failure: Failure) -> bool:
        if self._report is None:
            self._report = LastingFailure("authorizing a delivery", "so it is denied", (Exception,))
        self._report.failed(failure)
        return False

    def __len__(self) -> int:
        return len(self._waiting)


# QoS 2 messages from the Client that it has not released with PUBREL yet [MQTT5-4.3.3].
#
# | the identifier is | PUBLISH with QoS 2 | PUBREL |
# |---|---|---|
# | unknown | published; PUBREC | PUBCOMP, in MQTT 5 with Packet Identifier not found (0x92) |
# | noted here | not published again; PUBREC | forgotten; PUBCOMP |
#
# The identifiers of QoS 1 messages are not noted, so a PUBREL for one of them is a PUBREL for an unknown one.


class ReceivedIdentifiers:
    """The Packet Identifiers of received QoS 2 messages. Each change is stored in the Session's record too."""

    __slots__ = ("_record", "_times")

    def __init__(self, record: ISessionRecord) -> None:
        self._record = record
        self._times: dict[int, int] = {}  # when each message came, in milliseconds since the epoch

    def __contains__(self, packet_identifier: int) -> bool:
        return packet_identifier in self._times

    def __iter__(self) -> Iterator[int]:
        return iter(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def note(self, packet_identifier: int, now: int) -> CommitTicket:
        """Note a new message. PUBREC may be sent once the ticket is settled."""
        self._times[packet_identifier] = now
        return self._record.received(packet_identifier, now, True)

    def note_again(self, packet_identifier: int) -> CommitTicket:
        """Note that a known message came again. The first commit may still be under way."""
        return self._record.received(packet_identifier, self._times[packet_identifier], False)

    def forget(self, packet_identifier: int) -> CommitTicket:
        """Forget a message that was released or refused."""
        if self._times.pop(packet_identifier, None) is None:
            return COMMITTED
        return self._record.released(packet_identifier)

    def clock_moved(self, step: int, now: int) -> None:
        """Let the messages have come later by ``step`` (milliseconds), but not after ``now``: the clock has jumped."""
        if self._times:
            self._times = {packet_identifier: min(at + step, now) for packet_identifier, at in self._times.items()}

    def restore(self, times: Mapping[int, int]) -> None:
        """Take over the messages that an earlier process has stored."""
        self._times.update(times)
