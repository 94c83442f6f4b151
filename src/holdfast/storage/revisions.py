"""Revisions: the 64-bit stamps that order every change of the store."""

from __future__ import annotations

from collections.abc import Callable

#: A revision is ``milliseconds << 20 | counter (12 bits) << 8 | node (8 bits)``.
NODE_BITS = 8
COUNTER_BITS = 12
#: The bits below the milliseconds.
TIME_SHIFT = NODE_BITS + COUNTER_BITS
HIGHEST_NODE = (1 << NODE_BITS) - 1


def after(revision: int, node: int) -> int:
    """Return the node's first revision above another node's."""
    return ((revision >> NODE_BITS) + 1) << NODE_BITS | node


def time_of(revision: int) -> int:
    """Return when a revision was stamped, in milliseconds since the epoch."""
    return revision >> TIME_SHIFT


class RevisionClock:
    """Stamps changes with strictly increasing revisions, whatever the wall clock does.

    ``node`` (0..255) is the low byte of every revision, 0 being for tools. ``mark`` is the highest revision used
    before (0 for none). ``now_ms`` returns the wall clock in milliseconds since the epoch. Raises ValueError for a
    node out of range.
    """

    def __init__(self, node: int, mark: int, now_ms: Callable[[], int]) -> None:
        if not 0 <= node <= HIGHEST_NODE:
            raise ValueError(f"a node id is 0..{HIGHEST_NODE}, not {node}")
        self.node = node
        self._latest = mark
        self._now_ms = now_ms

    @property
    def latest(self) -> int:
        """The highest revision stamped or observed so far."""
        return self._latest

    def next_revision(self) -> int:
        """Stamp a change. When more than 4096 fall in a millisecond, the counter carries into the milliseconds."""
        tick = max(self._now_ms() << COUNTER_BITS, (self._latest >> NODE_BITS) + 1)
        self._latest = tick << NODE_BITS | self.node
        return self._latest

    def next_revisions(self, count: int) -> range:
        """Stamp so many changes at once, in order."""
        first = self.next_revision()
        stamps = range(first, first + (count << NODE_BITS), 1 << NODE_BITS)
        self._latest = stamps[-1]
        return stamps

    def observe(self, revision: int) -> None:
        """Take note of a revision stamped elsewhere: later stamps are higher."""
        self._latest = max(self._latest, revision)
