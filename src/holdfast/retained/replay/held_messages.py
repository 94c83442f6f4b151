"""The messages that one replay has read and not delivered yet, and the changes that make copies of them stale.

How it works. At most two reads of the store count: the *current* one, whose slices are being delivered, and the
*next* one, which is under way or answered. An answer to any other read is ignored: the replay has given it up.

A topic that changed while the replay runs is *marked*. A slice loses its copies of marked topics before it is
delivered, because the client has been sent the newer message live. A mark is dropped once its change is committed and
no read that began before that commit is held:

    read 1 begins            plant/a, plant/b, plant/c
    plant/b changes          marked; the copy of read 1 is stale
    the change is committed
    read 2 begins            the statement sees the change: read 2 needs no mark
    read 2 becomes current   nothing of read 1 is held any more; the mark is dropped

The invariant: if a held copy is older than a change that the client was sent live, its topic is marked.
A failed commit leaves its mark to the end of the replay: the client may have been sent a message that no row has.
"""

from __future__ import annotations

from collections import deque

from attrs import define

from holdfast.retained.replay.change_feed import Change
from holdfast.retained.store.slice_size import SLICE_BYTES
from holdfast.retained.store.slices import cut, portions, without
from holdfast.retained.store.values import Batch, Slice

#: Above this many marks the held messages are given up and read again: a stalled client costs little memory.
MOST_MARKS = 1000
#: Bytes of packets that the held slices and the next batch may have together. A single larger message may exceed it.
_AHEAD_BYTES = 256 << 10
#: The next batch is read ahead only when it may have this many bytes: about a thousand ordinary messages.
_LEAST_AHEAD_BYTES = 192 << 10


@define(eq=False)
class BatchRead:
    """One read of the store: under way until ``batch`` is there.

    ``began`` and ``ended`` are numbers from one counter of all replays, so any two reads can be compared. The read
    sees every change in ``committed``.
    """

    protocol_version: int
    began: int
    committed: list[Change]
    ended: int = 0
    batch: Batch | None = None


class HeldMessages:
    """The slices held after ``cursor``, the read they come from, and the read that follows it."""

    def __init__(self, cursor: str) -> None:
        #: the last topic that was delivered or skipped
        self.cursor = cursor
        self.slices: deque[Slice] = deque()
        #: by topic: the last change that the client was sent live
        self.marks: dict[str, Change] = {}
        self._left_out = 0  # messages behind the held slices that are too long for the client
        self._current: BatchRead | None = None
        self._next: BatchRead | None = None

    @property
    def is_reading(self) -> bool:
        """Whether the answer to a read is awaited."""
        return self._next is not None and self._next.batch is None

    @property
    def is_complete(self) -> bool:
        """Whether the store has no more messages after the current batch."""
        return self._next is None and self._current is not None and _answer(self._current).done

    @property
    def read_after(self) -> str:
        """The topic after which the next read begins."""
        return self.cursor if self._current is None else _answer(self._current).after

    @property
    def protocol_version(self) -> int:
        """The protocol version of the held slices."""
        assert self._current is not None
        return self._current.protocol_version

    @property
    def count(self) -> int:
        """How many messages are held."""
        ahead = () if self._next is None or self._next.batch is None else self._next.batch.slices
        return sum(piece.count for piece in (*self.slices, *ahead))

    def __bool__(self) -> bool:
        """Tell whether there is anything to give up: messages, or a read under way."""
        return bool(self.slices) or self._next is not None

    def read_began(self, read: BatchRead) -> None:
        """Await the answer to a read."""
        self._next = read

    def read_failed(self, read: BatchRead) -> bool:
        """Forget a read that failed. Returns False for a read that was given up."""
        if self._next is not read:
            return False
        self._next = None
        return True

    def arrived(self, read: BatchRead, batch: Batch, ended: int) -> bool:
        """Keep the answer to a read. Returns False for a read that was given up."""
        if self._next is not read:
            return False
        read.batch = batch
        read.ended = ended
        return True

    def take_next(self) -> None:
        """Begin to deliver the next batch, if its answer is there and the current one has been delivered."""
        read = self._next
        if self.slices or read is None or read.batch is None:
            return
        self._current, self._next = read, None
        # Delivered bytes cannot be given up any more: they stay in this process while the client does not read its
        # socket. So a slice of large messages is delivered in portions.
        for piece in read.batch.slices:
            self.slices.extend(portions(piece, SLICE_BYTES, read.protocol_version))
        self._left_out = read.batch.left_out
        # These marks are dropped only now: until here, slices of an older read were held.
        self.forget(read.committed)
        self.pass_delivered()

    def take_slice(self) -> Slice:
        """Take the first slice, without the messages whose topics are marked."""
        piece = self.slices.popleft()
        return without(piece, self.marks, self.protocol_version) if self.marks else piece

    def keep_rest(self, piece: Slice, count: int) -> Slice:
        """Return the first ``count`` messages of a slice that was taken, and hold the rest of it."""
        piece, rest = cut(piece, count, self.protocol_version)
        self.slices.appendleft(rest)
        return piece

    def pass_delivered(self) -> None:
        """Move the cursor to the end of the scan once its slices are delivered: no topic before it can match."""
        if not self.slices:
            self.cursor = max(self.cursor, self.read_after)

    def take_left_out(self) -> int:
        """Return how many messages behind the slices are too long for the client, once all slices are delivered."""
        if self.slices:
            return 0
        left_out, self._left_out = self._left_out, 0
        return left_out

    def bytes_to_read_ahead(self, max_batch_bytes: int) -> int:
        """Return how many bytes the next batch may have; 0 if it is not to be read now."""
        if self._next is not None or self.is_complete:
            return 0
        left = min(_AHEAD_BYTES, max_batch_bytes) - sum(len(piece.packets) for piece in self.slices)
        return left if left >= _LEAST_AHEAD_BYTES else 0

    def give_up(self) -> None:
        """Give up all held messages, and any read under way. The next read begins at the cursor."""
        self.slices.clear()
        self._left_out = 0
        self._current = self._next = None

    def give_up_reading(self) -> None:
        """Ignore the answer to the read that is under way."""
        if self.is_reading:
            self._next = None

    def may_be_older(self, other: HeldMessages) -> bool:
        """Tell whether a message held here may be older than the messages that another replay is about to deliver.

        False only if the read here began after the other replay's read had ended, or if the reads have no topics in
        common.
        """
        # Of two reads held here, the one that began first decides.
        read = self._current if self.slices else self._next
        if read is None or (other._current is not None and read.began > other._current.ended):
            return False
        last = self._next or read
        # The topics that a read under way will find are not known yet.
        return last.batch is None or other.cursor < last.batch.after

    def committed(self) -> list[Change]:
        """Return the marked changes that every read from now on sees."""
        return [change for change in self.marks.values() if change.ticket.settled and change.ticket.failure is None]

    def forget(self, changes: list[Change]) -> None:
        """Drop the marks of these changes. A later change of the same topic keeps its mark."""
        for change in changes:
            if self.marks.get(change.topic) is change:
                del self.marks[change.topic]


def _answer(read: BatchRead) -> Batch:
    assert read.batch is not None
    return read.batch
