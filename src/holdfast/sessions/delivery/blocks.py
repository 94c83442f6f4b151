"""The QoS 1 messages in flight to a Session that keeps no packets: consecutive Packet Identifiers, as intervals.

Such a Session ends with its connection, so its messages are never sent again. Of a message in flight it needs
only the Packet Identifier and the bytes that the message takes of the window. Messages with consecutive
identifiers are one *block*, however many they are:

    1000 messages are sent             [1..1000]
    PUBACK 1, 2, ... 400, in one read  [401..1000]: one comparison of 1600 bytes with the expected ones
    PUBACK 700                         [401..699], [701..1000]
    three more messages are sent       [401..699], [701..1003]

The blocks lie in a sorted list, so each step takes a binary search. A block gives its bytes back evenly, all of them
with its last message. What a message is charged beside its packet (:data:`~holdfast.sizes.HELD_IDENTIFIER`) pays for
the blocks that a Client makes when it acknowledges every second message.
"""

from __future__ import annotations

from bisect import bisect_right

from holdfast.sessions.delivery.window import Window
from holdfast.wire.pubacks import pubacks

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
