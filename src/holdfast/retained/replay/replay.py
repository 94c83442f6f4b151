"""One replay: the retained messages that match a new subscription, read and delivered as the client has room.

A replay is a cursor over the store, not entries in a queue: nothing is read before there is room for it, so a slow
client costs one batch, one that has stopped reading soon not even that, and nothing is ever dropped. Where reading
takes its time elsewhere (``reads_ahead``), a client that takes what it is given finds the next batch read when the
present one has been delivered.

Never stale after fresh: the replay hears the change feed from its start. A change handed to this client live marks
its topic, and a copy of the topic read before is dropped; the changed row itself is left out of later reads by its
revision. A change *not* handed live lets later reads include it instead, and what was read before is read again once
it is committed; until then the older message counts, and is not withheld, unless it would leave after that commit only,
as with QoS 2. That begins before the first read: a replay that waits for its place among those that run hears the feed
already.
Where other nodes change what is retained, which is not in the feed, a batch is also read again when another replay to
the same Client has delivered any of it from a later read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast.retained.replay.change_feed import Change, ChangeFeed
from holdfast.retained.replay.flow_control import FlowControl
from holdfast.retained.replay.interfaces import IDelivery, ReplayForm
from holdfast.retained.replay.status import ReplayState, ReplayStatus
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.slices import cut, portions, without
from holdfast.retained.store.values import Batch, Selection, Slice
from holdfast.tickets import StorageFailure
from holdfast.topics import matches, overlap

#: Marks of one replay above which its held batch is given up and read again, so that a stalled client costs little.
_MOST_MARKS = 1000
#: Bytes delivered at once, for what is delivered to a client that has stopped reading stays in this process.
_MOST_BYTES = 128 << 10
#: Bytes of packets that what is held and what is read ahead may have together, but for a single larger message.
_AHEAD = 256 << 10
#: The next batch is read ahead once this much is left for it: a thousand ordinary messages.
_ENOUGH_AHEAD = 192 << 10


class Replay:
    """Delivers the retained messages matching one Topic Filter, in topic order, after the topic ``cursor``."""

    def __init__(
        self,
        topic_filter: str,
        delivery: IDelivery,
        store: IRetainedStore,
        feed: ChangeFeed,
        control: FlowControl,
        now: Callable[[], int],
        cursor: str = "",
    ) -> None:
        self.topic_filter = topic_filter
        self.client_id = delivery.client_id
        self.cursor = cursor
        self.delivered = 0
        self._delivery = delivery
        self._store = store
        self._feed = feed
        self._control = control
        self._turns = control.turns
        self._now = now
        self._began = now()
        self._read_after = cursor
        self._everything_read = False
        self._held: deque[Slice] = deque()
        self._form: ReplayForm | None = None
        self._next: Batch | None = None  # read ahead
        self._reading = 0  # counts reads, so that the answer to a given-up read is recognised
        self._read_from = self._read_until = 0  # moments: of the last read
        self._held_from = self._held_until = 0  # and of the one that what is held comes from
        self._asked = False  # whether an answer is on its way that has not been given up
        self._passing: list[Change] = []  # committed before the last read: its answer needs no marks of these
        self._marks: dict[str, Change] = {}
        #: changes to come that this client is not handed live: their revisions and topics, None for any
        self._coming: set[tuple[int, str | None]] = set()
        self._start = store.next_revision()
        self._state = ReplayState.COMMITTING
        self._listening = feed.listen(self._changed)
        self.number = control.begin(self)
        store.flushed().when_settled(self._begin)

    @property
    def over(self) -> bool:
        """Whether nothing more will be delivered."""
        return self._state is ReplayState.OVER

    @property
    def state(self) -> ReplayState:
        """What it is doing."""
        return self._state

    def status(self) -> ReplayStatus:
        """Return how it stands."""
        age = (self._now() - self._began) / 1000
        ahead = self._next.slices if self._next is not None else ()
        held = sum(piece.count for piece in (*self._held, *ahead))
        return ReplayStatus(
            self.number, self.client_id, self.topic_filter, self.delivered, held, self.cursor, self._state, age
        )

    def wake(self) -> None:
        """There may be room again."""
        if self._state is ReplayState.RESTING:
            self._get_ready()

    def proceed(self) -> None:
        """Its place in the line, or in the queue for a rate, has come."""
        if self._state in (ReplayState.WAITING, ReplayState.THROTTLED):
            self._get_ready()

    def release(self) -> bool:
        """Give up what is held, if there is still no room for it: a client that has stopped reading costs little."""
        if self._state is not ReplayState.RESTING:
            return False
        self.reread()
        return True

    def reread(self) -> None:
        """Give up what has been read and not delivered; it is read again, in the form then asked for.

        A place in a queue is kept: who makes a replay read again and again cannot keep it from its turn.
        """
        self._held.clear()
        self._next = None
        self._read_after = self.cursor
        self._everything_read = False
        self._give_up_reading()

    def include(self, revision: int, topic: str | None = None) -> None:
        """Let reads from now on see what is stored up to a revision, though it is not handed to this client live.

        They see others too that it was handed before that one, and may not have been sent yet. ``topic`` is the one
        that is changed, None for any; until :meth:`included`, what the change replaces is not sent where that would
        leave after it only.
        """
        if self._state is ReplayState.OVER:
            return
        self._coming.add((revision, topic))
        if revision > self._start:
            self._start = revision
            self._delivery.yield_to_queue()
            self._give_up_reading()  # it may leave out a topic whose older message is replaced meanwhile

    def included(self, revision: int, topic: str | None = None) -> None:
        """What was to come with a revision can be read, or never will be."""
        if (revision, topic) in self._coming:
            self._coming.remove((revision, topic))
            self.wake()

    def cancel(self) -> None:
        """End at once, and the Network Connection with it: nobody takes what has come for everything."""
        if self._state is not ReplayState.OVER:
            self.stop()
            self._delivery.cancelled()

    def stop(self) -> None:
        """End at once: nothing more is read or delivered, nothing stays behind."""
        if self._state is ReplayState.OVER:
            return
        self._state = ReplayState.OVER
        self._feed.forget(self._listening)
        self._control.end(self)
        self._held.clear()
        self._next = None
        self._marks.clear()
        self._coming.clear()
        self._passing.clear()

    def step(self) -> bool:
        """Read a batch when none is held, then deliver one slice of it, if there is room."""
        if self._state is not ReplayState.READY:
            return False
        room = self._delivery.room()
        if room <= 0:
            return self._rest()
        now = self._now()
        if not self._held and self._next is not None:
            self._take(self._next)
        if self._held and 0 < self._held[0].soonest_expiry <= now:
            self.reread()  # a message has expired while it waited for room
        if self._held:
            return self._rest() if self._would_overtake() or self._would_be_late() else self._deliver(room, now)
        if self._everything_read:
            self.stop()
            self._delivery.finished()
        else:
            self._state = ReplayState.READING
            if not self._asked:
                self._read(now, self._control.flow.max_batch_bytes)
        return False

    def _rest(self) -> bool:
        """Do nothing until there is room."""
        self._state = ReplayState.RESTING
        if self._held or self._next or self._asked:
            self._control.resting.note(self)
        if self._control.limited:
            self._control.leave_queues(self)
        return False

    def _deliver(self, room: int, now: int) -> bool:
        assert self._form is not None
        piece = self._held.popleft()
        if self._marks:
            last = piece.last
            piece = without(piece, self._marks, self._form.protocol_version)
            if not piece.count:
                self.cursor = last
                return self._goes_on()
        if self._control.limited:
            room = self._control.grant(self, min(room, piece.count))
            if not room:
                self._held.appendleft(piece)
                self._state = ReplayState.THROTTLED
                return False
        if piece.count > room:
            piece, rest = cut(piece, room, self._form.protocol_version)
            self._held.appendleft(rest)
        if self._store.shared:
            for other in self._control.others(self):
                other._outrun(self, piece.last)
        self.delivered += piece.count
        self.cursor = piece.last
        if self._store.reads_ahead and not (self._asked or self._everything_read or self._next):
            self._read_ahead(now)
        self._delivery.deliver(piece)
        return self._goes_on()

    def _would_overtake(self) -> bool:
        """Tell whether what comes next may be newer, by another node's change, than what has still to leave."""
        return self._store.shared and self._delivery.is_leaving(self.cursor, self._held[0].last)

    def _would_be_late(self) -> bool:
        """Tell whether what comes next might leave only when it is known to be replaced: the next commit does that."""
        if not self._coming or not self._delivery.awaits_commits():
            return False
        last = self._held[0].last
        return any(topic is None or self.cursor < topic <= last for _, topic in self._coming)

    def _outrun(self, other: Replay, last: str) -> None:
        """Another replay to this Client is about to deliver what matches this one's filter too, up to a topic.

        What other nodes change is not in the feed: what was not certainly read later than that may be older.
        """
        if last <= self.cursor or (self._held_from if self._held else self._read_from) > other._held_until:
            return
        read_to = self._read_after if self._next is None else self._next.after
        held = (bool(self._held) or self._next is not None) and other.cursor < read_to
        if (self._asked or held) and overlap(self.topic_filter, other.topic_filter):
            self.reread()

    def _goes_on(self) -> bool:
        """Go to the next step; a batch delivered in full moves the cursor to where its scan ended."""
        if not self._held:
            self.cursor = max(self.cursor, self._read_after)
        return self._state is ReplayState.READY

    def _read_ahead(self, now: int) -> None:
        most = min(_AHEAD, self._control.flow.max_batch_bytes)
        left = most - sum(len(piece.packets) for piece in self._held)
        if left >= _ENOUGH_AHEAD:
            self._read(now, left)

    def _read(self, now: int, most_bytes: int) -> None:
        self._passing = self._committed()
        form = self._form = self._delivery.form()
        selection = Selection(
            self.topic_filter,
            form.protocol_version,
            self._start,
            self._store.node,
            now,
            form.except_client,
            form.max_packet_size,
        )
        flow = self._control.flow
        rows = flow.batch_read_number
        self._asked = True
        self._reading += 1
        self._read_from = self._control.moment()
        reading: Deferred[Batch] = self._store.read(
            selection, self._read_after, rows, flow.batch_deliver_number or rows, most_bytes, form.detailed
        )
        number = self._reading
        reading.addCallbacks(self._arrived, self._unreadable, callbackArgs=(number,), errbackArgs=(number,))

    def _arrived(self, batch: Batch, number: int) -> None:
        if self._is_over_or_given_up(number):
            return
        self._read_until = self._control.moment()
        self._asked = False
        self._next = batch
        if self._state is ReplayState.READING:
            self._get_ready()

    def _take(self, batch: Batch) -> None:
        """Go on with a batch, all before it having been delivered."""
        assert self._form is not None
        self._next = None
        self._held_from, self._held_until = self._read_from, self._read_until
        for one in batch.slices:
            self._held.extend(portions(one, _MOST_BYTES, self._form.protocol_version))
        self._read_after = batch.after
        self._everything_read = batch.done
        self._forget(self._passing)
        if not self._held:
            self.cursor = max(self.cursor, batch.after)

    def _unreadable(self, failure: Failure, number: int) -> None:
        if self._is_over_or_given_up(number):
            return
        self._asked = False
        if self._state is ReplayState.READING:
            self.stop()
            self._delivery.failed(failure.value or RuntimeError(failure.getErrorMessage()))
        # else it is not needed yet, and is read once more when it is

    def _is_over_or_given_up(self, number: int) -> bool:
        return self._state is ReplayState.OVER or number != self._reading

    def _begin(self, _failure: StorageFailure | None) -> None:
        if self._state is not ReplayState.COMMITTING:
            return
        if self._control.line.enter(self):
            self._get_ready()
        else:
            self._state = ReplayState.WAITING

    def _get_ready(self) -> None:
        self._state = ReplayState.READY
        self._turns.join(self)

    def _changed(self, change: Change) -> None:
        """Hear of a change: what was read of its topic before is stale from now on."""
        topic = change.topic
        if topic <= self.cursor or not matches(self.topic_filter, topic):
            return
        if not change.live:
            self.include(change.revision, topic)
            change.ticket.when_settled(lambda failure: self._stored(change, failure))
            return
        self._marks[topic] = change
        if len(self._marks) > _MOST_MARKS:
            self.reread()
            self._forget(self._committed())

    def _stored(self, change: Change, failure: StorageFailure | None) -> None:
        """A change that this client was not handed live can be read: what was read before and is held is older."""
        if failure is None and self._state is not ReplayState.OVER and change.topic > self.cursor:
            self.reread()
        self.included(change.revision, change.topic)

    def _give_up_reading(self) -> None:
        """Wait for no answer that is on its way: it will not fit any more."""
        if self._asked:
            self._reading += 1
            self._asked = False
        if self._state is ReplayState.READING:
            self._get_ready()

    def _committed(self) -> list[Change]:
        """Return the marked changes that whatever is read from now on has seen."""
        return [c for c in self._marks.values() if c.ticket.settled and c.ticket.failure is None]

    def _forget(self, changes: list[Change]) -> None:
        """Drop marks no longer needed: nothing is held that was read before their commit."""
        for change in changes:
            if self._marks.get(change.topic) is change:
                del self._marks[change.topic]
        changes.clear()
