"""Messages sent to a Client with QoS 1 or 2 and not yet acknowledged [MQTT5-4.3], [MQTT5-4.4].

How it works. Every such message is an :class:`Inflight`, and its ``state`` is one of :class:`InflightState`. The tables
:data:`QOS_1` and :data:`QOS_2` name every event that may change the state. The normal sequences are

    QoS 1:  SENT --PUBACK--> OVER
    QoS 2:  AWAITS_COMMIT --COMMIT_ENDED--> SENT --PUBREC--> RELEASED --PUBCOMP--> OVER

A QoS 2 message starts in AWAITS_COMMIT if its delivery, or the publisher's own QoS 2 exchange, is not durable yet: the
Client must receive it once, so the broker may not forget after a crash that it was sent. A QoS 1 message never waits,
since it may arrive twice.

RELEASED means that the Client has the message: the PUBLISH is never sent again, only PUBREL. A Client may repeat PUBREC
in that state, and PUBREL is then repeated.

After a reconnect the messages in SENT and RELEASED are sent again, the former with DUP 1. A message in AWAITS_COMMIT
was never sent. If its connection ends first, it becomes UNSENT when its commit ends. It then leaves on the next
connection as if for the first time: with DUP 0, after a commit of its own. Its row is that of a queued message
meanwhile, so a restart changes none of this. If a commit fails, a message that was never stored is discarded, since its
publisher is told to send it again. Otherwise the connection is closed, and the message is UNSENT too.

**Acknowledgements out of place.** Every other pair of state and acknowledgement changes nothing. For an identifier that
the Client has not been sent, that is the whole treatment. Otherwise the pairs in :data:`PROTOCOL_ERRORS` end the
connection: the Client takes the message for another one, and would never acknowledge it.

The states are compared directly, and the tables of states are not looked up while the broker runs: an acknowledgement
costs one comparison that way. A test drives every pair of state and event through a Session and compares it with the
tables.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from enum import Enum

import attrs
from attrs import define

from holdfast.core.messages import HELD_ENTRY, HELD_IDENTIFIER, has_expired, seconds_left
from holdfast.sessions.delivery.deliveries import Deliveries, Delivery
from holdfast.sessions.delivery.outgoing import Expired, OutgoingMessage
from holdfast.wire import PacketParser, Properties, encode
from holdfast.wire.encoding import pubacks
from holdfast.wire.packets import Publish

# Packet Identifiers of messages that the Server sends.


#: how often a search for consecutive identifiers begins anew behind one in use
_ATTEMPTS = 8


def last_used(first: int, last: int, used: Collection[int], blocks: Blocks) -> int:
    """Return the last identifier in use that prevents a block from ``first`` to ``last``, 0 if all are free."""
    found = blocks.last_used(first, last)
    if found or not used:
        return found
    # A short run must not cost more because many QoS 2 messages are in flight.
    if last - first < len(used):
        return next((identifier for identifier in range(last, first - 1, -1) if identifier in used), 0)
    return max((identifier for identifier in used if first <= identifier <= last), default=0)


class PacketIdentifiers:
    """Packet Identifiers 1..65535 in turn, without those in use [MQTT5-2.2.1-3], by entries and by blocks."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self, used: Collection[int], blocks: Blocks) -> int:
        """Return a free Packet Identifier. One is always free, because the window limits the messages in flight."""
        candidate = self._last
        while True:
            candidate = candidate + 1 if candidate < 65535 else 1
            if candidate in used:
                continue
            end = blocks.last_used(candidate, candidate) if blocks.count else 0
            if not end:
                self._last = candidate
                return candidate
            candidate = end

    def next_block(self, count: int, used: Collection[int], blocks: Blocks) -> int:
        """Return the first of ``count`` free Packet Identifiers that follow each other, 0 if none are found soon."""
        first = self._last + 1
        for _ in range(_ATTEMPTS):
            last = first + count - 1
            if last > 65535:
                first, last = 1, count
            obstacle = last_used(first, last, used, blocks)
            if not obstacle:
                self._last = last
                return first
            first = obstacle + 1
        return 0


