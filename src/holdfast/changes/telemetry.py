"""Telemetry: Application Messages without RETAIN that a policy records (``record = "all"``), in a table of their own.

How it works. The router gives each message of such a topic to :meth:`Telemetry.record`. Nobody waits for most of them:
they are gathered, and some hundred of them leave for the writer together, after a second at the latest. Where the
policy says ``record_acknowledge = "stored"``, a message with QoS 1 or 2 leaves at once, behind those gathered before,
and its acknowledgement waits for the commit::

    ms     message                      gathered    to the writer
    0      a, QoS 0                     a
    20     b, QoS 1, "received"         a b
    35     c, QoS 1, "stored"                       [a b], [c]: the PUBACK of c waits for the commit of both
    60     d, QoS 0                     d
    1060                                            [d]

A message for which nobody waits is dropped, counted and told when ``max_waiting_bytes`` of messages wait already: the
database is slower than the publishers, or away. It pauses no publisher. The waiting messages of one publisher never
take more than the free room beside them. So one alone gets half of the room, two get a third each, and there is room
left for another. The others count among the pending bytes of the writer, which pauses publishers as for retained
messages.

The invariants: ``seq`` is the order of commits, also with several nodes, and has no gaps: a writer first updates the
row of ``telemetry_state``, and pruning deletes the first messages only. ``received_at`` never decreases. A commit whose
outcome is unknown is repeated; the kind then looks whether the rows of the last attempt are there.

Nothing else reads the table: neither replays nor moments, restores, tokens, quotas or the change feed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from holdfast.changes.telemetry_table import (
    TelemetryLimits,
    TelemetryPage,
    TelemetryRow,
    TelemetryState,
    advance,
    has_too_many,
    page_of_messages,
    prune_telemetry,
    read_telemetry_state,
    take_turn,
)
from holdfast.core.messages import ApplicationMessage
from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure
from holdfast.retained.store.rows import json_of
from holdfast.retained.store.sql import statements_for
from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.scheduling.waiting import as_deferred, settled
from holdfast.storage import layouts
from holdfast.storage.committer import IWriteKind, Write
from holdfast.storage.driver import Bulk, Connection, Cursor
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.watch.lazy_log import LogThrottle
from holdfast.watch.log import client_text
from holdfast.wire import NO_PROPERTIES, Run, Single
from holdfast.wire.property_codec import encode_properties

# Built from constants and counts alone: values are always bound.

#: Gathered messages leave when there are so many, when they take so many bytes, or after so many seconds.
MOST_GATHERED = 500
GATHERED_BYTES = 256 << 10
GATHERING_SECONDS = 1.0
#: the longest topic that is recorded, in bytes: a row of an index in Postgres has no room for more
LONGEST_TOPIC = 2600
#: seconds between two rounds of pruning
_INTERVAL = 10.0
#: seconds that a first page waits until the messages received before are stored; it then goes without them
_PATIENCE = 2.0

_IS_THERE = "SELECT 1 FROM telemetry WHERE seq = ? AND topic = ? AND received_at = ? AND size = ? AND payload = ?"

T = TypeVar("T")


# Writing.


@implementer(IWriteKind)
class TelemetryKind:
    """The write kind: the ``row`` of a write is a sequence of rows, and its key a number that no other write has."""

    name = "telemetry"
    order = 100  # behind all others: these hold the lock of the table only at the end of their transaction

    def __init__(
        self, bulk: Bulk, committed: Callable[[_Settled], None], failed: Callable[[_Settled, StorageFailure], None]
    ) -> None:
        self._bulk = bulk
        self._committed = committed
        self._failed = failed
        #: The first row of each write that was attempted and is not settled, as placed. A write may be attempted
        #: several times before, with other writes each time.
        self._attempted: dict[Any, TelemetryRow] = {}

    def apply(self, cursor: Cursor, writes: Sequence[Write]) -> _Settled:
        """Append the rows of writes, in the writer's thread; return what :meth:`committed` tells."""
        state = take_turn(cursor)
        last_seq, last_at = state.last_seq, state.last_at
        placed: list[TelemetryRow] = []
        for write in writes:
            before = self._attempted.get(write.key)
            if before is not None and _is_there(cursor, before):
                continue
            first = len(placed)
            for row in write.row:
                last_seq += 1
                last_at = max(last_at, row.received_at)
                placed.append(row._replace(seq=last_seq, received_at=last_at))
            self._attempted[write.key] = placed[first]
        if placed:
            self._bulk.upsert(cursor, layouts.telemetry, placed)
            advance(cursor, last_seq, last_at, sum(row.weight for row in placed))
        return _Settled.of(writes)

    def committed(self, result: _Settled) -> None:
        """Tell how many messages are stored."""
        self._forget(result)
        self._committed(result)

    def failed(self, writes: Sequence[Write], failure: StorageFailure) -> None:
        """Tell how many messages are not."""
        settled = _Settled.of(writes)
        self._forget(settled)
        self._failed(settled, failure)

    def _forget(self, settled: _Settled) -> None:
        # In the reactor's thread, while no attempt is under way.
        for key in settled.keys:
            self._attempted.pop(key, None)


