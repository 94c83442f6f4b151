"""A whole broker in memory, around a database that records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import uuid4

from twisted.internet.defer import succeed

from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.recording import HistoryRecorder
from holdfast.changes.restoring import Restorer
from holdfast.core.messages import RetainedMessage
from holdfast.core.tickets import CommitTicket
from holdfast.retained.administration import Administration
from holdfast.retained.importing import ImportJob, Merger
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.staging import StagedRows, staged_row
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.verdicts import Merge
from holdfast.sessions.operator_publisher import OperatorPublisher
from holdfast.storage.store import DurableStore
from tests.doubles import START, MemoryBroker
from tests.storage.doubles import result_of


class RecordedBroker(MemoryBroker):
    """A broker whose retained messages are in a database, with their history.

    ``make`` returns the durable store, not yet open, for a clock in milliseconds.
    """

    def __init__(
        self,
        make: Callable[[Callable[[], int]], DurableStore],
        limits: RetainerLimits | None = None,
        counted: tuple[str, ...] = (),
        start: float = START,
    ) -> None:
        def store(now: Callable[[], int]) -> IRetainedStore:
            self.durable = make(now)
            limits = HistoryLimits(enable=True, keep=None)
            self.history = RetainedHistory(
                self.durable, flushed=self._flushed, clock=self.clock, now=now, limits=limits
            )
            clients = bool(counted)
            kept = SQLRetainedStore(
                self.durable,
                counted_filters=counted,
                counted_clients=clients,
                recorder=HistoryRecorder(self.durable.bulk),
            )
            self.durable.open()
            return kept

        super().__init__(store, retainer=limits, start=start)
        self.history.startService()
        self.settle()
        self.publisher = OperatorPublisher(self.router, self.clock)
        self.restorer = Restorer(self.history, self.retained, self.publisher, self.now)
        self.operator = Administration(self.retained, self.store, self.now, self.history.turn, self.publisher)

    def _flushed(self) -> CommitTicket:
        ticket: CommitTicket = self.store.flushed()
        return ticket

    def import_messages(self, messages: Iterable[RetainedMessage], merge: Merge) -> None:
        """Import messages as an operator."""
        staging = StagedRows()
        for message in messages:
            staging.add(staged_row(message))
        merger = Merger(self.retained, self.store, now=self.now, pause=lambda: succeed(None))
        job = ImportJob(uuid4().hex, staging, merge)
        while not result_of(merger.step(job)).job.is_done:
            pass

    def close(self) -> None:
        """Stop, and close the database."""
        self.history.stopService()
        self.retained.stopService()
        result_of(self.durable.close())
