"""The recent changes: the newest change of each topic, in the order of commits, in bounded memory.

How it works. Each change gets the next position. A later change of the same topic takes the place of the earlier one,
which leaves a hole. When there are too many changes, the first ones are dropped, and ``floor`` is the last position
whose change was dropped. A reader continues from its position, unless this is below the floor:

    add a, b, c      1 a   2 b   3 c            floor 0
    add a again            2 b   3 c   4 a      floor 0: from position 1, a reader still gets the newest a
    drop one                     3 c   4 a      floor 2: from position 1, b would be missing

So a slow reader needs no queue of its own: it gets the newest change of each topic, or learns that it is too slow.
Invariant: of two changes of a topic, the one with the higher revision stays. A late change is left out if a newer
one of its topic is here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from attrs import frozen

from holdfast.retained.changes.change import StoredChange
from holdfast.retained.changes.token import NO_HEAD, Head

MOST_CHANGES = 10_000
MOST_BYTES = 16 << 20
#: Holes are closed when there are so many more of them than changes.
_HOLES = 1024


@frozen
class Part:
    """Changes after a position, and the position up to which they are complete.

    ``head`` is an entry of the history that is not after this position. ``more`` tells that other changes follow.
    """

    changes: Sequence[StoredChange]
    position: int
    head: Head
    more: bool


class RecentChanges:
    """At most ``most`` changes with at most ``most_bytes`` together."""

    def __init__(self, most: int = MOST_CHANGES, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        #: the highest position of a change that was dropped
        self.floor = 0
        #: the position of the last change
        self.latest = 0
        #: the head of the history that belongs to all changes from now on
        self.head = NO_HEAD
        self.bytes = 0
        self._positions: list[int] = []
        self._changes: list[tuple[StoredChange, Head] | None] = []
        self._by_topic: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self._by_topic)

    def add(self, change: StoredChange) -> bool:
        """Add a change, unless it or a newer one of its topic is here. Tell whether it was added."""
        known = self._by_topic.get(change.topic)
        if known is not None:
            index = bisect_left(self._positions, known)
            present = self._changes[index]
            assert present is not None
            if present[0].revision >= change.revision:
                return False
            self._remove(index)
        self.latest += 1
        self._positions.append(self.latest)
        self._changes.append((change, self.head))
        self._by_topic[change.topic] = self.latest
        self.bytes += change.weight
        if len(self._by_topic) > self._most or self.bytes > self._most_bytes:
            self._drop()
        if len(self._positions) > 2 * len(self._by_topic) + _HOLES:
            self._close_holes()
        return True

    def read(self, position: int, wanted: Callable[[str], bool], most_looked: int, most_bytes: int) -> Part | None:
        """Return the changes of wanted topics after a position; None if some were dropped.

        It looks at ``most_looked`` changes at most, and returns one at least.
        """
        if position < self.floor:
            return None
        index = bisect_right(self._positions, position)
        found: list[StoredChange] = []
        head = self.head if index == len(self._positions) else NO_HEAD
        end = min(len(self._positions), index + most_looked)
        while index < end:
            entry = self._changes[index]
            if entry is not None:
                change, head = entry
                if wanted(change.topic):
                    if found and change.weight > most_bytes:
                        return Part(found, position, head, True)
                    most_bytes -= change.weight
                    found.append(change)
            position = self._positions[index]
            index += 1
        more = index < len(self._positions)
        return Part(found, position, head if more else self.head, more)

    def forget(self) -> None:
        """Drop all changes: every reader of earlier ones learns that some are missing."""
        self.floor = self.latest
        self.bytes = 0
        self._positions, self._changes = [], []
        self._by_topic.clear()

    def _remove(self, index: int) -> None:
        entry = self._changes[index]
        assert entry is not None
        del self._by_topic[entry[0].topic]
        self.bytes -= entry[0].weight
        self._changes[index] = None

    def _drop(self) -> None:
        """Drop an eighth of the changes, the first ones: one by one, each would move all others in the list."""
        index, left, target = 0, max(1, len(self._by_topic) // 8), self._most_bytes * 7 // 8
        while index < len(self._changes) - 1 and (left > 0 or self.bytes > target):
            if self._changes[index] is not None:
                self._remove(index)
                self.floor = self._positions[index]
                left -= 1
            index += 1
        self._close_holes()

    def _close_holes(self) -> None:
        kept = [(at, entry) for at, entry in zip(self._positions, self._changes, strict=True) if entry is not None]
        self._positions = [at for at, _ in kept]
        self._changes = [entry for _, entry in kept]
