"""Packet Identifiers of messages that the Server sends."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.sessions.delivery.blocks import Blocks

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