class _Settled(NamedTuple):
    """What became of writes: their keys, their messages, and the memory of these; of gathered ones by publisher."""

    keys: tuple[Any, ...]
    messages: int
    held: int
    gathered: dict[str | None, int]

    @classmethod
    def of(cls, writes: Sequence[Write]) -> _Settled:
        gathered: dict[str | None, int] = {}
        held = 0
        for write in writes:
            if write.size:
                held += write.size
                continue
            for row in write.row:
                size = row.held_bytes
                held += size
                gathered[row.client_id] = gathered.get(row.client_id, 0) + size
        return cls(tuple(write.key for write in writes), sum(len(write.row) for write in writes), held, gathered)


def _is_there(cursor: Cursor, row: TelemetryRow) -> bool:
    cursor.execute(_IS_THERE, (row.seq, row.topic, row.received_at, row.size, row.payload))
    return bool(cursor.fetchall())


# The service.


class Telemetry(Service):
    """Records messages, prunes them while it runs, and answers questions about them.

    ``now`` returns milliseconds since the epoch. It is used while the store is open.
    """

    _log = Logger()

    def __init__(
        self,
        store: DurableStore,
        *,
        clock: IReactorTime,
        now: Callable[[], int],
        limits: TelemetryLimits | None = None,
    ) -> None:
        self.limits = limits or TelemetryLimits()
        #: messages that this process has stored, that it has dropped, and how many of these had topics too long for it
        self.stored = self.dropped = self.too_long = 0
        #: bytes of all messages that wait in memory, and of those that no acknowledgement waits for
        self.waiting_bytes = self._unawaited_bytes = 0
        #: bytes that no acknowledgement waits for, by the Client Identifier of their publisher: those that are not 0
        self._bytes_of: dict[str | None, int] = {}
        self._clock = clock
        self._now = now
        self._statements = statements_for(store.dialect)
        self._kind = TelemetryKind(store.bulk, self._were_stored, self._were_lost)
        self._numbers = count()
        self._gathered: list[TelemetryRow] = []
        self._gathered_bytes = 0
        self._leaving: IDelayedCall | None = None
        self._log_throttle = LogThrottle(self._log, clock.seconds, 60, write=self._log.warn)
        self._pruning = PeriodicJob(
            self.prune, name="pruning the telemetry", interval=_INTERVAL, clock=clock, foreseen=(StorageFailure,)
        )
        self._parts: OpenStore
        store.when_open(self._opened)

    def startService(self) -> None:
        """Begin to prune."""
        Service.startService(self)
        self._pruning.start()

    def stopService(self) -> None:
        """Give all gathered messages to the writer, and prune no more."""
        Service.stopService(self)
        self._pruning.stop()
        self.hand_over()

    def record(self, message: ApplicationMessage, waits: bool) -> CommitTicket:
        """Record a message. The ticket is for its acknowledgement: that of a commit if it ``waits`` for one.

        A message with QoS 0 has no acknowledgement, so it waits for nothing.
        """
        properties5, properties_json = b"\0", None
        if message.properties is not NO_PROPERTIES:
            properties5 = encode_properties(message.properties)
            properties_json = json_of(message.properties) if properties5 != b"\0" else None
        row = TelemetryRow(
            0, message.topic, message.qos, len(message.payload), self._now(), message.expires_at, message.client_id,
            message.username, properties5, properties_json, message.payload,
        )  # fmt: skip
        return self._take([row], waits and message.qos > 0)

    def record_run(self, run: Run | Single, client_id: str, username: str | None, waits: bool) -> CommitTicket:
        """Record the messages of a run of a Client, as :meth:`record` does; one ticket is for all of them."""
        now, qos = self._now(), run.qos
        rows = [
            TelemetryRow(0, topic, qos, len(payload), now, None, client_id, username, b"\0", None, payload)
            for topic, payload in run.messages()
        ]
        return self._take(rows, waits and qos > 0)

    def _take(self, rows: list[TelemetryRow], waits: bool) -> CommitTicket:
        held = sum(row.held_bytes for row in rows)
        if len(rows[0].topic) * 4 > LONGEST_TOPIC and len(rows[0].topic.encode()) > LONGEST_TOPIC:
            self.too_long += len(rows)
            return self._drop(len(rows), f"a topic has more than {LONGEST_TOPIC} bytes")
        if waits:
            self.hand_over()
            self.waiting_bytes += held
            return self._parts.writer.submit(Write(self._kind, next(self._numbers), rows, held))
        publisher = rows[0].client_id
        own = self._bytes_of.get(publisher, 0) + held
        free = self.limits.max_waiting_bytes - self._unawaited_bytes - held
        if self._unawaited_bytes and own > free:
            self.hand_over()
            whose = "" if free < 0 else f"the share of {client_text(publisher or 'operators')} in "
            return self._drop(
                len(rows),
                f"{whose}retainer.telemetry.max_waiting_bytes is reached: the database is slower than the publishers",
            )
        self.waiting_bytes += held
        self._unawaited_bytes += held
        self._bytes_of[publisher] = own
        self._gathered += rows
        self._gathered_bytes += held
        if len(self._gathered) >= MOST_GATHERED or self._gathered_bytes >= GATHERED_BYTES:
            self.hand_over()
        elif self._leaving is None:
            self._leaving = self._clock.callLater(GATHERING_SECONDS, self._time_is_up)
        return COMMITTED

    def _time_is_up(self) -> None:
        self._leaving = None
        self.hand_over()

    def hand_over(self) -> None:
        """Give the gathered messages to the writer now. They count nothing there: no publisher is paused for them."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        if self._gathered:
            rows, self._gathered, self._gathered_bytes = self._gathered, [], 0
            self._parts.writer.add(Write(self._kind, next(self._numbers), rows, 0))

    def _drop(self, messages: int, why: str) -> CommitTicket:
        self.dropped += messages
        self._log_throttle.log("dropped", f"messages without RETAIN are not recorded, {self.dropped} by now: {why}")
        return COMMITTED

    def _were_stored(self, settled: _Settled) -> None:
        self.stored += settled.messages
        self._count_off(settled)

    def _were_lost(self, settled: _Settled, failure: StorageFailure) -> None:
        self._count_off(settled)
        self._drop(settled.messages, failure.detail)

    def _count_off(self, settled: _Settled) -> None:
        self.waiting_bytes -= settled.held
        for publisher, size in settled.gathered.items():
            self._unawaited_bytes -= size
            left = self._bytes_of.pop(publisher, 0) - size
            if left > 0:
                self._bytes_of[publisher] = left

    def flushed(self) -> Deferred[None]:
        """Fire when all messages accepted until now are stored or lost."""
        self.hand_over()
        return settled(self._parts.writer.flushed())

    def read_state(self) -> Deferred[TelemetryState]:
        """Read the state of the table."""
        return self._read(read_telemetry_state)

    @as_deferred
    async def messages(
        self,
        topic_filter: str,
        since: int | None = None,
        limit: int = 100,
        cursor: int = 0,
        until: int | None = None,
        newest_first: bool = False,
    ) -> TelemetryPage:
        """Return the next messages that match a Topic Filter, ``limit`` (1..1000) at most, in their order.

        ``since`` and ``until`` are the first and the last time of their receipt, in milliseconds since the epoch;
        ``cursor`` comes from the page before. The first page has all messages received before, unless the database
        needs more than two seconds to store them.
        """
        if not cursor:
            await self.flushed().addTimeout(_PATIENCE, self._clock, lambda *_: None)

        def work(reading: Cursor) -> TelemetryPage:
            return page_of_messages(reading, topic_filter, since, until, limit, cursor, newest_first)

        page: TelemetryPage = await self._read(work)
        return page

    @as_deferred
    async def prune(self) -> None:
        """Delete the messages beyond the limits, in a series of short transactions. Fails with StorageFailure."""
        while self.running and await self._read(self._has_too_many):
            if not await self._parts.writer.run(self._prune_part):
                return
            await deferLater(self._clock, 0)

    def _has_too_many(self, cursor: Cursor) -> bool:
        return has_too_many(cursor, self._now(), self.limits)

    def _prune_part(self, connection: Connection) -> bool:
        return prune_telemetry(connection.cursor(), self._now(), self.limits)

    def _read(self, work: Callable[[Cursor], T]) -> Deferred[T]:
        """Run the work with a reader's cursor. Fails with :class:`StorageFailure`."""

        def attempt(connection: Connection) -> T:
            self._statements.begin_search(connection)
            return work(connection.cursor())

        return self._parts.readers.read(attempt)

    def _opened(self, parts: OpenStore) -> None:
        self._parts = parts
