"""Retained messages in a database: bounded reads in reader threads, all writes through the one writer.

How it works
------------
Three threads see a message. The *reactor thread* calls the methods below. Each of them hands a function of a database
connection to another thread, and returns a Deferred or a commit ticket. *Reader threads* execute reads on connections
of their own; in SQLite's WAL mode they never wait for the writer. The *writer's thread* executes every change, one
transaction after the other; the writer itself gathers changes that wait for the same commit
(:mod:`holdfast.storage.writer`).

A change such as ``put(a/b = 21.5, revision 812)`` becomes a row with both packet prefixes (:mod:`.rows`), encoded in
the reactor thread. The transaction upserts the row unless the stored revision is higher, adds the difference to the
totals and to the usage of quotas, and appends to the history through the recorder. Either all of this is committed
or nothing.

A clear or an expiry leaves a *tombstone*: a row without a message that keeps the revision. Without it, an older change
that arrives late, from another node or after a restart, would bring the message back. The sweep purges tombstones
after a while.

Invariant: ``totals`` in the reactor thread are those at the opening, changed by the commits of this node. They change
only when the writer reports a commit, never when a change is submitted. Where other nodes write too, the totals are
read (:meth:`SQLRetainedStore.census`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from time import monotonic
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast.core.messages import ChangeOrigin, RetainedChange, RetainedChanges, RetainedMessage
from holdfast.core.tickets import CommitTicket, FailureKind, StorageFailure
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.delayed_writes import NO_DELAYED_CHANGES, IDelayedChanges
from holdfast.retained.policies import NO_COUNTED_POLICIES, ICountedPolicies
from holdfast.retained.store.bounded_read import BoundedListing, BoundedRead, Bounds, SliceSize
from holdfast.retained.store.conditional import ConditionalChange
from holdfast.retained.store.interfaces import NO_RECORDER, ChangedRow, ICommitWatcher, IRetainedStore, Recorder
from holdfast.retained.store.rows import Row, held_row_size, message_of, row_of, rows_of
from holdfast.retained.store.scans import SQLScans
from holdfast.retained.store.statements import Statements, Totals, keep_record, read_record
from holdfast.retained.store.statements_sqlite import SQLiteStatements
from holdfast.retained.store.upserts import ConditionalUpserts, RetainedUpserts
from holdfast.retained.store.usage import CLIENTS, UsageTable
from holdfast.retained.store.values import (
    Batch,
    Census,
    EarlierSurvey,
    ExpiredPosition,
    Listing,
    RetainedStatistics,
    Selection,
    Survey,
    Usage,
    UsageSnapshot,
)
from holdfast.retained.store.wildcards import ScanSize, plan
from holdfast.scheduling.waiting import settled
from holdfast.storage.committer import Write, add_to_totals, raise_revision_mark, read_totals
from holdfast.storage.database import Database
from holdfast.storage.driver import Connection, Cursor
from holdfast.storage.revisions import time_of
from holdfast.storage.store import DurableStore, OpenStore

T = TypeVar("T")

#: The Topic Filters whose scan sizes are kept between reads.
_SCAN_SIZES = 1024

_log = Logger()


class MergePart(Protocol):
    """A part of an import. It decides in the writer's thread, so no change comes between its read and its write."""

    now: int

    def decide(self, cursor: Cursor, statements: Statements, usage: UsageTable) -> Sequence[Row]:
        """Return the rows to write, of distinct topics; they change the store at ``now`` (milliseconds)."""

    def note(self, cursor: Cursor, written: Sequence[str]) -> None:
        """Finish the transaction. ``written`` are the topics whose rows did not lose to a higher revision."""

    def settled(self, outcome: Totals | Failure) -> None:
        """Take the result of the transaction, in the reactor thread."""


