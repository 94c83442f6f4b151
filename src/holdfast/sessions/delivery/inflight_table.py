"""The messages in flight to one Client by Packet Identifier, and the part of the window that they take.

A message is an entry (:mod:`inflight`) or is in a block (:mod:`blocks`). Messages of a Session that keeps no packets
are in blocks, except for those with QoS 2 and those of shared subscriptions, which another member may have to take.

**Memory.** Packets are kept for another attempt, and their bytes are bounded by the window. Two kinds are never sent
again and so are not kept: the packets of a Session that ends with its connection, once they have left; and those of
messages that the Client has received.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.sessions.delivery.blocks import NO_BLOCKS, Blocks
from holdfast.sessions.delivery.deliveries import Deliveries
from holdfast.sessions.delivery.inflight import AWAITS_COMMIT, OVER, UNSENT, Inflight
from holdfast.sessions.delivery.packet_identifiers import PacketIdentifiers, last_used
from holdfast.sessions.delivery.window import Window
from holdfast.sizes import HELD_ENTRY, HELD_IDENTIFIER

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
