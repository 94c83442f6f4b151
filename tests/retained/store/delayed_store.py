"""A store that commits when the test calls ``commit``: until then, no read finds the changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from zope.interface import implementer

from holdfast.core.messages import RetainedChange
from holdfast.core.tickets import COMMITTED, CommitTicket, StorageFailure
from holdfast.core.topics import EVERY_TOPIC
from holdfast.retained.store.conditional import ConditionalChange
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.values import Batch, Selection, UsageSnapshot
from holdfast.storage.revisions import RevisionClock
from tests.retained.store.memory import MemoryRetainedStore


@implementer(IRetainedStore)
class DelayedStore(MemoryRetainedStore):
    """A memory store with an explicit commit, and optionally with reads that answer later."""

    def __init__(self, now: Callable[[], int]) -> None:
        super().__init__(RevisionClock(1, 0, now))
        self.pending: list[tuple[RetainedChange | ConditionalChange | None, CommitTicket]] = []
        self.reads: list[tuple[Deferred[Batch], Batch]] = []
        self.looks: list[
            tuple[Deferred[UsageSnapshot], tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[str]]]
        ] = []
        self.read_later = False
        self.acknowledge_at_once = False  # as with the durability "async"
        self.read_count = 0
        self.failing: StorageFailure | None = None  # the failure of the reads

    def put(self, change: RetainedChange) -> CommitTicket:
        ticket = CommitTicket()
        self.pending.append((change, ticket))
        return COMMITTED if self.acknowledge_at_once else ticket

    def put_if(self, change: ConditionalChange) -> CommitTicket:
        ticket = CommitTicket()
        self.pending.append((change, ticket))
        return ticket

    def flushed(self, topic_filter: str = EVERY_TOPIC) -> CommitTicket:
        if not self.pending:
            return COMMITTED
        ticket = CommitTicket()
        self.pending.append((None, ticket))
        return ticket

    def commit(self, failure: StorageFailure | None = None) -> None:
        """Commit all pending changes, or let them fail, and settle the tickets."""
        pending, self.pending = self.pending, []
        for change, _ in pending:
            if isinstance(change, ConditionalChange) and failure is None:
                super().put_if(change)
            elif isinstance(change, RetainedChange) and failure is None:
                super().put(change)
        for change, ticket in pending:
            ticket.settle(failure if change is not None else None)
        looks, self.looks = self.looks, []
        for answer, asked in looks:
            super().read_usage(*asked).chainDeferred(answer)

    def read_usage(
        self, topics: Sequence[str], topic_filters: Sequence[str], clients: Sequence[str], payers: Sequence[str] = ()
    ) -> Deferred[UsageSnapshot]:
        if not self.pending:
            return super().read_usage(topics, topic_filters, clients, payers)
        answer: Deferred[UsageSnapshot] = Deferred()
        self.looks.append((answer, (topics, topic_filters, clients, payers)))
        return answer

    def read(
        self, selection: Selection, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool
    ) -> Deferred[Batch]:
        self.read_count += 1
        answer = super().read(selection, after, rows, slice_rows, max_bytes, detailed)
        if not self.read_later:
            return answer
        batches: list[Batch] = []
        answer.addCallback(batches.append)
        later: Deferred[Batch] = Deferred()
        self.reads.append((later, batches[0]))
        return later

    def answer_reads(self) -> None:
        """Answer the waiting reads with the messages from the time of their call."""
        if self.failing is not None:
            self.fail_reads(self.failing)
        reads, self.reads = self.reads, []
        for later, batch in reads:
            later.callback(batch)

    def fail_reads(self, failure: StorageFailure) -> None:
        """Let the waiting reads fail."""
        reads, self.reads = self.reads, []
        for later, _ in reads:
            later.errback(failure)
