"""Revisions: the 64-bit stamps that order all changes of the store.

A revision has three parts, ``milliseconds << 20 | counter << 8 | node``. Node 1 stamps two changes in the millisecond
1,700,000,000,000:

    1,700,000,000,000 << 20 | 0 << 8 | 1  =  1,782,579,200,000,000,001
    1,700,000,000,000 << 20 | 1 << 8 | 1  =  1,782,579,200,000,000,257

Invariants: a node's revisions strictly increase, also across restarts and when the machine's clock is set back. Two
nodes never use the same revision. A higher revision wins, whatever the order of arrival.

Left out: a plain counter. A counter that is unique among nodes would need a round trip to the database, and would not
tell the time of a change.
"""

from __future__ import annotations

from collections.abc import Callable

#: A revision is ``milliseconds << 20 | counter (12 bits) << 8 | node (8 bits)``.
NODE_BITS = 8
COUNTER_BITS = 12
#: The bits below the milliseconds.
TIME_SHIFT = NODE_BITS + COUNTER_BITS
HIGHEST_NODE = (1 << NODE_BITS) - 1


def after(revision: int, node: int) -> int:
    """Return the lowest revision of this node that is higher than the given one."""
    return ((revision >> NODE_BITS) + 1) << NODE_BITS | node


def time_of(revision: int) -> int:
    """Return the time of a revision, in milliseconds since the epoch."""
    return revision >> TIME_SHIFT


class RevisionClock:
    """Stamps changes with strictly increasing revisions, also if the wall clock goes back.

    ``node`` (0..255) is the low byte of every revision, 0 for tools. ``mark`` is not below any revision used before
    (0 for none). ``now_ms`` returns the time in milliseconds since the epoch. Raises ValueError for a node out of
    range.
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
        """Stamp a change. After 4096 changes in a millisecond, the counter carries into the milliseconds."""
        tick = max(self._now_ms() << COUNTER_BITS, (self._latest >> NODE_BITS) + 1)
        self._latest = tick << NODE_BITS | self.node
        return self._latest

    def next_revisions(self, count: int) -> range:
        """Stamp ``count`` changes at once, in order."""
        first = self.next_revision()
        stamps = range(first, first + (count << NODE_BITS), 1 << NODE_BITS)
        self._latest = stamps[-1]
        return stamps

    def observe(self, revision: int) -> None:
        """Note a revision of another node. All later stamps are higher."""
        self._latest = max(self._latest, revision)
