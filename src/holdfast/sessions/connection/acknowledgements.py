"""Answers to one Client. Each waits for the commit of the change that it acknowledges, and for all earlier answers.

How it works. A PUBACK promises that the message is durable, so the broker sends it only when the commit ticket of the
message is settled. PUBACKs and PUBRECs must also leave in the order in which the PUBLISH packets came [MQTT5-4.6.0-2],
[MQTT5-4.6.0-3]. So the answers form a queue, and only its head may leave. An example with three messages:

    PUBLISH 1 (retained)      ticket open      PUBACK 1 waits for the commit
    PUBLISH 2 (QoS 0 queue)   ticket settled   PUBACK 2 is ready, but waits behind PUBACK 1
    commit                    both leave, 1 before 2

Most tickets are settled when the answer is added and no answer waits: then the answer is sent at once, and no entry is
made for it. A failed commit does not hold up the queue: the entry gets another packet, made by a ``Refusal``. A commit
settles the tickets of many Clients, so an unexpected error while one of them is answered goes to its ``guard``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container

import attrs

from holdfast.core.tickets import CommitTicket, FailureKind, RunTicket, StorageFailure
from holdfast.sessions.connection.link import ErrorGuard
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, Properties, ReasonCode, connect_return_code, encode
from holdfast.wire import packets as p
from holdfast.wire.reasons import PERMITTED

#: makes the packet that reports a failed commit, or closes the connection and returns None
Refusal = Callable[[StorageFailure], bytes | None]
#: the same for one of several messages, given its place
RefusalOfOne = Callable[[int, StorageFailure], bytes | None]


class _Entry:
    __slots__ = ("call", "counted", "number", "packet", "ready")

    def __init__(self, packet: bytes | None, counted: int, number: int) -> None:
        self.packet = packet
        self.number = number
        self.counted = counted
        self.ready = False
        self.call: Callable[[], None] | None = None


#: shared by all connections where no answer has ever had to wait: a deque takes 0.6 KiB
_NO_ENTRIES: deque[_Entry] = deque()


def _charge_none() -> None:
    """Charge nobody: the connection is over."""


def _takes_all(_size: int) -> bool:
    """Take everything: the connection is over, so nothing is sent."""
    return True


class Acknowledgements:
    """The answers to one Client that are not sent yet, oldest first.

    ``charge`` is called for each answer that waits for a commit: its packet has added to the changes that wait.
    ``takes`` tells whether joined answers of this size may leave in one piece; they have equal sizes.
    """

    __slots__ = ("_charge", "_closed", "_entries", "_guard", "_send", "_takes", "unacknowledged_publishes")

    def __init__(
        self,
        send: Callable[[bytes, int], None],
        charge: Callable[[], None],
        guard: ErrorGuard,
        takes: Callable[[int], bool],
    ) -> None:
        self._takes = takes
        self._guard = guard
        self._send = send
        self._charge = charge
        self._entries = _NO_ENTRIES
        self._closed = False
        #: PUBLISH packets without PUBACK so far, which count against the Server's Receive Maximum
        self.unacknowledged_publishes = 0

    def send_when_committed(
        self, ticket: CommitTicket, packet: bytes, refusal: Refusal, counted: bool = False, number: int = 1
    ) -> None:
        """Send ``packet`` (``number`` packets, joined) once the ticket is settled and all earlier answers are sent."""
        if ticket.settled and ticket.failure is None and not self._entries:
            if not self._closed:
                self._send(packet, number)
            return
        entry = _Entry(packet, counted, number)

        def settled(failure: StorageFailure | None) -> None:
            with self._guard:
                if failure is not None:
                    entry.packet = None if self._closed else refusal(failure)
                entry.ready = True
                self._send_ready()

        self._wait(entry, ticket, settled)

    def send_together_when_committed(
        self, ticket: CommitTicket, packets: bytes, number: int, refusal: RefusalOfOne
    ) -> None:
        """Send the PUBACK packets of several messages, joined, once their ticket is settled."""
        if ticket.settled and ticket.failure is None and not self._entries:
            if not self._closed:
                self._send(packets, number)
            return
        entry = _Entry(packets, number, number)

        def settled(failure: StorageFailure | None) -> None:
            with self._guard:
                if failure is None:
                    entry.ready = True
                    self._send_ready()
                else:
                    self._settle_singly(entry, ticket, failure, refusal)

        self._wait(entry, ticket, settled)

    def _wait(self, entry: _Entry, ticket: CommitTicket, settled: Callable[[StorageFailure | None], None]) -> None:
        """Add an entry behind the others, and call ``settled`` with the outcome of its ticket."""
        self._append(entry)
        self.unacknowledged_publishes += entry.counted
        ticket.when_settled(settled)
        if not ticket.settled:
            self._charge()

    def call_after_answers(self, call: Callable[[], None]) -> None:
        """Call this function once all present answers are sent; never, if the connection ends before."""
        if self._closed:
            return
        if not self._entries:
            call()
            return
        entry = _Entry(None, False, 0)
        entry.call = call
        entry.ready = True
        self._append(entry)

    def _append(self, entry: _Entry) -> None:
        if self._entries is _NO_ENTRIES:
            self._entries = deque()
        self._entries.append(entry)

    def close(self) -> None:
        """Send nothing any more: the Network Connection is gone. Commits under way still take place."""
        self._closed = True
        self._charge = _charge_none
        self._takes = _takes_all

    def _settle_singly(
        self, together: _Entry, ticket: CommitTicket, failure: StorageFailure, refusal: RefusalOfOne
    ) -> None:
        """Put an entry for each message in place of the joined one, since some of their changes have failed."""
        assert together.packet is not None
        number = together.number
        size = len(together.packet) // number
        entries = [_Entry(together.packet[start : start + size], 1, 1) for start in range(0, number * size, size)]
        # A deque takes insertions in the middle one by one; nearly always this one is the first.
        waiting = list(self._entries)
        place = waiting.index(together)
        waiting[place : place + 1] = entries
        self._entries = deque(waiting)
        for place, entry in enumerate(entries):
            reason = ticket.failure_of(place) if isinstance(ticket, RunTicket) else failure
            if reason is not None:
                entry.packet = None if self._closed else refusal(place, reason)
            entry.ready = True
            self._send_ready()

    def _send_ready(self) -> None:
        entries = self._entries
        while entries and entries[0].ready:
            entry = entries.popleft()
            self.unacknowledged_publishes -= entry.counted
            if self._closed:
                continue
            packet = entry.packet
            if packet is not None:
                if entry.number == 1 or self._takes(len(packet)):
                    self._send(packet, entry.number)
                else:  # what the Client does not read may end its connection between two of them
                    size = len(packet) // entry.number
                    for start in range(0, len(packet), size):
                        if not self._closed:
                            self._send(packet[start : start + size], 1)
            elif entry.call is not None:
                entry.call()


# Reason Codes and Reason Strings that explain a failure to a Client, for every packet type.


Explained = p.Connack | p.Puback | p.Pubrec | p.Pubrel | p.Pubcomp | p.Suback | p.Unsuback | p.Disconnect

#: The longest Reason String sent, in characters: some quote text of the Client.
LONGEST_REASON = 200


def failure_reason(failure: StorageFailure) -> ReasonCode:
    """Return the Reason Code that tells a Client why its change was not made durable."""
    if failure.kind is FailureKind.FULL:
        return ReasonCode.QUOTA_EXCEEDED
    return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


class Explanations:
    """Makes packets that explain failures to one Client.

    A Reason String is sent in MQTT 5 only, and only if the packet with it fits the Maximum Packet Size
    [MQTT5-3.2.2-19]. A Client can decline Reason Strings, except in CONNACK and DISCONNECT [MQTT5-3.1.2-29].
    """

    __slots__ = ("_maximum", "_wanted", "protocol_version")

    def __init__(self, protocol_version: int, connect: Properties = NO_PROPERTIES) -> None:
        self.protocol_version = protocol_version
        self._wanted = connect.request_problem_information != 0
        self._maximum = connect.maximum_packet_size

    @property
    def may_tell(self) -> bool:
        """Whether the Client takes properties in acknowledgements [MQTT5-3.1.2-29]."""
        return self._wanted

    def fits(self, packet: bytes) -> bool:
        """Tell whether the packet is within the Client's Maximum Packet Size [MQTT5-3.1.2-24]."""
        return self._maximum is None or len(packet) <= self._maximum

    def encode(self, packet: Explained, text: str) -> bytes:
        """Encode a packet that reports a failure, with ``text`` as its Reason String where one may be sent."""
        if text and self.protocol_version == 5 and (self._wanted or isinstance(packet, p.Connack | p.Disconnect)):
            # The packet is encoded to learn its size. If it is too large, the Client gets the code without the text.
            properties = attrs.evolve(packet.properties, reason_string=text[:LONGEST_REASON])
            explained = encode(attrs.evolve(packet, properties=properties), 5)
            if self.fits(explained):
                return explained
        return encode(packet, self.protocol_version)

    def encode_within(self, packet: Explained, text: str) -> bytes:
        """Encode a packet as :meth:`encode` does, and without its other properties if it is too large with them."""
        found = self.encode(packet, text)
        if not self.fits(found):
            found = encode(attrs.evolve(packet, properties=NO_PROPERTIES), self.protocol_version)
        return found

    def refusal(self, reason: ReasonCode, text: str, server: str | None = None) -> bytes:
        """Return the CONNACK that refuses a connection, or b"" where no CONNACK may be sent [MQTT311-3.2.2-6].

        ``server`` is its Server Reference. A reason that CONNACK may not carry is replaced by the nearest one that
        it may carry.
        """
        if self.protocol_version != 5:
            code = connect_return_code(reason)
            return b"" if code is None else encode(p.Connack(False, code), self.protocol_version)
        if reason not in PERMITTED[2]:
            stopping = reason is ReasonCode.SERVER_SHUTTING_DOWN
            reason = ReasonCode.SERVER_UNAVAILABLE if stopping else ReasonCode.UNSPECIFIED_ERROR
        packet = self.encode(p.Connack(False, reason, _referring(server)), text)
        return packet if self.fits(packet) else b""

    def disconnect(self, reason: ReasonCode, text: str, server: str | None = None) -> bytes:
        """Return the DISCONNECT that ends a connection, or b"" where none may be sent. ``server``: see refusal."""
        if self.protocol_version != 5:
            return b""
        packet = self.encode(p.Disconnect(reason, _referring(server)), text)
        return packet if self.fits(packet) else b""


