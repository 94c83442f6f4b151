"""Retained messages in a database: read in bounded bites, written through the one writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import monotonic
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.messages import ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.retained.store.bounded_read import BoundedRead, Bounds
from holdfast.retained.store.dialects.answers import Totals
from holdfast.retained.store.dialects.sqlite import SQLiteStatements
from holdfast.retained.store.dialects.statements import Statements
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.listing import BoundedListing, state_of
from holdfast.retained.store.recorder import NO_RECORDER, ChangedRow, Recorder
from holdfast.retained.store.rows import Row, message_of, row_of
from holdfast.retained.store.upserts import RetainedUpserts
from holdfast.retained.store.usage import CLIENTS, UsageTable
from holdfast.retained.store.values import (
    Batch,
    Listing,
    RetainedStatistics,
    Selection,
    TopicState,
    Usage,
    UsageSnapshot,
)
from holdfast.retained.wildcards.plan import plan
from holdfast.retained.wildcards.scan_size import ScanSize
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.revisions import time_of
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.storage.writing.node_totals import add_to_totals, raise_revision_mark, read_totals
from holdfast.storage.writing.writes import Write
from holdfast.tickets import CommitTicket, FailureKind, StorageFailure

#: What a row counts for beside its payload when the bytes that are pending are counted.
_ROW_OVERHEAD = 400
#: Topic Filters whose strides are remembered.
_SCAN_SIZES = 1024

_log = Logger()


class Chunk(Protocol):
    """Changes that are decided on in the writer's thread, where nothing comes between the look and the write."""

    now: int

    def decide(self, cursor: Cursor, statements: Statements, usage: UsageTable) -> Sequence[Row]:
        """Return the rows to write, of distinct topics, as stored at ``now`` (milliseconds since the epoch)."""

    def note(self, cursor: Cursor, written: Sequence[str]) -> None:
        """Do what belongs to the transaction; ``written`` are the topics where nothing had a higher revision."""

    def settled(self, outcome: Totals | Failure) -> None:
        """Hear, in the reactor thread, that the transaction is committed, or why it failed."""