class CommonIdentifiers:
    """Chooses the Packet Identifiers of runs for all Sessions together, so that a run is encoded once for all.

    A Session where some of them are in use chooses its own. These begin with 1, so the common ones begin in the middle.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 32767

    def take(self, count: int) -> int:
        """Return the first of ``count`` Packet Identifiers that follow each other."""
        first = self._last + 1 if self._last + count <= 65535 else 1
        self._last = first + count - 1
        return first


# How live messages and replays share the window: the QoS 1 and 2 messages that may be unacknowledged.
#
# Their number is limited, and the bytes that they hold (:mod:`holdfast.core.messages`).
#
# How it works. The window of a Session has one size: the lesser of the Client's Receive Maximum and
# ``mqtt.max_inflight``. All messages in flight count against it. While a replay runs, live messages and replays each
# have half of it:
#
#     size 10, a replay runs    live messages get at most 5; the replay gets at most 5 while live messages wait,
#                               and up to 10 while none waits
#     size 10, no replay runs   live messages get all 10
#     size 7, a replay runs     live messages get at most 4, the larger half
#     size 1, a replay runs     no half exists: live messages and replays take turns
#
# So a replay cannot delay live messages behind thousands of retained messages, and a fast publisher cannot stop a
# replay. A replay uses the whole window when no live message waits, since live messages could not use it; a live
# message that comes then waits for one acknowledgement. Live messages do not use the replay's half even if the replay
# is slow: the replay asks for room only when it has read a batch, and would find none.
#
# The bytes, at most ``mqtt.max_inflight_bytes``, are shared in the same way. One message is always sent, of any length;
# while a replay runs, one live and one replayed message are. So both always go on:
#
#     1 MB, no replay runs      ten messages of 100 KB, or one of 2 MB
#     1 MB, a replay runs       five live messages of 100 KB, or one of 2 MB; and at least one replayed message
#
# A message that the Client has received (PUBREC) counts as a message, and its bytes are free.
#
# A replay begins to share the window when all messages queued before it have been sent. ``replaying`` tells whether any
# replay of the Session shares the window.


class Window:
    """The window of one Session. ``size`` is in messages, ``max_bytes`` in bytes.

    ``bytes`` counts the bytes in flight. ``replayed`` and ``replayed_bytes`` count the messages of replays in flight.
    """

    __slots__ = ("_last_was_replay", "bytes", "max_bytes", "replayed", "replayed_bytes", "replaying", "size")

    def __init__(self, size: int, max_bytes: int) -> None:
        self.size = size
        self.max_bytes = max_bytes
        self.replaying = False
        self.bytes = 0
        self.replayed = 0
        self.replayed_bytes = 0
        self._last_was_replay = True

    def live_room(self, in_flight: int) -> int:
        """Return how many live QoS 1 and 2 messages may be sent now; ``in_flight`` includes replayed messages."""
        size = self.size
        room = size - in_flight
        if self.replaying and size > 1:
            room = min(room, size - size // 2 - (in_flight - self.replayed))
        return room

    def takes_live(self, in_flight: int, size: int) -> bool:
        """Tell whether a live QoS 1 or 2 message of ``size`` bytes may be sent now."""
        if not self.replaying:  # the usual case
            return in_flight < self.size and (self.bytes + size <= self.max_bytes or not self.bytes)
        if self.live_room(in_flight) <= 0:
            return False
        live = self.bytes - self.replayed_bytes
        if not live:
            return True
        return self.bytes + size <= self.max_bytes and live + size <= (self.max_bytes + 1) // 2

    def takes_run(self, in_flight: int, count: int, size: int) -> bool:
        """Tell whether ``count`` live QoS 1 messages of ``size`` bytes together may be sent now."""
        if not self.replaying:  # the usual case
            return in_flight + count <= self.size and self.bytes + size <= self.max_bytes
        live = self.bytes - self.replayed_bytes + size
        if self.bytes + size > self.max_bytes or live > (self.max_bytes + 1) // 2:
            return False
        return count <= self.live_room(in_flight)

    def replay_bytes(self, live_waits: bool) -> int:
        """Return how many bytes of QoS 1 and 2 messages replays may send now.

        If ``replayed_bytes`` is 0, they may send one message of any size.
        """
        room = self.max_bytes - self.bytes
        if live_waits:
            room = min(room, self.max_bytes // 2 - self.replayed_bytes)
        return room

    def replay_room(self, in_flight: int, live_waits: bool) -> int:
        """Return how many QoS 1 and 2 messages replays may send now."""
        room = self.size - in_flight
        if live_waits:
            room = min(room, max(1, self.size // 2) - self.replayed)
        if self.replayed_bytes and self.replay_bytes(live_waits) <= 0:
            return 0
        return room

    def is_turn_of_replays(self) -> bool:
        """Tell whether a replay, not a live message, may use a window of one. Each call passes the turn on."""
        if self.size > 1 or not self.replaying or self.replayed:
            return False
        self._last_was_replay = not self._last_was_replay
        return self._last_was_replay


class InflightState(Enum):
    """The state of a message in flight."""

    AWAITS_COMMIT = "may not be sent before its commit"
    UNSENT = "its connection ended before it was sent"
    SENT = "PUBLISH has been sent"
    RELEASED = "PUBREC has come, PUBREL has been sent or is due"
    OVER = "acknowledged in full, refused or discarded"


class InflightEvent(Enum):
    """An event in the life of a message in flight."""

    COMMIT_ENDED = "the commit has succeeded or failed"
    COMMIT_ENDED_LATE = "the same, after the end of the connection"
    RECONNECTED = "the Client has come back"
    PUBACK = "PUBACK has come"
    PUBREC = "PUBREC has come"
    PUBREC_REFUSES = "PUBREC has come with a Reason Code of 0x80 or greater"
    PUBCOMP = "PUBCOMP has come"


# Module constants, because every message reads them: a global name is faster to read than a member of an Enum.
AWAITS_COMMIT, UNSENT, SENT, RELEASED, OVER = InflightState

#: QoS 1: the next state for a state and an event
QOS_1 = {(SENT, InflightEvent.PUBACK): OVER}

#: QoS 2: the next state for a state and an event
QOS_2 = {
    (AWAITS_COMMIT, InflightEvent.COMMIT_ENDED): SENT,
    (AWAITS_COMMIT, InflightEvent.COMMIT_ENDED_LATE): UNSENT,
    (UNSENT, InflightEvent.RECONNECTED): SENT,
    (SENT, InflightEvent.PUBREC): RELEASED,
    (SENT, InflightEvent.PUBREC_REFUSES): OVER,
    (RELEASED, InflightEvent.PUBREC): RELEASED,
    (RELEASED, InflightEvent.PUBREC_REFUSES): OVER,
    (RELEASED, InflightEvent.PUBCOMP): OVER,
}

#: Acknowledgements that are Protocol Errors, by QoS and state, with the lowest protocol version in which they are. MQTT
#: 3 has no Protocol Errors in the order of acknowledgements: there, only a type that the QoS never has ends the
#: connection.
PROTOCOL_ERRORS = {
    (1, SENT, InflightEvent.PUBREC): 3,
    (1, SENT, InflightEvent.PUBREC_REFUSES): 3,
    (1, SENT, InflightEvent.PUBCOMP): 3,
    (2, SENT, InflightEvent.PUBACK): 3,
    (2, SENT, InflightEvent.PUBCOMP): 5,
    (2, RELEASED, InflightEvent.PUBACK): 3,
}


@define(eq=False)
class Inflight:
    """One PUBLISH that is not acknowledged, or the PUBREL that follows it.

    ``packet`` is the PUBLISH as first sent, with DUP 0, encoded for ``protocol_version``; b"" if it will not be sent
    again. ``size`` is its part of the window, in bytes. ``expires_at`` is in milliseconds since the
    epoch (0 for never). ``replayed`` tells that a replay sent this retained message. ``outgoing`` is kept until a QoS 2
    message is sent: its connection may have another protocol version than the first one. ``unasked`` tells that the
    authorizer is asked about the message before it is sent, or sent again.
    """

    packet: bytes
    qos: int
    protocol_version: int
    expires_at: int = 0
    replayed: bool = False
    delivery: Delivery | None = None
    state: InflightState = SENT
    size: int = 0
    outgoing: OutgoingMessage | None = None
    unasked: bool = False

    def again(self, protocol_version: int, now: int) -> bytes:
        """Return the PUBLISH for another attempt, with DUP 1 [MQTT5-3.3.1-1]."""
        return self._at(protocol_version, now, True)

    def first(self, protocol_version: int, packet_identifier: int, now: int) -> bytes | None:
        """Return the PUBLISH for the first attempt on a later connection. None: the message has expired meanwhile."""
        delivery = self.delivery
        if delivery is None or self.outgoing is None:
            return self.late(protocol_version, now)
        try:
            return self.outgoing.packet(
                protocol_version, self.qos, delivery.retain, delivery.identifiers, packet_identifier, now
            )
        except Expired:
            return None

    def late(self, protocol_version: int, now: int) -> bytes | None:
        """Return the PUBLISH for the first attempt, after a wait. None: the message has expired meanwhile."""
        if not self.expires_at and protocol_version == self.protocol_version:
            return self.packet
        if has_expired(self.expires_at, now):
            return None
        return self._at(protocol_version, now, False)

    def _at(self, protocol_version: int, now: int, dup: bool) -> bytes:
        """Return the PUBLISH with the Message Expiry Interval that remains now."""
        if protocol_version == self.protocol_version and not (self.expires_at and protocol_version == 5):
            return bytes((self.packet[0] | dup << 3,)) + self.packet[1:]
        parser = PacketParser(len(self.packet), self.protocol_version)
        parser.receive_data(self.packet)
        publish = parser.next_packet()
        assert isinstance(publish, Publish)
        properties: Properties = publish.properties
        if self.expires_at:
            properties = attrs.evolve(properties, message_expiry_interval=seconds_left(self.expires_at, now))
        return encode(attrs.evolve(publish, dup=dup, properties=properties), protocol_version)


# The QoS 1 messages in flight to a Session that keeps no packets: consecutive Packet Identifiers, as intervals.
#
# Such a Session ends with its connection, so its messages are never sent again. Of a message in flight it needs
# only the Packet Identifier and the bytes that the message takes of the window. Messages with consecutive
# identifiers are one *block*, however many they are:
#
#     1000 messages are sent             [1..1000]
#     PUBACK 1, 2, ... 400, in one read  [401..1000]: one comparison of 1600 bytes with the expected ones
#     PUBACK 700                         [401..699], [701..1000]
#     three more messages are sent       [401..699], [701..1003]
#
# The blocks lie in a sorted list, so each step takes a binary search. A block gives its bytes back evenly, all of them
# with its last message. What a message is charged beside its packet (:data:`~holdfast.core.messages.HELD_IDENTIFIER`)
# pays for the blocks that a Client makes when it acknowledges every second message.


#: Packets compared at once. If acknowledgements come in no order, each of them costs one comparison in vain.
_COMPARED = 500


class Block:
    """Consecutive identifiers: their number, their bytes of the window, and whether a replay has sent the messages."""

    __slots__ = ("bytes", "count", "replayed")

    def __init__(self, count: int, size: int, replayed: bool) -> None:
        self.count = count
        self.bytes = size
        self.replayed = replayed


class Blocks:
    """The blocks of one Session. ``count`` is the number of their messages, which take their part of the ``window``."""

    __slots__ = ("_blocks", "_firsts", "_window", "count")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._firsts: list[int] = []  # the first identifier of each block, in order
        self._blocks: list[Block] = []
        self.count = 0

    def add(self, first: int, count: int, size: int, replayed: bool) -> None:
        """Add messages with free identifiers from ``first`` on, which take ``size`` bytes of the window together."""
        window = self._window
        window.bytes += size
        if replayed:
            window.replayed += count
            window.replayed_bytes += size
        self.count += count
        index = bisect_right(self._firsts, first)
        if index:
            before = self._blocks[index - 1]
            if before.replayed is replayed and self._firsts[index - 1] + before.count == first:
                before.count += count
                before.bytes += size
                return
        self._firsts.insert(index, first)
        self._blocks.insert(index, Block(count, size, replayed))

    def last_used(self, first: int, last: int) -> int:
        """Return the last identifier of the last block that has one of ``first`` to ``last``, 0 if there is none."""
        index = bisect_right(self._firsts, last) - 1
        if index < 0:
            return 0
        used = self._firsts[index] + self._blocks[index].count - 1
        return used if used >= first else 0

    def __contains__(self, identifier: int) -> bool:
        return self.last_used(identifier, identifier) > 0

    def acknowledged(self, identifier: int) -> bool:
        """Remove the message with this identifier. Return False if no block has it."""
        return self.acknowledged_first(pubacks(identifier, 1), 0) > 0

    def acknowledged_first(self, stretch: bytes, position: int) -> int:
        """Remove messages for PUBACK packets, the first of which is at a ``position`` of the stretch.

        Returns the number of packets: one, or as many as acknowledge one block in its order, or 0 if no block has the
        first identifier.
        """
        identifier = stretch[position + 2] << 8 | stretch[position + 3]
        index = bisect_right(self._firsts, identifier) - 1
        if index < 0:
            return 0
        block = self._blocks[index]
        before = identifier - self._firsts[index]
        count = min(block.count - before, (len(stretch) - position) // 4, _COMPARED)
        if count <= 0:
            return 0
        if count > 1 and not stretch.startswith(pubacks(identifier, count), position):
            count = 1
        self._remove(index, before, count)
        return count

    def _remove(self, index: int, before: int, count: int) -> None:
        """Remove ``count`` messages from a block, behind its first ``before`` messages."""
        block = self._blocks[index]
        size = block.bytes * count // block.count
        window = self._window
        window.bytes -= size
        if block.replayed:
            window.replayed -= count
            window.replayed_bytes -= size
        self.count -= count
        left, left_bytes = block.count - count, block.bytes - size
        if not left:
            del self._firsts[index], self._blocks[index]
            return
        if before < left:  # messages are left behind the gap
            rest = left - before
            rest_bytes = left_bytes * rest // left
            first = self._firsts[index] + before + count
            if before:
                self._firsts.insert(index + 1, first)
                self._blocks.insert(index + 1, Block(rest, rest_bytes, block.replayed))
                left, left_bytes = before, left_bytes - rest_bytes
            else:
                self._firsts[index] = first
        block.count, block.bytes = left, left_bytes


#: of all Sessions without blocks: each makes its own with its first message
NO_BLOCKS = Blocks(Window(0, 0))


# The messages in flight to one Client by Packet Identifier, and the part of the window that they take.
#
# A message is an entry or is in a block. Messages of a Session that keeps no packets
# are in blocks, except for those with QoS 2 and those of shared subscriptions, which another member may have to take.
#
# **Memory.** Packets are kept for another attempt, and their bytes are bounded by the window. Two kinds are never sent
# again and so are not kept: the packets of a Session that ends with its connection, once they have left; and those of
# messages that the Client has received.


#: of Sessions without such messages; nothing is ever added
_NONE_AWAITING: dict[int, Inflight] = {}


class InflightTable:
    """The messages in flight of one Session."""

    __slots__ = (
        "_awaiting",
        "_deliveries",
        "_identifiers",
        "_unsent_topics",
        "_waiting_bytes",
        "_window",
        "blocks",
        "entries",
        "in_blocks",
        "keeps_packets",
        "to_resend",
    )

    def __init__(self, window: Window, deliveries: Deliveries) -> None:
        self.entries: dict[int, Inflight] = {}
        self.blocks = NO_BLOCKS
        self._awaiting = _NONE_AWAITING  # of the entries, those that await a commit
        self._window = window
        self._deliveries = deliveries
        self._identifiers = PacketIdentifiers()
        #: whether messages may have to be sent again, since the Session outlives its connection
        self.keeps_packets = True
        #: whether QoS 1 messages are in blocks: neither their packets nor their deliveries are kept
        self.in_blocks = False
        #: of the entries, those to repeat after a reconnect
        self.to_resend: dict[int, Inflight] = {}
        self._waiting_bytes = 0  # the sizes of to_resend
        self._unsent_topics: dict[int, str] = {}  # topics of replayed messages that have not been sent yet

    @property
    def count(self) -> int:
        """The number of messages in flight."""
        return len(self.entries) + self.blocks.count

    # --- Packet Identifiers

    def next_identifier(self) -> int:
        """Return a free Packet Identifier."""
        return self._identifiers.next(self.entries, self.blocks)

    def next_block(self, count: int) -> int:
        """Return the first of so many free Packet Identifiers that follow each other; 0 if none are found."""
        return self._identifiers.next_block(count, self.entries, self.blocks)

    def is_free(self, first: int, count: int) -> bool:
        """Tell whether so many Packet Identifiers from ``first`` on are free."""
        return not last_used(first, first + count - 1, self.entries, self.blocks)

    # --- blocks

    def add_block(self, first: int, count: int, size: int, replayed: bool) -> None:
        """Add QoS 1 messages whose packets have ``size`` bytes together."""
        if self.blocks is NO_BLOCKS:
            self.blocks = Blocks(self._window)
        self.blocks.add(first, count, size + count * HELD_IDENTIFIER, replayed)

    def forget_blocks(self) -> None:
        """Forget the messages in blocks: the Session has ended."""
        self.blocks = NO_BLOCKS

    # --- entries

    def restore(self, packet_identifier: int, entry: Inflight) -> None:
        """Take over a message that an earlier process has stored."""
        self.entries[packet_identifier] = entry
        if entry.packet:
            entry.size = window_size(entry)
            self._window.bytes += entry.size

    def unsent(self) -> list[Inflight]:
        """Return the messages that have not been sent yet. It costs nothing for those that have been sent."""
        return [*self._awaiting.values(), *(entry for entry in self.to_resend.values() if entry.state is UNSENT)]

    def unsent_replayed_topics(self) -> Iterable[str]:
        """Return the topics of replayed messages that have not been sent yet."""
        return self._unsent_topics.values()

    def shared(self) -> list[tuple[int, Inflight]]:
        """Return the QoS 1 messages of shared subscriptions, which another member can take.

        A QoS 2 exchange that has begun is completed with this Client or not at all [MQTT5-4.8.2-4], [MQTT5-4.8.2-5].
        """
        return [
            (packet_identifier, entry)
            for packet_identifier, entry in self.entries.items()
            if entry.qos == 1 and entry.delivery is not None and entry.delivery.shared_filter is not None
        ]

    def discard(self, packet_identifier: int) -> None:
        """Discard a message: another member takes it, or the Session has ended."""
        self._complete(packet_identifier, self.entries[packet_identifier])  # its commit may still be under way

    def _complete(self, packet_identifier: int, entry: Inflight) -> None:
        del self.entries[packet_identifier]
        self._free(packet_identifier, entry)
        self._waits_no_longer(packet_identifier)
        self._unsent_topics.pop(packet_identifier, None)
        self._awaits_no_longer(packet_identifier, entry)
        entry.state = OVER
        self._window.replayed -= entry.replayed
        if entry.delivery is not None:
            self._deliveries.forget(entry.delivery)

    def _note_awaiting(self, packet_identifier: int, entry: Inflight) -> None:
        """Note that a message awaits a commit."""
        if self._awaiting is _NONE_AWAITING:
            self._awaiting = {}
        self._awaiting[packet_identifier] = entry
        entry.state = AWAITS_COMMIT

    def _awaits_no_longer(self, packet_identifier: int, entry: Inflight) -> None:
        if self._awaiting.get(packet_identifier) is entry:
            del self._awaiting[packet_identifier]

    def _free(self, packet_identifier: int, entry: Inflight) -> None:
        """Drop the packet of a message, and give its bytes back to the window."""
        size = entry.size
        self._window.bytes -= size
        if entry.replayed:
            self._window.replayed_bytes -= size
        if packet_identifier in self.to_resend:
            self._waiting_bytes -= size
        entry.size = 0
        entry.packet = b""

    def _waits_no_longer(self, packet_identifier: int) -> None:
        entry = self.to_resend.pop(packet_identifier, None)
        if entry is not None:
            self._waiting_bytes -= entry.size


def window_size(entry: Inflight) -> int:
    """Return how many bytes of the window a message takes."""
    return len(entry.packet) + HELD_ENTRY