def _referring(server: str | None) -> Properties:
    return NO_PROPERTIES if server is None else Properties(server_reference=server)


_WITHOUT_PROPERTIES = {version: Explanations(version) for version in (3, 4, 5)}


def explanations_for(protocol_version: int, connect: Properties = NO_PROPERTIES) -> Explanations:
    """Return the explanations for a Client of a known version: one object for all CONNECT without properties."""
    if connect is NO_PROPERTIES:
        return _WITHOUT_PROPERTIES[protocol_version]
    return Explanations(protocol_version, connect)


def explain_refusals(codes: Container[int], limits: Limits) -> str:
    """Explain the refusals among the Reason Codes of a SUBACK."""
    bounds = {
        "Subscriptions (mqtt.max_subscriptions)": limits.max_subscriptions,
        "patterns of +": limits.max_wildcard_patterns,
    }
    most = " and ".join(f"{most} {what}" for what, most in bounds.items() if most is not None)
    explanations = {
        ReasonCode.NOT_AUTHORIZED: "this subscription is not allowed",
        ReasonCode.TOPIC_FILTER_INVALID: (
            f"a Topic Filter has at most {limits.max_topic_levels} levels here (mqtt.max_topic_levels)"
        ),
        ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: "retained messages cannot be read now",
        ReasonCode.QUOTA_EXCEEDED: f"a Session has at most {most} here",
    }
    return "; ".join(text for code, text in explanations.items() if code in codes)
