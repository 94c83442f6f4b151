"""Tokens, and the replays of what has changed since one: the service that the sessions use.

It also prunes old changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import WeakSet

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.changes.log import (
    changed_topics,
    count_since,
    excess_turn,
    is_complete,
    is_good,
    prune,
    read_kept,
    time_of,
    token_now,
    turn_before,
)
from holdfast.changes.nodes import LOOK_INTERVAL, Epochs, OtherNodes
from holdfast.changes.recording import GATHERING_SECONDS, AppendingRecorder, IChangesRecorder
from holdfast.changes.tokens import TOKEN_LENGTHS, BadToken, Token, token_of
from holdfast.core.extensions import BadRequest, moment_in
from holdfast.core.messages import has_expired
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.core.topics import EVERY_TOPIC, matches
from holdfast.retained.store.interfaces import IReplaySource
from holdfast.retained.store.rows import with_facts
from holdfast.retained.store.slices import CLEAR_QOS, divide, empty_packet
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.values import Batch, Publisher, QueuedRows, Selection, Slice
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred
from holdfast.storage.driver import Cursor, split

#: With more changes than this since a token, or more messages that have expired, everything is replayed.
MOST_CHANGES = 100_000
#: The most changes that are kept.
MOST_KEPT = 1_000_000
#: Seconds between two prunings, and changes that one transaction deletes.
_PRUNE_INTERVAL = 60.0
_PRUNED = 1000
#: Seconds for which a token is given again, while nothing has changed here. A change on another node comes again then.
_TOKEN_AGE = 1.0
_PINNED = "SELECT min(replay_since) FROM session_subscriptions WHERE replay_since IS NOT NULL"


#: what a client knows: a token, or a time in milliseconds since the epoch
Known = Token | int


@frozen
class Since:
    """The answer to a request. ``token`` is for the next one, None while there is none.

    ``turn`` is that after which changes are to be replayed, None for everything.
    """

    token: str | None
    turn: int | None = None


NOTHING_KNOWN = Since(None)


@frozen
class _Made:
    """A token, what the recorder had recorded then, and when it was made, in seconds."""

    token: Token
    recorded: int
    at: float


def known_of(text: str, now: int) -> Known:
    """Return the token or the time of a text. Raises :class:`BadRequest`."""
    try:
        return token_of(text)
    except BadToken as bad_token:
        if len(text) in TOKEN_LENGTHS:
            raise BadRequest(str(bad_token)) from None
    try:
        return moment_in(text, now)
    except BadRequest as bad_time:
        raise BadRequest(f"it is a token of a marker, or a time; {bad_time}") from None


class ChangesSince(Service):
    """Makes tokens, and finds what has changed since one.

    Changes are kept for ``keep`` milliseconds, the newest ``most`` at most.
    """

    def __init__(
        self,
        store: SQLRetainedStore,
        epochs: Epochs,
        recorder: IChangesRecorder,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        keep: Callable[[], int],
        most: int = MOST_KEPT,
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._recorder = recorder
        self._clock = clock
        self._now = now
        self._keep = keep
        self.most = most
        self._sources: WeakSet[SinceSource] = WeakSet()
        self._asking: list[Deferred[Token]] = []  # those who wait for the next token
        self._making = False  # whether a transaction makes a token for others
        self._made: _Made | None = None  # the last one
        self._pruning = PeriodicJob(
            self._prune,
            name="pruning stored changes",
            interval=_PRUNE_INTERVAL,
            clock=clock,
            foreseen=(StorageFailure,),
        )
        self._appending = PeriodicJob(
            self._append,
            name="storing which topics have changed",
            interval=GATHERING_SECONDS,
            clock=clock,
            foreseen=(StorageFailure,),
        )
        self._others: OtherNodes | None = None
        if isinstance(recorder, AppendingRecorder):
            self._others = OtherNodes(store, epochs, recorder, clock)

    def startService(self) -> None:
        """Prune, and append gathered changes, at intervals."""
        Service.startService(self)
        self._pruning.start(_PRUNE_INTERVAL)
        self._appending.start(GATHERING_SECONDS)
        if self._others is not None:
            self._others.start(LOOK_INTERVAL)

    def stopService(self) -> None:
        """Append all gathered changes, and note the end."""
        Service.stopService(self)
        self._pruning.stop()
        self._appending.stop()
        if self._others is not None:
            self._others.stop()
        # If the database is away, the next start makes all tokens void.
        self._store.ask_writer(self._end).addErrback(_trap_storage_failure)

    def _append(self) -> Deferred[None] | None:
        """Append gathered changes: other processes read the table too."""
        return self._store.ask_writer(self._recorder.append_gathered) if self._recorder.has_gathered else None

    def _end(self, cursor: Cursor) -> None:
        self._recorder.append_gathered(cursor)
        self._epochs.end(cursor)

    def append(self) -> Deferred[None]:
        """Append gathered changes: fires when all that are committed are in the table."""
        return self._append() or succeed(None)

    @as_deferred
    async def token(self) -> str | None:
        """Return a token for now, None while the database is away."""
        if not self._store.available:
            return None
        made = self._made
        # A transaction for each of many Subscriptions at once would cost more than their replays.
        if made and made.recorded == self._recorder.recorded and self._clock.seconds() - made.at < _TOKEN_AGE:
            return made.token.text
        try:
            token: Token = await self.now()
        except StorageFailure:
            return None
        return token.text

    @as_deferred
    async def since(self, known: Known) -> Since:
        """Find what a replay has to bring since a token or a time."""
        token = await self.token()
        if token is None:
            return Since(None)
        find = partial(self._turn_after, known=known)
        try:
            turn = await self._store.scan(find)
        except StorageFailure:
            return Since(None)
        return Since(token, turn)

    @property
    def follows_kill(self) -> bool:
        """Whether the process before was killed: replays that it began have to bring everything."""
        return self._epochs.follows_kill

    def source(self, turn: int, lost: Callable[[], None]) -> SinceSource:
        """Return the source of a replay. ``lost`` is called if the changes are not kept any more."""
        source = SinceSource(self._store, self._recorder, turn, lost)
        self._sources.add(source)
        return source

    def token_in(self, cursor: Cursor) -> Token:
        """Return a token for now, as a reader sees it: what is gathered comes after it, and may come again."""
        return token_now(cursor, self._epochs.turns, self._epochs.epoch)

    def is_known(self, cursor: Cursor, token: Token) -> bool:
        """Tell whether the changes after a token are all stored, and not too many."""
        return is_good(cursor, self._epochs.turns, token, self._epochs.node) and not _are_too_many(cursor, token.turn)

    def _turn_after(self, cursor: Cursor, known: Known) -> int | None:
        """Return the turn after which all changes are known, None if everything has to be replayed."""
        turns, node = self._epochs.turns, self._epochs.node
        if isinstance(known, int):
            turn = turn_before(cursor, known, MOST_CHANGES) if is_complete(cursor, turns, node) else None
        else:
            turn = known.turn if is_good(cursor, turns, known, node) else None
        if turn is None or _are_too_many(cursor, turn):
            return None
        expired = count_expired(cursor, time_of(cursor, turn), self._now(), MOST_CHANGES + 1)
        return None if expired > MOST_CHANGES else turn

    def now(self) -> Deferred[Token]:
        """Return a token for now. Fires behind the reports of all earlier commits; fails with StorageFailure."""
        waiting: Deferred[Token] = Deferred(lambda _: None)
        self._asking.append(waiting)
        if not self._making:
            self._make_token()
        return waiting

    def _make_token(self) -> None:
        """Make a token for all who ask now. Those who ask before it is made need a later one, and share that."""
        asking, self._asking = self._asking, []
        self._making = True
        at = self._clock.seconds()

        def work(cursor: Cursor) -> _Made:
            self._recorder.append_gathered(cursor)
            token = token_now(cursor, self._epochs.turns, self._epochs.present(cursor))
            return _Made(token, self._recorder.recorded, at)

        def made(result: _Made) -> Token:
            self._made = result
            return result.token

        def answered(result: Any) -> None:
            self._making = False
            if self._asking:
                self._make_token()
            for each in asking:
                if not each.called:  # else its client has left
                    each.callback(result)

        # What a transaction appends in Postgres is above its horizon, and would come again.
        appended = (self._append() if self._others is not None else None) or succeed(None)
        appended.addCallback(lambda _: self._store.ask_writer(work)).addCallback(made).addBoth(answered)

    @as_deferred
    async def _prune(self) -> None:
        """Delete changes that are too old or too many, in parts."""
        excess = await self._store.scan(partial(excess_turn, most=self.most))
        before = self._now() - self._keep()
        deleted = _PRUNED
        while deleted == _PRUNED:
            deleted = await self._store.ask_writer(partial(self._prune_part, before=before, excess=excess))

    def _prune_part(self, cursor: Cursor, before: int, excess: int | None) -> int:
        cursor.execute(_PINNED)
        ((stored,),) = cursor.fetchall()
        pins = [turn for turn in (stored, pinned_turn(tuple(self._sources))) if turn is not None]
        return prune(cursor, before, _PRUNED, min(pins, default=None), excess)


def _are_too_many(cursor: Cursor, turn: int) -> bool:
    return count_since(cursor, turn, MOST_CHANGES + 1) > MOST_CHANGES


def _trap_storage_failure(failure: Failure) -> None:
    failure.trap(StorageFailure)


# What has changed since a turn, as a replay reads it: messages that are retained, and empty ones for all others.
#
# How it works. A replay since a token is one like any other (:mod:`holdfast.replay.replay`). Only its source
# is another one: it walks through the changed topics in their order, and reads the present row of each. Beside the
# stored changes these are the topics whose messages have expired since, and wait for the sweep. All of it is read in
# the thread of long reads.
#
# A message that is withheld from subscribers (:mod:`holdfast.retained.source_check`) comes as an empty one: the client
# may have an earlier message of its topic, and a replay of everything would bring none.
#
# A durable Session's stored turn keeps the changes after it, and so does a source that is in use, however old they are.
# Beyond a million (``MOST_KEPT``) they are pruned all the same: then the replay ends, and its marker says so.


#: The topics that one read looks at, and those whose rows one statement reads.
_TOPICS = 1000
_ROWS = 128
_COLUMNS = (
    "topic, revision, qos, size, stored_at, expires_at, tombstone, client_id, username, "
    "prefix3, prefix5, properties5, payload"
)
# Such messages are few, and are found by their time. A plan in the order of topics would read the whole table.
_EXPIRED = (
    "WITH expired AS MATERIALIZED "
    "(SELECT topic FROM retained WHERE expires_at > ? AND expires_at <= ? AND tombstone = 0) "
    "SELECT topic FROM expired WHERE topic > ? ORDER BY topic LIMIT ?"
)
_COUNT_EXPIRED = (
    "SELECT count(*) FROM "
    "(SELECT 1 FROM retained WHERE expires_at > ? AND expires_at <= ? AND tombstone = 0 LIMIT ?) AS part"
)


class _Present(NamedTuple):
    """The present row of a changed topic."""

    topic: str
    revision: int
    qos: int
    size: int
    stored_at: int
    expires_at: int | None
    tombstone: int
    client_id: str | None
    username: str | None
    prefix3: bytes
    prefix5: bytes
    properties5: bytes
    payload: bytes


@implementer(IReplaySource)
class SinceSource:
    """The source of one replay of what has changed after a ``turn``. ``lost`` is called if changes are missing."""

    reads_ahead = reads_slices = False
    surveyed = True
    tells_clears = True

    def __init__(
        self, store: SQLRetainedStore, recorder: IChangesRecorder, turn: int, lost: Callable[[], None]
    ) -> None:
        self.node: int = store.node
        self.shared: bool = store.shared
        self.turn = turn
        self._store = store
        self._recorder = recorder
        self._lost = lost
        self._since: int | None = None

    def next_revision(self) -> int:
        """Return a revision of the store."""
        return self._store.next_revision()

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        """Return the ticket of the store."""
        return self._store.flushed(topic_filter)

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read a batch, in another thread."""

        def work(cursor: Cursor) -> Batch | None:
            kept = read_kept(cursor)
            if kept is None or kept.turn > self.turn:
                return None
            if self._since is None:
                self._since = time_of(cursor, self.turn)
            topics, end = self._next_topics(cursor, selection, after)
            return _Reading(cursor, selection, detailed).batch(topics, end, after, rows, slice_rows, max_bytes)

        def found(batch: Batch | None) -> Batch:
            if batch is None:
                self._lost()
                return Batch((), after, True)
            return batch

        # All committed changes have to be in the table: those since the token too.
        has_gathered = self._recorder.has_gathered
        gathered = self._store.ask_writer(self._recorder.append_gathered) if has_gathered else succeed(None)
        return gathered.addCallback(lambda _: self._store.scan(work)).addCallback(found)

    def _next_topics(self, cursor: Cursor, selection: Selection, after: str) -> tuple[list[str], str | None]:
        """Return the next topics that match, and the topic up to which all are looked at; None: all are."""
        changed = changed_topics(cursor, self.turn, after, _TOPICS)
        cursor.execute(_EXPIRED, (self._since, selection.now, after, _TOPICS))
        expired = [topic for (topic,) in cursor.fetchall()]
        ends = [found[-1] for found in (changed, expired) if len(found) == _TOPICS]
        if selection.until is not None:
            ends.append(selection.until)
        end = min(ends, default=None)
        topics = (topic for topic, _ in groupby(merge(changed, expired)) if end is None or topic <= end)
        within = selection.within
        return [
            topic
            for topic in topics
            if matches(selection.topic_filter, topic)
            and (within is None or any(matches(topic_filter, topic) for topic_filter in within))
        ], end


