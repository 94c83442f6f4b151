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

import json
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, frozen

from holdfast.changes.tokens import Token
from holdfast.core.messages import ChangeKind
from holdfast.core.units import date_of
from holdfast.retained.store.rows import Row
from holdfast.storage.revisions import TIME_SHIFT

# One committed change of a retained message, and its JSON.


#: The longest payload, in bytes, that a change carries.
LONGEST_PAYLOAD = 1 << 16
#: What a change takes in memory beside its texts and its payload.
_OVERHEAD = 700


@define(eq=False)
class StoredChange:
    """A committed change. Times are in milliseconds since the epoch.

    ``payload`` is empty if it was longer than :data:`LONGEST_PAYLOAD`; ``size`` is its length. ``properties`` is a JSON
    object.
    """

    topic: str
    revision: int
    kind: ChangeKind
    at: int
    qos: int = 0
    size: int = 0
    expires_at: int | None = None
    client_id: str | None = None
    username: str | None = None
    properties: str | None = None
    payload: bytes = b""
    _text: bytes | None = None

    @property
    def weight(self) -> int:
        """The bytes that it takes in memory, at most."""
        names = len(self.client_id or "") + len(self.username or "") + len(self.properties or "")
        return _OVERHEAD + 3 * (len(self.topic) + names) + 2 * min(self.size, LONGEST_PAYLOAD)

    def json(self) -> bytes:
        """Return the change as JSON in ASCII, without a line end. It is made once."""
        if self._text is None:
            self._text = json.dumps(self._fields(), separators=(",", ":")).encode()
            self.payload = b""  # the text has it
        return self._text

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "event": self.kind.value,
            "topic": self.topic,
            "revision": str(self.revision),
            "publish_at": date_of(self.at),
            "from_clientid": self.client_id,
            "from_username": self.username,
        }
        if self.kind is not ChangeKind.SET:
            return fields
        fields |= {
            "qos": self.qos,
            "size": self.size,
            "expiry_at": None if self.expires_at is None else date_of(self.expires_at),
            "properties": json.loads(self.properties or "{}"),
        }
        if self.size > LONGEST_PAYLOAD:
            fields["payload_omitted"] = True
        else:
            fields["payload"] = b64encode(self.payload).decode()
        return fields


def change_of_row(row: Row) -> StoredChange:
    """Return the change that wrote a row: a tombstone is that of a clear."""
    return StoredChange(
        row.topic,
        row.revision,
        ChangeKind.CLEAR if row.tombstone else ChangeKind.SET,
        row.stored_at,
        row.qos,
        row.size,
        row.expires_at,
        row.client_id,
        row.username,
        row.properties_json,
        row.payload if row.size <= LONGEST_PAYLOAD else b"",
    )


def expiry_of(topic: str, at: int, revision: int) -> StoredChange:
    """Return the change of a message that has expired."""
    return StoredChange(topic, revision, ChangeKind.EXPIRE, at)


def purged_change(topic: str, at: int) -> StoredChange:
    """Return the change of a topic whose tombstone is purged: only its time (milliseconds) is left in the log."""
    return StoredChange(topic, at << TIME_SHIFT, ChangeKind.CLEAR, at)


@frozen
class Taken:
    """Changes in their order. All changes up to ``token`` were taken; ``more`` means that other changes follow at once.

    ``reset`` is the reason if changes are missing before these: the keeper of a copy must list the messages again.
    """

    changes: Sequence[StoredChange]
    token: Token
    more: bool = False
    reset: str | None = None


#: a place in the log of which nothing is known
NOWHERE = Token(bytes(8), 0)
MOST_CHANGES = 10_000
MOST_BYTES = 16 << 20
#: Holes are closed when there are so many more of them than changes.
_HOLES = 1024


@frozen
class Part:
    """Changes after a position, and the position up to which they are complete.

    ``head`` is a place in the log that is not after this position. ``more`` tells that other changes follow.
    """

    changes: Sequence[StoredChange]
    position: int
    head: Token
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
        #: a place in the log that is not after any later change
        self.head = NOWHERE
        self.bytes = 0
        self._positions: list[int] = []
        self._changes: list[tuple[StoredChange, Token] | None] = []
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
        head = self.head if index == len(self._positions) else NOWHERE
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
        """Drop all changes: every reader learns that some are missing."""
        self.latest += 1
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
