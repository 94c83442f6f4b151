"""One replay: the retained messages that match a new subscription, read and delivered while the client has room.

How it works. A replay is a cursor over the store, not a list of entries in a queue. Each step, one per reactor turn:

    1. ask the delivery how much room the client has; without room, rest
    2. when no slice is held, take the batch that was read ahead, or read one: the rows after the cursor that match
       (a local database answers at once, and its batch is about one slice)
    3. take the first slice, without copies that are stale, and as much of it as room and rates allow
    4. deliver it, move the cursor to its last topic, and queue for the next step

So a slow client costs one batch, a client that stopped reading costs nothing after a second, and nothing is dropped.

| state | waits for | woken by |
|---|---|---|
| COMMITTING | the commit of all changes accepted before the SUBSCRIBE | the ticket of ``store.flushed()`` |
| READY | its turn | ``turns``: ``step`` |
| READING | a batch that it needs now | the answer of the store |
| RESTING | room: the socket's buffer, the in-flight window, earlier messages | the connection: ``wake`` |
| THROTTLED | the rate of its client, then the rate of all replays | ``RateLimiter``: ``proceed`` |
| OVER | nothing | |

**Never stale after fresh.** A client must not get an older message of a topic after a newer one. A replay hears of the
changes of its topics from its first moment on. After a second at rest it holds no message, so it stops to listen, and
costs the publishers nothing. When there is room again it listens first, then waits for the commit of all changes that
it missed, then reads. Say ``c`` subscribes to ``plant/#`` with QoS 1, the replay sees rows up to revision 100, and it
holds ``plant/a`` (revision 40), ``plant/b`` (50) and ``plant/c`` (60):

- A client publishes to ``plant/b``: revision 107, sent live to ``c``. The held copy (50) is dropped, and later reads
  leave out the new row, since 107 is above that. ``c`` gets 107 once.
- An operator sets ``plant/b`` quietly: revision 107, sent live to no client. The replay sees rows up to 107 now, so
  later reads include the row. Until the commit the held copy counts and may be delivered; after the commit the held
  batch is read again. ``c`` gets 107, perhaps 50 before it, never 50 after it.
- As before, but with QoS 2: a copy (50) delivered now would leave after the *next* commit, which is the operator's.
  So it is not delivered before that change is committed (``_would_leave_late``).
- Another node writes ``plant/b``. A later read finds the row, of any revision. In a cluster the change is in this feed
  once ``c`` is sent it live; the copy is dropped then, and the topic stays marked, since a later read finds the row
  again. Before a batch is delivered, all changes are sent live that it may contain (:mod:`holdfast.cluster`).
  When two replays of one client overlap, the one that read earlier reads again (``_reread_if_older``), and neither
  delivers while an earlier message of the other still waits to leave (``_would_overtake``).

The invariant: for every topic, the messages that leave for the client have rising revisions.

**Expired and forbidden messages** are left out by the rules of :mod:`holdfast.retained.rules`. Which topics the
subscriber may receive, and whether each publisher has to be judged, is looked up for each read. When the answers may
change, held messages are given up and read again, so the rest of a replay follows the new rules.

Tried and left out: messages in the order of publication (one more index over all rows, and positions that move);
reading in a thread for SQLite (slower by an order of magnitude); waking replays by polling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from attrs import define, evolve
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast.core.messages import has_expired
from holdfast.core.tickets import StorageFailure
from holdfast.core.topics import overlap
from holdfast.replay.interfaces import IDelivery, IReplayRegistry, ReplayForm, ReplayState, ReplayStatus
from holdfast.replay.pace import FlowControl
from holdfast.retained.feed import Change, ChangeFeed
from holdfast.retained.source_check import CLEAR, SourceCheck, Stretch
from holdfast.retained.store.interfaces import IReplaySource
from holdfast.retained.store.slices import cut, short_slices, without
from holdfast.retained.store.values import Batch, QueuedRows, Selection, Slice
from holdfast.retained.store.wildcards import next_low, ranges_of

#: The most messages of a slice whose publishers are judged: some microseconds each.
_JUDGED_AT_ONCE = 250
#: With less room, this many messages are read: a statement costs as much as some hundred rows.
_LEAST_ROWS = 64
#: the room for a batch that is read ahead
_UNKNOWN_ROOM = 1 << 30


class Replay:
    """Delivers the retained messages that match one Topic Filter, in topic order, after the topic ``cursor``."""

    def __init__(
        self,
        topic_filter: str,
        delivery: IDelivery,
        *,
        number: int,
        store: IReplaySource,
        feed: ChangeFeed,
        flow: FlowControl,
        registry: IReplayRegistry[Replay],
        now: Callable[[], int],
        sources: SourceCheck | None = None,
        cursor: str = "",
        start: int = 0,
        queued: QueuedRows | None = None,
    ) -> None:
        """Read the rows up to the revision ``start`` (0: now), except the ``queued`` ones."""
        self.topic_filter = topic_filter
        self.client_id = delivery.client_id
        self.number = number
        self.delivered = 0
        self.held = HeldMessages(cursor)
        self._delivery = delivery
        self._store = store
        self._feed = feed
        self._flow = flow
        self._registry = registry
        self._now = now
        self._sources = sources
        self._epoch: object = (
            None  # of the subscriber's permissions, and of the verdicts on publishers, at the last read
        )
        self._began = self._progressed = now()
        self._rows = VisibleRows(topic_filter, store.node, start or store.next_revision(), queued)
        self._state = ReplayState.COMMITTING
        # The replay listens before it waits, so that no change falls between the wait and the first read.
        self._listening: int | None = feed.listen(self._changed, topic_filter)
        store.flushed(topic_filter).when_settled(self._committed)

    @property
    def state(self) -> ReplayState:
        """The present state."""
        return self._state

    @property
    def _is_over(self) -> bool:
        """Whether nothing more will be delivered."""
        return self._state is ReplayState.OVER

    @property
    def cursor(self) -> str:
        """The last topic that was delivered or skipped."""
        return self.held.cursor

    @property
    def age(self) -> float:
        """Seconds since its beginning."""
        return (self._now() - self._began) / 1000

    @property
    def idle(self) -> float:
        """Seconds since its last message, or since its beginning."""
        return (self._now() - self._progressed) / 1000

    @property
    def is_complete(self) -> bool:
        """Whether everything is delivered."""
        return self.held.is_complete and not self.held.slices

    def status(self) -> ReplayStatus:
        """Return the progress and the state."""
        return ReplayStatus(
            number=self.number,
            client_id=self.client_id,
            topic_filter=self.topic_filter,
            delivered=self.delivered,
            held=self.held.count,
            cursor=self.cursor,
            state=self._state,
            age=self.age,
        )

    def wake(self) -> None:
        """Look for room again."""
        if self._state is not ReplayState.RESTING:
            return
        if self._listening is None:
            self._listen_again()
        else:
            self._get_ready()

    def proceed(self) -> None:
        """Continue: the replay has got the tokens that it waited for."""
        if self._state is ReplayState.THROTTLED:
            self._get_ready()

    def release(self) -> bool:
        """Give up the held messages if there is still no room for them, and hear no changes until there is room.

        Returns whether there were any messages.
        """
        if self._state is not ReplayState.RESTING or self._listening is None:
            return False
        held = bool(self.held)
        self.reread()
        self._forget_marks()
        self._feed.forget(self._listening)
        self._listening = None
        return held

    def reread(self) -> None:
        """Give up the held messages, and read them again in the form that the delivery then asks for.

        The replay keeps its place in a queue: a client that makes it read again and again does not delay it.
        """
        self.held.give_up()
        self._stop_awaiting()

    def forget_queued(self) -> None:
        """Let later reads see the rows that were left out because the client had them in its queue."""
        self._rows.queued = None

    def include(self, revision: int, topic: str | None = None) -> None:
        """Let later reads see changes up to a revision, though this client is not sent them live.

        ``topic`` is the topic that changes, None for any. :meth:`included` has to follow.
        """
        if self._is_over:
            return
        self._rows.await_commit(revision, topic)
        if self._rows.raise_to(revision):
            # Later reads now also see live changes below the revision. Those may still wait in the client's queue.
            self._delivery.yield_to_queue()
            # A read under way used the lower revision. It may miss the old row and leave out the new one.
            self.held.give_up_reading()
            self._stop_awaiting()

    def included(self, revision: int, topic: str | None = None) -> None:
        """Take note that a change given to :meth:`include` can be read now, or failed."""
        if self._rows.committed(revision, topic):
            self.wake()

    def cancel(self) -> None:
        """End at once, and end the Network Connection: otherwise the client would think that the replay is complete."""
        if not self._is_over:
            self.stop()
            self._delivery.cancelled()

    def stop(self) -> None:
        """End at once: the replay reads and delivers nothing more, and frees everything that it holds."""
        if self._is_over:
            return
        self._enter(ReplayState.OVER)
        if self._listening is not None:
            self._feed.forget(self._listening)
            self._listening = None
        self._registry.ended(self)
        self.held.give_up()
        self.held.marks.clear()
        self._rows.forget()

    def step(self) -> bool:
        """Deliver one slice; if none is held, read a batch first. Returns whether another step can follow at once."""
        if self._state is not ReplayState.READY:
            return False
        room = self._delivery.room()
        if room <= 0:
            return self._rest()
        # One moment for the whole step: the check of the slice and the next statement must agree.
        now = self._now()
        if self.held and self._epoch != self._present_epoch():
            self.reread()
        self._take_next(now)
        if not self.held.slices and not self.held.is_complete:
            self._enter(ReplayState.READING)
            if not self.held.is_reading:  # a batch that is being read ahead is needed now
                most_bytes = min(self._flow.settings.max_batch_bytes, self._delivery.most_bytes())
                if self._store.reads_slices:
                    most_bytes = min(most_bytes, self._delivery.slice_bytes())
                self._read(now, most_bytes, room)
            if self.state is not ReplayState.READY:
                return False
            # A local database has answered already. A step is one read and one slice, so that a slice needs one turn.
            self._take_next(now)
        if self.held.slices:
            # Both wait for a commit, not for room. The delivery or included() wakes the replay then.
            return self._rest() if self._would_overtake() or self._would_leave_late() else self._deliver(room, now)
        if self.held.is_complete:
            if not self._delivery.conclude():
                return self._rest()
            self.stop()
            self._delivery.finished()
            return False
        return True

    def _take_next(self, now: int) -> None:
        self.held.take_next(self._delivery.slice_bytes())
        self._note_left_out(self.held.take_left_out())
        if self._has_expired(now):
            self.reread()

    def _has_expired(self, now: int) -> bool:
        """Tell whether a message of the first slice has expired since it was read: the client had no room for it."""
        return bool(self.held.slices) and has_expired(self.held.slices[0].soonest_expiry, now)

    def _rest(self) -> bool:
        """Do nothing until there is room. A replay at rest holds no tokens and no place in a queue."""
        self._enter(ReplayState.RESTING)
        self._flow.stalled.add(self)
        if self._flow.is_limited:
            self._flow.leave_queues(self)
        return False

    def _deliver(self, room: int, now: int) -> bool:
        held = self.held
        piece = held.take_slice()
        if piece.publishers and self._sources is not None:
            keep = self._sources.kept_or_cleared if self._store.tells_clears else self._sources.kept
            piece = keep(piece, held.protocol_version)
        if not piece.count:  # all of its messages were stale, or are withheld
            held.cursor = piece.last
            self._note_left_out(piece.left_out)
            return self._goes_on()
        room = min(room, self._delivery.fitting(piece))
        if not room:
            held.slices.appendleft(piece)
            return self._rest()
        # The tokens are taken last: stale messages cost none, and no more are taken than the client has room for.
        if self._flow.is_limited:
            room = self._flow.grant(self, min(room, piece.count))
            if not room:
                held.slices.appendleft(piece)
                self._enter(ReplayState.THROTTLED)
                return False
        if piece.count > room:
            piece = held.keep_rest(piece, room)
        if self._store.shared:
            # Before the cursor moves: it tells the others which topics are about to be delivered.
            for other in self._registry.others(self):
                other._reread_if_older(self, piece.last)
        if not self.delivered:
            self._registry.began(self)
        self._progressed = now
        self.delivered += piece.count
        self._registry.delivered += piece.count
        held.cursor = piece.last
        if self._store.reads_ahead:
            # Before the delivery: the database works while the packets are written.
            most_bytes = held.bytes_to_read_ahead(self._flow.settings.max_batch_bytes)
            if most_bytes:
                self._read(now, most_bytes, _UNKNOWN_ROOM)
        self._note_left_out(piece.left_out)
        self._delivery.deliver(piece)
        return self._goes_on()

    def _goes_on(self) -> bool:
        """Pass the end of a delivered batch. Returns whether another step can follow: delivering may have ended all."""
        if self._state is not ReplayState.READY:
            return False
        self.held.pass_delivered()
        self._note_left_out(self.held.take_left_out())
        return True

    def _note_left_out(self, count: int) -> None:
        if count:
            self._delivery.left_out(count)

    def _would_overtake(self) -> bool:
        """Tell whether the next slice may hold a newer message of a topic whose older message still waits to leave."""
        return self._store.shared and self._delivery.is_leaving(self.cursor, self.held.slices[0].last)

    def _would_leave_late(self) -> bool:
        """Tell whether the next slice might leave only after a commit that replaces one of its messages."""
        if not self._rows or not self._delivery.awaits_commits():
            return False
        return self._rows.is_changing(self.cursor, self.held.slices[0].last)

    def _reread_if_older(self, other: Replay, last: str) -> None:
        """Read again if the held messages may be older than the messages that another replay of this client holds.

        The other one is about to deliver messages up to the topic ``last``, which may match this Topic Filter too.
        """
        if last > self.cursor and self.held.may_be_older(other.held) and overlap(self.topic_filter, other.topic_filter):
            self.reread()

    def _read(self, now: int, most_bytes: int, room: int) -> None:
        form = self._delivery.form()
        self._epoch = self._present_epoch()
        after = self.held.read_after
        stretch = self._stretch(form, after)
        selection = self._rows.selection(form, now, stretch)
        # Settings count from the next read on, so they are looked up here and not kept.
        settings = self._flow.settings
        rows = settings.batch_read_number
        slice_rows = settings.batch_deliver_number or rows
        if stretch.looked:
            slice_rows = min(slice_rows, _JUDGED_AT_ONCE)
        if not self._store.reads_ahead:  # the answer comes at once, and its messages are delivered at once
            rows = min(rows, max(room, _LEAST_ROWS))
        read = BatchRead(form.protocol_version, self._registry.next_count(), self.held.committed())
        self.held.read_began(read)
        reading: Deferred[Batch] = self._store.read(selection, after, rows, slice_rows, most_bytes, form.detailed)
        reading.addCallbacks(self._arrived, self._unreadable, callbackArgs=(read,), errbackArgs=(read,))

    def _present_epoch(self) -> object:
        return self._delivery.epoch, None if self._sources is None else self._sources.rule.epoch

    def _stretch(self, form: ReplayForm, after: str) -> Stretch:
        """Return how far the next read may go, and whether it has to look at the publishers."""
        if self._sources is None:
            return CLEAR
        if not self._store.surveyed:
            return self._sources.unsurveyed
        low = next_low(ranges_of(self.topic_filter, form.within), after)
        return CLEAR if low is None else self._sources.stretch(low)

    def _arrived(self, batch: Batch, read: BatchRead) -> None:
        if self.held.arrived(read, batch, self._registry.next_count()) and self._state is ReplayState.READING:
            self._get_ready(goes_on=True)

    def _unreadable(self, failure: Failure, read: BatchRead) -> None:
        # A batch that failed while it was read ahead is not needed yet. It is read once more when it is needed.
        if self.held.read_failed(read) and self._state is ReplayState.READING:
            self.stop()
            self._delivery.failed(failure.value or RuntimeError(failure.getErrorMessage()))

    def _committed(self, _failure: StorageFailure | None) -> None:
        """Go on: all changes accepted before the SUBSCRIBE, or missed at rest, are committed or refused."""
        if self._state is ReplayState.COMMITTING:  # else it was stopped meanwhile
            if self._store.shared:
                self._forget_marks()  # messages of other nodes that came meanwhile may be older than their rows
            self._get_ready()

    def _enter(self, state: ReplayState) -> None:
        self._registry.throttled += (state is ReplayState.THROTTLED) - (self._state is ReplayState.THROTTLED)
        self._state = state

    def _listen_again(self) -> None:
        """Hear of changes again. Those that were missed have to be committed before the next read."""
        self._enter(ReplayState.COMMITTING)
        self._listening = self._feed.listen(self._changed, self.topic_filter)
        if self._rows.raise_to(self._registry.unsent_revision) or self._store.shared:
            self._delivery.yield_to_queue()  # as in include(); other nodes' changes were missed as well
        self._store.flushed(self.topic_filter).when_settled(self._committed)

    def _get_ready(self, goes_on: bool = False) -> None:
        self._enter(ReplayState.READY)
        self._flow.turns.enter(self.client_id, self, first=goes_on)

    def _stop_awaiting(self) -> None:
        """Take a step again if the state was READING: the answer is not awaited any more."""
        if self._state is ReplayState.READING:
            self._get_ready()

    def _changed(self, change: Change) -> None:
        """Hear of a change: copies of its topic that were read before are stale now."""
        topic = change.topic
        # A topic up to the cursor has been delivered. The client gets its newer message live, or not at all.
        if topic <= self.cursor:
            return
        if not change.live:
            self.include(change.revision, topic)
            change.ticket.when_settled(lambda failure: self._stored(change, failure))
            return
        held = self.held
        held.marks[topic] = change
        if len(held.marks) > MOST_MARKS:
            # The next read sees all committed changes, so their marks are dropped.
            self.reread()
            self._forget_marks()

    def _forget_marks(self) -> None:
        """Drop the marks of committed changes, of other nodes too: nothing is held.

        Later reads see the rows of other nodes, whatever their revision. So the live messages leave first.
        """
        held = self.held
        held.forget(held.committed())
        if self._store.shared and held.forget_others():
            self._delivery.yield_to_queue()

    def _stored(self, change: Change, failure: StorageFailure | None) -> None:
        """Read again after a commit: the held copy is older than a row that this client was not sent live."""
        if failure is None and not self._is_over and change.topic > self.cursor:
            self.reread()
        self.included(change.revision, change.topic)


# The messages that one replay has read and not delivered yet, and the changes that make copies of them stale.
#
# How it works. At most two reads of the store count: the *current* one, whose slices are being delivered, and the
# *next* one, which is under way or answered. An answer to any other read is ignored: the replay has given it up.
#
# A topic that changed while the replay runs is *marked*. A slice loses its copies of marked topics before it is
# delivered, because the client has been sent the newer message live. A mark is dropped once its change is committed and
# no read that began before that commit is held:
#
#     read 1 begins            plant/a, plant/b, plant/c
#     plant/b changes          marked; the copy of read 1 is stale
#     the change is committed
#     read 2 begins            the statement sees the change: read 2 needs no mark
#     read 2 becomes current   nothing of read 1 is held any more; the mark is dropped
#
# The invariant: if a held copy is older than a change that the client was sent live, its topic is marked.
# A failed commit leaves its mark to the end of the replay: the client may have been sent a message that no row has.


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

    def take_next(self, slice_bytes: int) -> None:
        """Begin to deliver the next batch, if its answer is there and the current one has been delivered.

        It is delivered in slices of at most ``slice_bytes``.
        """
        read = self._next
        if self.slices or read is None or read.batch is None:
            return
        self._current, self._next = read, None
        # Delivered bytes cannot be given up any more: they stay in this process while the client does not read its
        # socket. So a slice of large messages is delivered in parts.
        for piece in read.batch.slices:
            self.slices.extend(short_slices(piece, slice_bytes, read.protocol_version))
        self._left_out = read.batch.left_out
        read.batch = evolve(read.batch, slices=())  # else the bytes of a slice would stay until the next read
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
        """Return the marked changes that every read from now on sees, or leaves out because they were sent live."""
        return [
            change
            for change in self.marks.values()
            if change.ticket.settled and change.ticket.failure is None and not change.is_foreign
        ]

    def forget_others(self) -> bool:
        """Drop the marks of changes of other nodes. Return whether there were any."""
        foreign = [change for change in self.marks.values() if change.is_foreign]
        self.forget(foreign)
        return bool(foreign)

    def forget(self, changes: list[Change]) -> None:
        """Drop the marks of these changes. A later change of the same topic keeps its mark."""
        for change in changes:
            if self.marks.get(change.topic) is change:
                del self.marks[change.topic]


def _answer(read: BatchRead) -> Batch:
    assert read.batch is not None
    return read.batch


# The rows that the reads of one replay see, and the changes that they must see though the client is not sent them.


class VisibleRows:
    """The rows of a Topic Filter: those of this ``node`` up to the revision ``newest``, except the ``queued`` ones."""

    __slots__ = ("_unsent", "newest", "node", "queued", "topic_filter")

    def __init__(self, topic_filter: str, node: int, newest: int, queued: QueuedRows | None) -> None:
        self.topic_filter = topic_filter
        self.node = node
        self.newest = newest
        self.queued = queued
        #: revisions and topics (None for any) of uncommitted changes that the client is not sent live
        self._unsent: set[tuple[int, str | None]] = set()

    def raise_to(self, revision: int) -> bool:
        """Let later reads see changes up to this revision. Return False if they do already."""
        if revision <= self.newest:
            return False
        self.newest = revision
        return True

    def await_commit(self, revision: int, topic: str | None) -> None:
        """Note an uncommitted change (of any topic: None) that the client is not sent live."""
        self._unsent.add((revision, topic))

    def committed(self, revision: int, topic: str | None) -> bool:
        """Note that the change can be read now, or failed. Return False if it was not awaited."""
        if (revision, topic) not in self._unsent:
            return False
        self._unsent.remove((revision, topic))
        return True

    def is_changing(self, after: str, last: str) -> bool:
        """Tell whether such a change of a topic above ``after`` and up to ``last`` is not committed yet."""
        return any(topic is None or after < topic <= last for _, topic in self._unsent)

    def forget(self) -> None:
        """Await no commit any more."""
        self._unsent.clear()

    def selection(self, form: ReplayForm, now: int, stretch: Stretch) -> Selection:
        """Return what the next read selects, in this form; ``now`` is in milliseconds since the epoch."""
        return Selection(
            self.topic_filter,
            form.protocol_version,
            self.newest,
            self.node,
            now,
            form.except_client,
            form.max_packet_size,
            self.queued,
            form.within,
            stretch.until,
            stretch.looked,
            form.facts,
        )

    def __bool__(self) -> bool:
        """Tell whether a commit is awaited."""
        return bool(self._unsent)