class _Reading:
    """Reads the present rows of topics as one batch."""

    def __init__(self, cursor: Cursor, selection: Selection, detailed: bool) -> None:
        self._cursor = cursor
        self._selection = selection
        self._detailed = detailed
        self._left_out = 0
        self._found: list[tuple[bytes, _Present, int, int]] = []

    def batch(
        self, topics: Sequence[str], end: str | None, after: str, rows: int, slice_rows: int, max_bytes: int
    ) -> Batch:
        """Read at most ``rows`` of them and ``max_bytes`` of packets. The replay goes on behind ``end``, if any."""
        size, complete = 0, True
        for part in split(topics, _ROWS):
            present = self._present(part)
            for topic in part:
                packet = self._packet(present.get(topic) or _absent(topic))
                if packet is not None:
                    if self._found and (len(self._found) == rows or size + len(packet[0]) > max_bytes):
                        complete = False
                        break
                    self._found.append(packet)
                    size += len(packet[0])
                after = topic
            if not complete:
                break
        done = complete and end is None
        if complete and end is not None:
            after = end
        if not self._found:
            return Batch((), after, done, self._left_out)
        found = self._slice()
        version = self._selection.protocol_version
        slices = divide(found, slice_rows, version) if found.count > slice_rows else [found]
        return Batch(slices, after, done, self._left_out)

    def _present(self, topics: Sequence[str]) -> dict[str, _Present]:
        places = ", ".join("?" * len(topics))
        self._cursor.execute(f"SELECT {_COLUMNS} FROM retained WHERE topic IN ({places})", list(topics))  # noqa: S608
        return {row.topic: row for row in map(_Present._make, self._cursor.fetchall())}

    def _packet(self, row: _Present) -> tuple[bytes, _Present, int, int] | None:
        """Return packet, row, QoS and expiry (0: never) for the subscriber; None if it gets nothing of this topic."""
        selection = self._selection
        if not _is_visible(row, selection):
            return None
        version = selection.protocol_version
        if _is_over(row, selection):
            return empty_packet(row.topic, version), row, CLEAR_QOS, 0
        topic, payload = row.topic.encode(), bytes(row.payload)
        if version == 5:
            packet = bytes(row.prefix5) + topic + bytes(row.properties5) + payload
            if selection.facts:
                packet = with_facts(packet, selection.facts, [(row.stored_at, row.revision, row.client_id)])
        else:
            packet = bytes(row.prefix3) + topic + payload
        if selection.max_packet_size is not None and len(packet) > selection.max_packet_size:
            self._left_out += 1
            return None
        return packet, row, row.qos, row.expires_at or 0

    def _slice(self) -> Slice:
        found = self._found
        expiries = tuple(map(itemgetter(3), found))
        soonest = min(filter(None, expiries), default=0)
        details = self._detailed or bool(soonest)
        return Slice(
            found[-1][1].topic,
            len(found),
            b"".join(map(itemgetter(0), found)),
            bytes(map(itemgetter(2), found)) if details else b"",
            expiries if details else (),
            soonest,
            publishers=[self._publisher(row) for _, row, _, _ in found] if self._selection.publishers else (),
        )

    def _publisher(self, row: _Present) -> Publisher | None:
        return None if _is_over(row, self._selection) else (row.username, row.client_id)