@implementer(IRetainedStore)
class SQLRetainedStore:
    """Stores retained messages in a durable store, from its opening on.

    The ``recorder`` is told about every change in the same transaction.

    A search walks at most ``scan_rows`` topics in one statement (None: the dialect's number). It jumps over topics that
    cannot match where a jump passes over ``jump_rows`` topics. A read ends early after ``read_time`` seconds.
    ``counted_filters`` and, with ``counted_clients``, all Clients have quotas, so their usage is counted. So is that of
    the payers of the scope ``counted_payers``, and that of the topics of ``counted_policies``.
    """

    def __init__(
        self,
        store: DurableStore,
        *,
        scan_rows: int | None = None,
        jump_rows: int = 64,
        read_time: float = 0.005,
        seconds: Callable[[], float] = monotonic,
        counted_filters: Sequence[str] = (),
        counted_clients: bool = False,
        counted_payers: str | None = None,
        counted_policies: ICountedPolicies = NO_COUNTED_POLICIES,
        recorder: Recorder = NO_RECORDER,
    ) -> None:
        self.surveyed = True
        self.tells_clears = False
        self.node = store.node
        self.shared = store.shared
        self.unsent_revision = 0
        self.reads_ahead = store.reads_in_threads
        self.reads_slices = not self.reads_ahead
        self._bounds = Bounds(read_time, seconds)
        #: the size of the next slice of each filter; None if reads are ahead: a statement then costs too much for one
        #: slice
        self._slice_size_of: Callable[[str], SliceSize | None] = (
            (lambda _: None) if self.reads_ahead else lru_cache(maxsize=_SCAN_SIZES)(lambda _: SliceSize())
        )
        self._statements = statements_for(store.dialect)
        self.scans = SQLScans(store, self._statements, self._committed_first)
        most = scan_rows or self._statements.most_scanned
        #: the scan size of each filter, as its last read left it
        self._scan_size_of = lru_cache(maxsize=_SCAN_SIZES)(lambda topic_filter: ScanSize(jump_rows, most))  # noqa: ARG005
        self._usage = UsageTable(self._statements, counted_filters, counted_clients, counted_payers, counted_policies)
        self._recorder = recorder
        self._upserts = RetainedUpserts(
            self._statements, store.node, observe=self._observe, usage=self._usage, recorder=recorder
        )
        self._conditional = ConditionalUpserts(self._statements, self._upserts, self._observe)
        self._parts: OpenStore
        #: changes that wait to be put; readers of later changes have them put first
        self.delayed: IDelayedChanges = NO_DELAYED_CHANGES
        #: of the process before; None if there is none, or if it does not count
        self.earlier_survey: EarlierSurvey | None = None
        store.before_open(self._prepare)
        store.when_open(self._opened)

    @property
    def available(self) -> bool:
        """Whether the last read and the last write reached the database."""
        return self._parts.available

    def next_revision(self) -> int:
        """Return the revision for a change."""
        return self._parts.clock.next_revision()

    def next_revisions(self, count: int) -> range:
        """Return revisions for ``count`` changes (1 or more), in order."""
        return self._parts.clock.next_revisions(count)

    def put(self, change: RetainedChange) -> CommitTicket:
        """Store a change. A message that cannot be a PUBLISH packet is refused at once."""
        try:
            row = row_of(change)
        except ValueError as error:  # an import or the API can have such a message; a PUBLISH packet cannot
            ticket = CommitTicket()
            ticket.settle(StorageFailure(FailureKind.REFUSED, f"{change.topic!a} cannot be stored: {error}"))
            return ticket
        if self.delayed:
            self.delayed.drop(change.topic)
        key, changed = (
            self._recorder.key_of(change.topic, change.revision),
            ChangedRow(row, change.changed_at, change.origin, change.operator),
        )
        size = held_row_size(row)
        return self._parts.writer.submit(Write(self._upserts, key, changed, size, change.revision))

    def put_if(self, change: ConditionalChange) -> CommitTicket:
        """Store a change if its conditions hold. Its transaction decides, also with durability "async"."""
        if self.delayed:
            self.delayed.write_topic(change.row.topic)
        write = Write(self._conditional, change, change, held_row_size(change.row))
        return self._parts.writer.submit(write, committed=True)

    @property
    def room(self) -> int:
        """How many bytes of changes may be put before publishers are paused."""
        return self._parts.writer.room

    def put_together(self, changes: RetainedChanges) -> CommitTicket:
        """Store changes with one ticket."""
        if self.delayed:
            for topic in changes.topics:
                self.delayed.drop(topic)
        kind, key_of = self._upserts, self._recorder.key_of
        at, origin = changes.changed_at, ChangeOrigin.PUBLISH
        writes = []
        for row in rows_of(changes):
            key = key_of(row.topic, row.revision)
            writes.append(Write(kind, key, ChangedRow(row, at, origin), held_row_size(row), row.revision))
        return self._parts.writer.submit_together(writes)

    def watch(self, watcher: ICommitWatcher | None) -> None:
        """Tell a watcher of all commits that begin from now on; None: nobody.

        A commit that has begun before may end later. :meth:`ask_writer` fires after it.
        """
        self._upserts.watcher = watcher

    def ask_writer(self, work: Callable[[Cursor], T]) -> Deferred[T]:
        """Run work in a transaction of the writer's thread, after all earlier changes and before all later ones."""
        return self._parts.writer.run(lambda connection: work(connection.cursor()))

    def scan(self, work: Callable[[Cursor], T]) -> Deferred[T]:
        """Run long work that reads, in a thread of its own."""

        def run(connection: Connection) -> T:
            self._statements.begin_search(connection)
            return work(connection.cursor())

        return self._parts.scanners.read(run)

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        """Return a ticket that is settled when all earlier changes of a Topic Filter are committed or refused."""
        handed = self.delayed.write(topic_filter) if self.delayed else None
        if handed is None:
            return self._parts.writer.flushed()
        ticket = CommitTicket()
        handed.when_settled(lambda _: self._parts.writer.flushed().when_settled(ticket.settle))
        return ticket

    def _committed_first(self, read: Callable[[], Deferred[T]], topic_filter: str = EVERY_TOPIC) -> Deferred[T]:
        """Read once all delayed changes of a Topic Filter are committed or refused."""
        if not self.delayed:
            return read()
        return settled(self.flushed(topic_filter)).addCallback(lambda _: read())

    def _handed_first(self, work: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Begin a job of the writer once all delayed changes have been given to it."""
        handed = self.delayed.write() if self.delayed else None
        return work() if handed is None else settled(handed).addCallback(lambda _: work())

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        """Read a batch."""
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
                slice_size=self._slice_size_of(selection.topic_filter),
                detailed=detailed,
            )
            return read.batch(after, rows, slice_rows, max_bytes)

        return self._parts.readers.read(work)

    def survey(self, after: str, limit: int, guests: bool, newer_than: int = 0) -> Deferred[Survey]:
        """Read some publishers."""
        return self._parts.readers.read(
            lambda connection: self._statements.survey(connection.cursor(), after, limit, guests, newer_than)
        )

    def keep_survey(self, fingerprint: str, judged: int | None) -> Deferred[None]:
        """Write the record, in a transaction of its own, after all earlier changes."""
        return self._parts.writer.run(lambda connection: keep_record(connection, self.node, fingerprint, judged))

    def get(self, topic: str) -> Deferred[RetainedMessage | None]:
        """Read the message of a topic."""

        def work(connection: Connection) -> RetainedMessage | None:
            columns = self._statements.get(connection.cursor(), topic)
            return None if columns is None else message_of(columns)

        return self._committed_first(lambda: self._parts.readers.read(work), topic)

    def last_change(self, topic: str) -> Deferred[tuple[int, RetainedMessage | None]]:
        """Read what the last change of a topic has left."""

        def work(connection: Connection) -> tuple[int, RetainedMessage | None]:
            columns = self._statements.last_change(connection.cursor(), topic)
            if columns is None:
                return 0, None
            is_clear, revision, *message = columns
            return revision, None if is_clear else message_of(tuple(message))

        return self._committed_first(lambda: self._parts.readers.read(work), topic)

    def listing(self, selection: Selection, after: str, rows: int, max_bytes: int, payloads: bool) -> Deferred[Listing]:
        """List messages."""
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

        return self._committed_first(lambda: self._parts.readers.read(work), selection.topic_filter)

    def read_usage(
        self, topics: Sequence[str], topic_filters: Sequence[str], clients: Sequence[str], payers: Sequence[str] = ()
    ) -> Deferred[UsageSnapshot]:
        """Read the usage in the writer's thread, after all earlier changes."""

        def work(connection: Connection) -> UsageSnapshot:
            cursor = connection.cursor()
            meta = read_totals(cursor)
            read = self._usage.read
            return UsageSnapshot(
                Usage(meta.retained_count, meta.retained_bytes),
                self._statements.usage_of(cursor, topics),
                {topic_filter: read(cursor, topic_filter) for topic_filter in topic_filters},
                {client_id: read(cursor, CLIENTS, client_id) for client_id in clients},
                {payer: self._usage.read_payer(cursor, payer) for payer in payers},
            )

        return self._handed_first(lambda: self._parts.writer.run(work))

    def count_quotas(self, topic_filters: Sequence[str], clients: bool, policies: ICountedPolicies) -> Deferred[None]:
        """Begin to count for other quotas, in a transaction of its own."""
        return self._parts.writer.run(
            lambda connection: self._usage.count_quotas(connection.cursor(), topic_filters, clients, policies)
        )

    def count_usage(self, limit: int) -> Deferred[bool]:
        """Count some topics, in a transaction of its own."""
        return self._parts.writer.run(lambda connection: self._usage.count(connection.cursor(), limit))

    def cap_expiry(self, lifetime: int, never_too: bool, after: str, limit: int) -> Deferred[str | None]:
        """Change some rows, in a transaction of its own, after all earlier changes."""

        now = time_of(self.next_revision())

        def work(connection: Connection) -> str | None:
            cursor = connection.cursor()
            end, topics = self._statements.cap_expiry(cursor, lifetime, never_too, after, limit)
            if topics:
                self._recorder.record_stored(cursor, topics, now, ChangeOrigin.OVERRIDE)
            return end

        return self._parts.writer.run(work)

    def move_expiry(self, step: int, since: int, upto: int, after: str, limit: int) -> Deferred[str | None]:
        """Change some rows, in a transaction of its own, after all earlier changes."""
        now = time_of(self.next_revision())

        def work(connection: Connection) -> str | None:
            cursor = connection.cursor()
            end, topics = self._statements.move_expiry(
                cursor, self.node, step, since, self._first_revision, upto, after, limit
            )
            if topics:
                self._recorder.record_stored(cursor, topics, now, ChangeOrigin.OVERRIDE)
            return end

        return self._handed_first(lambda: self._parts.writer.run(work))

    def expire(self, now: int, limit: int) -> Deferred[Sequence[str]]:
        """Turn expired rows into tombstones, in a transaction of its own, after all earlier changes."""
        if not self.delayed:
            return self._expire_now(now, limit)

        # The tombstone of a topic would win over its delayed change. A sweep that finds nothing need not write them.
        def found(any_expired: bool) -> Deferred[Sequence[str]]:
            if not any_expired:
                return succeed(())
            return self._handed_first(lambda: self._expire_now(now, limit))

        looked = self._parts.readers.read(lambda connection: self._statements.any_expired(connection.cursor(), now))
        return looked.addCallback(found)

    def _expire_now(self, now: int, limit: int) -> Deferred[Sequence[str]]:
        # One revision for all: the tombstones are of different topics.
        revision = self.next_revision()

        def work(connection: Connection) -> tuple[list[str], Totals]:
            return self._expire(connection, now, limit, revision)

        def account(result: tuple[list[str], Totals]) -> Sequence[str]:
            topics, change = result
            self._upserts.committed(change)
            if topics and self._upserts.watcher is not None:
                self._upserts.watcher.expired(topics, now, revision)
            return topics

        return self._parts.writer.run(work).addCallback(account)

    def take_sweep(self) -> Deferred[bool]:
        """Take the sweep, if no other node has it."""
        return self.ask_writer(lambda cursor: self._statements.sweeps(cursor, True)) if self.shared else succeed(True)

    def give_sweep_back(self) -> Deferred[bool]:
        """Let other nodes sweep."""
        return self.ask_writer(lambda cursor: self._statements.sweeps(cursor, False)) if self.shared else succeed(True)

    def purge(self, before: int, limit: int) -> Deferred[int]:
        """Delete old tombstones, in a transaction of its own, after all earlier changes."""

        def work(connection: Connection) -> int:
            return self._statements.purge(connection.cursor(), before, limit)

        return self._parts.writer.run(work)

    def merge(self, part: MergePart) -> None:
        """Write the rows of a part, in one transaction, after all earlier changes; then tell the part."""

        def work(connection: Connection) -> Totals:
            cursor = connection.cursor()
            rows = part.decide(cursor, self._statements, self._usage)
            change = self._upserts.store(cursor, [ChangedRow(row, part.now, ChangeOrigin.IMPORT) for row in rows])
            # A restarted broker must not use these revisions again. For submitted writes, the committer does this.
            raise_revision_mark(cursor, self.node, max((row.revision for row in rows), default=0))
            part.note(cursor, [row.topic for row in rows if row.topic not in change.lost])
            return change

        def account(outcome: Totals | Failure) -> None:
            if not isinstance(outcome, Failure):
                self._upserts.committed(outcome)
            part.settled(outcome)

        self._handed_first(lambda: self._parts.writer.run(work)).addBoth(account)

    def census(self, now: int, after: ExpiredPosition | None, limit: int) -> Deferred[Census]:
        """Read the totals and some expired messages in one statement, so that both are of the same moment."""
        return self._parts.readers.read(
            lambda connection: self._statements.census(connection.cursor(), now, after, limit)
        )

    def statistics(self) -> RetainedStatistics:
        """Return the totals at the opening, changed by the commits of this node."""
        totals = self._upserts.totals
        return RetainedStatistics(totals.count, totals.bytes)

    def _prepare(self, _database: Database, connection: Connection) -> None:
        self.earlier_survey = read_record(connection, self.node, self.shared)

    def _opened(self, parts: OpenStore) -> None:
        self._parts = parts
        meta = parts.totals
        self.unsent_revision = meta.unsent_revision
        self._first_revision = meta.revision_mark  # those of this process are higher, whatever the clock says
        self._upserts.totals = Totals(meta.retained_count, meta.retained_bytes, meta.largest_packet)
        parts.readers.read(lambda connection: self._statements.levels(connection.cursor())).addCallback(
            self._add_levels
        )
        if self._usage.scopes:
            self._prepare_usage(False)
        else:
            empty = parts.readers.read(lambda connection: self._usage.is_empty(connection.cursor()))
            empty.addCallback(self._prepare_usage)

    def _observe(self, revision: int) -> None:
        self._parts.clock.observe(revision)

    def _add_levels(self, levels: frozenset[int]) -> None:
        self._upserts.totals.levels |= levels

    def _prepare_usage(self, empty: bool) -> None:
        """Prepare the counting of scopes. It is the writer's first job, so no change comes before it."""
        if not empty:
            prepared = self._parts.writer.run(lambda connection: self._usage.begin(connection.cursor()))
            prepared.addErrback(lambda failure: _log.failure("counting for quotas cannot begin", failure))

    def _expire(self, connection: Connection, now: int, limit: int, revision: int) -> tuple[list[str], Totals]:
        """Turn at most ``limit`` rows into tombstones: one statement finds them, one changes them."""
        cursor = connection.cursor()
        topics, size = self._statements.expired(cursor, now, limit)
        change = Totals(-len(topics), -size)
        if topics:
            watched = self._usage.watch(cursor, topics)
            self._statements.make_tombstones(cursor, topics, now, revision)
            self._usage.change(cursor, watched)
            self._recorder.record_expired(cursor, topics, now, revision)
            add_to_totals(cursor, self.node, change.count, change.bytes, 0)
        return topics, change


def statements_for(dialect: str) -> Statements:
    """Return the statements of a database's dialect."""
    if dialect == "sqlite":
        return SQLiteStatements()
    from holdfast.retained.store.statements_postgres import PostgresStatements  # its driver is not always installed

    return PostgresStatements()