@implementer(IRetainedStore)
class SQLRetainedStore:
    """The retained messages of a durable store, usable while that is open.

    The ``recorder`` is told about every change in the same transaction.

    A read scans at most ``scan_rows`` topics per statement when their number says nothing about the matches, jumps over
    what cannot match where a jump gains ``jump_rows`` topics, and ends early when it has taken ``read_time`` seconds of
    ``seconds``. How much is retained by topics that match the
    ``counted_filters`` and, with ``counted_clients``, by each Client is kept count of.
    """

    def __init__(
        self,
        store: DurableStore,
        scan_rows: int = 8192,
        jump_rows: int = 64,
        read_time: float = 0.005,
        seconds: Callable[[], float] = monotonic,
        counted_filters: Sequence[str] = (),
        counted_clients: bool = False,
        recorder: Recorder = NO_RECORDER,
    ) -> None:
        self.node = store.node
        self.shared = store.shared
        self.reads_ahead = store.reads_in_threads
        self._bounds = Bounds(read_time, seconds)
        #: how far to go at once for a filter, as its last read has left it: a guess to begin with
        self._scan_size_of = lru_cache(maxsize=_SCAN_SIZES)(lambda topic_filter: ScanSize(jump_rows, scan_rows))  # noqa: ARG005
        self._statements = statements_for(store.dialect)
        self._usage = UsageTable(self._statements, counted_filters, counted_clients)
        self._recorder = recorder
        self._upserts = RetainedUpserts(self._statements, store.node, self._observe, self._usage, recorder)
        self._parts: OpenStore
        store.when_open(self._opened)

    @property
    def available(self) -> bool:
        """Whether the database answered when it was asked last, for reading and for writing."""
        return self._parts.readers.available and self._parts.writer.available

    def next_revision(self) -> int:
        """Stamp a change."""
        return self._parts.clock.next_revision()

    def next_revisions(self, count: int) -> range:
        """Stamp so many changes, one at least, in order."""
        return self._parts.clock.next_revisions(count)

    def put(self, change: RetainedChange) -> CommitTicket:
        """Store a change. What cannot be a PUBLISH packet is refused at once."""
        try:
            row = row_of(change)
        except ValueError as error:
            ticket = CommitTicket()
            ticket.settle(StorageFailure(FailureKind.REFUSED, f"{change.topic!a} cannot be stored: {error}"))
            return ticket
        key, changed = self._recorder.key_of(change), ChangedRow(row, change.changed_at, change.origin)
        size = len(row.payload) + _ROW_OVERHEAD
        return self._parts.writer.submit(Write(self._upserts, key, changed, size, change.revision))

    def flushed(self) -> CommitTicket:
        """A ticket settled when everything put before is committed or refused."""
        return self._parts.writer.flushed()

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read a batch; fails with :class:`StorageFailure` when the database cannot be read."""
        totals = self._upserts.totals

        def work(connection: Connection) -> Batch:
            read = BoundedRead(
                connection,
                self._statements,
                plan=plan(selection.topic_filter),
                selection=selection,
                totals=totals,
                bounds=self._bounds,
                scan_size=self._scan_size_of(selection.topic_filter),
                detailed=detailed,
            )
            return read.batch(after, rows, slice_rows, max_bytes)

        return self._parts.readers.read(work)

    def get(self, topic: str) -> Deferred[RetainedMessage | None]:
        """Read the message of a topic."""

        def work(connection: Connection) -> RetainedMessage | None:
            columns = self._statements.get(connection.cursor(), topic)
            return None if columns is None else message_of(columns)

        return self._parts.readers.read(work)

    def listing(self, selection: Selection, after: str, rows: int, max_bytes: int, payloads: bool) -> Deferred[Listing]:
        """List messages; fails with :class:`StorageFailure` when the database cannot be read."""
        totals = self._upserts.totals

        def work(connection: Connection) -> Listing:
            read = BoundedListing(
                connection,
                self._statements,
                plan=plan(selection.topic_filter),
                selection=selection,
                totals=totals,
                bounds=self._bounds,
                scan_size=self._scan_size_of(selection.topic_filter),
                payloads=payloads,
            )
            return read.listing(after, rows, max_bytes)

        return self._parts.readers.read(work)

    def topic_states(self, topics: Sequence[str]) -> Deferred[Mapping[str, TopicState]]:
        """Read how topics stand."""

        def work(connection: Connection) -> dict[str, TopicState]:
            found = self._statements.topic_states(connection.cursor(), topics)
            return {columns[0]: state_of(columns) for columns in found}

        return self._parts.readers.read(work)

    def read_usage(
        self, topics: Sequence[str], topic_filters: Sequence[str], clients: Sequence[str]
    ) -> Deferred[UsageSnapshot]:
        """Look, in the writer's thread, so that nothing put before is missing."""

        def work(connection: Connection) -> UsageSnapshot:
            cursor = connection.cursor()
            meta = read_totals(cursor)
            read = self._usage.read
            return UsageSnapshot(
                Usage(meta.retained_count, meta.retained_bytes),
                self._statements.usage_of(cursor, topics),
                {topic_filter: read(cursor, topic_filter) for topic_filter in topic_filters},
                {client_id: read(cursor, CLIENTS, client_id) for client_id in clients},
            )

        return self._parts.writer.run(work)

    def count_usage(self, limit: int) -> Deferred[bool]:
        """Count a slice, in a transaction of its own."""
        return self._parts.writer.run(lambda connection: self._usage.count(connection.cursor(), limit))

    def cap_expiry(self, lifetime: int, never_too: bool, after: str, limit: int) -> Deferred[str | None]:
        """Change a run of rows, in a transaction of its own, after all that was put before."""

        now = time_of(self.next_revision())

        def work(connection: Connection) -> str | None:
            cursor = connection.cursor()
            end, topics = self._statements.cap_expiry(cursor, lifetime, never_too, after, limit)
            if topics:
                self._recorder.record_stored(cursor, topics, now, ChangeOrigin.OVERRIDE)
            return end

        return self._parts.writer.run(work)

    def expire(self, now: int, limit: int) -> Deferred[Sequence[str]]:
        """Turn expired rows into tombstones, in a transaction of its own, after all that was put before."""
        revision = self.next_revision()

        def work(connection: Connection) -> tuple[list[str], Totals]:
            return self._expire(connection, now, limit, revision)

        def account(result: tuple[list[str], Totals]) -> Sequence[str]:
            topics, change = result
            self._upserts.committed(change)
            return topics

        return self._parts.writer.run(work).addCallback(account)

    def purge(self, before: int, limit: int) -> Deferred[int]:
        """Delete old tombstones, in a transaction of its own, after all that was put before."""

        def work(connection: Connection) -> int:
            return self._statements.purge(connection.cursor(), before, limit)

        return self._parts.writer.run(work)

    def merge(self, chunk: Chunk) -> None:
        """Write what a chunk decides on, in one transaction, after all that was put before; the chunk is told."""

        def work(connection: Connection) -> Totals:
            cursor = connection.cursor()
            rows = chunk.decide(cursor, self._statements, self._usage)
            change = self._upserts.store(cursor, [ChangedRow(row, chunk.now, ChangeOrigin.IMPORT) for row in rows])
            raise_revision_mark(cursor, self.node, max((row.revision for row in rows), default=0))
            chunk.note(cursor, [row.topic for row in rows if row.topic not in change.lost])
            return change

        def account(outcome: Totals | Failure) -> None:
            if not isinstance(outcome, Failure):
                self._upserts.committed(outcome)
            chunk.settled(outcome)

        self._parts.writer.run(work).addBoth(account)

    def statistics(self) -> RetainedStatistics:
        """Return how much is retained as of the last commit."""
        totals = self._upserts.totals
        return RetainedStatistics(totals.count, totals.payload_bytes)

    def _opened(self, parts: OpenStore) -> None:
        self._parts = parts
        meta = parts.totals
        self._upserts.totals = Totals(meta.retained_count, meta.retained_bytes, meta.largest_packet)
        parts.readers.read(lambda connection: self._statements.levels(connection.cursor())).addCallback(self._know)
        if self._usage.scopes:
            self._prepare_usage(False)
        else:
            empty = parts.readers.read(lambda connection: self._usage.is_empty(connection.cursor()))
            empty.addCallback(self._prepare_usage)

    def _observe(self, revision: int) -> None:
        self._parts.clock.observe(revision)

    def _know(self, levels: frozenset[int]) -> None:
        self._upserts.totals.levels |= levels

    def _prepare_usage(self, empty: bool) -> None:
        """See that only what is counted from now on is in the table: the first thing the writer does."""
        if not empty:
            prepared = self._parts.writer.run(lambda connection: self._usage.begin(connection.cursor()))
            prepared.addErrback(lambda failure: _log.failure("counting for quotas cannot begin", failure))

    def _expire(self, connection: Connection, now: int, limit: int, revision: int) -> tuple[list[str], Totals]:
        """Bury at most ``limit`` rows: one step to find them, one to change them, whatever their number."""
        cursor = connection.cursor()
        topics, size = self._statements.expired(cursor, now, limit)
        change = Totals(-len(topics), -size)
        if topics:
            watched = self._usage.watch(cursor, topics)
            self._statements.make_tombstones(cursor, topics, now, revision)
            self._usage.change(cursor, watched, topics)
            self._recorder.record_expired(cursor, topics, now, revision)
            add_to_totals(cursor, self.node, change.count, change.payload_bytes, 0)
        return topics, change


def statements_for(dialect: str) -> Statements:
    """Return the SQL of a database's dialect."""
    if dialect == "sqlite":
        return SQLiteStatements()
    from holdfast.retained.store.dialects.postgres import PostgresStatements  # its driver is an extra

    return PostgresStatements()