def _is_over(row: _Present, selection: Selection) -> bool:
    """Tell whether nothing is retained any more: the subscriber gets an empty message."""
    return bool(row.tombstone) or has_expired(row.expires_at, selection.now)


def _is_visible(row: _Present, selection: Selection) -> bool:
    """Tell whether a replay reads the row: see :class:`Selection`."""
    if selection.except_client is not None and row.client_id == selection.except_client:
        return False
    if row.revision & 255 != selection.node:
        return True
    return row.revision <= selection.not_after and not _is_queued(row, selection.queued)


def _is_queued(row: _Present, queued: QueuedRows | None) -> bool:
    # A clear is queued like a message, with the QoS that it was published with, which a tombstone does not tell.
    if queued is None or row.tombstone:
        return False
    return queued.above < row.revision <= queued.until and row.qos >= queued.least_qos


def _absent(topic: str) -> _Present:
    """Return the row of a topic whose tombstone is purged."""
    return _Present(topic, 0, 0, 0, 0, None, 1, None, None, b"", b"", b"", b"")


def count_expired(cursor: Cursor, since: int, now: int, most: int) -> int:
    """Return how many messages expired between two times (milliseconds) and wait for the sweep; at most ``most``."""
    cursor.execute(_COUNT_EXPIRED, (since, now, most))
    ((count,),) = cursor.fetchall()
    return int(count)


def pinned_turn(sources: Iterable[SinceSource]) -> int | None:
    """Return the lowest turn that a source in use needs, None if there is none."""
    return min((source.turn for source in sources), default=None)
