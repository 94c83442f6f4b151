"""The one writer: everything durable goes through it, many changes to a commit, and each is told when it is safe.

Group commit without a timer: a batch is everything that became pending while the batch before was being committed.
The writer lives in the reactor thread; its transactions run on the other side of a executor, one at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.log_throttle import LogThrottle
from holdfast.storage.driver import Connection, WritableDatabase
from holdfast.storage.executor import IExecutor
from holdfast.storage.revisions import RevisionClock
from holdfast.storage.writing.committer import Committer
from holdfast.storage.writing.writes import IWriteKind, Pending, Stored, Write, WriterCounters, put_back
from holdfast.tickets import COMMITTED, CommitTicket, FailureKind, StorageFailure

T = TypeVar("T")

#: Seconds until a database that is away is tried again: doubled from the first to the longest.
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
#: Bytes pending above which publishers are asked to pause.
MAX_PENDING = 16 << 20


class _Errand(Pending):
    """Other work for the writer's thread: it carries no writes, only tickets that wait for its turn to pass."""

    __slots__ = ("answer", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__()
        self.work = work
        self.answer: Deferred[Any] = Deferred()


class Writer:
    """Commits writes in batches and settles their tickets, in order of submission, in the reactor thread.

    ``max_pending`` is in bytes. With a ``flush_interval`` (seconds; durability "async"), changes are acknowledged at
    once and committed at most that often; without, they are acknowledged when committed. So are they with one, too,
    while changes acknowledged that long ago are not committed yet, or the last commit has failed: never more than one
    ``flush_interval`` of what was acknowledged is at stake. ``gather`` calls back when an idle writer should begin (at
    the end of the reactor turn, so that a burst's first batch is not a single row); without it, at once.
    """

    _log = Logger()

    def __init__(
        self,
        database: WritableDatabase,
        executor: IExecutor,
        clock: RevisionClock,
        reactor: IReactorTime,
        max_pending: int = MAX_PENDING,
        flush_interval: float | None = None,
        gather: Callable[[Callable[[], None]], object] | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.counters = WriterCounters()
        self.pending_bytes = 0
        self._database = database
        self._batches = Committer(database, clock.node, connection)
        self._executor = executor
        self._clock = clock
        self._reactor = reactor
        self._max_pending = max_pending
        self._flush_interval = flush_interval
        self._gather = gather
        self._gathering = False
        self._log_throttle = LogThrottle(self._log, reactor.seconds)
        self._pressure_hooks: list[Callable[[bool], None]] = []
        self._pressed = False
        self._queue: deque[Pending] = deque()
        self._running: Pending | None = None
        self._finished: deque[tuple[Pending, Any]] = deque()
        self._draining = False
        self._settling = False
        self._timer: IDelayedCall | None = None
        self._due = False
        self._closed: StorageFailure | None = None
        self._failing = False  #: the last commit failed, or the database is away
        self._away = 0  #: attempts since the database was there
        self._retry: IDelayedCall | None = None

    def on_pressure(self, hook: Callable[[bool], None]) -> None:
        """Call the hook with True when more than ``max_pending`` bytes wait, with False once half of that is gone."""
        self._pressure_hooks.append(hook)

    def submit(self, write: Write) -> CommitTicket:
        """Take a write for the next commit; its ticket is settled when it is durable, or will never be."""
        ticket = CommitTicket()
        if self._closed is not None:
            ticket.settle(self._closed)
            return ticket
        batch = self._take(write)
        if self._flush_interval is not None and self._vouches(batch, self._flush_interval):
            ticket = COMMITTED
        else:
            self._due = True  # somebody waits
            batch.tickets.append(((write.kind, write.key), ticket))
        self._begin()
        return ticket

    def add(self, write: Write) -> None:
        """Take a write for the next commit that nobody waits for. A closed writer takes none."""
        if self._closed is None:
            self._take(write)
            self._begin()

    def _vouches(self, batch: Pending, flush_interval: float) -> bool:
        """Tell whether a change that is in this batch may be acknowledged before its commit."""
        if self._failing:
            return False
        now = self._reactor.seconds()
        ahead = self._queue if self._running is None else (self._running, *self._queue)
        oldest = next((each.acknowledged_at for each in ahead if each.acknowledged_at is not None), now)
        if now - oldest >= flush_interval:
            return False
        if batch.acknowledged_at is None:
            batch.acknowledged_at = now
        return True

    def _take(self, write: Write) -> Pending:
        queue = self._queue
        if not queue or type(queue[-1]) is not Pending:
            queue.append(Pending())
        batch = queue[-1]
        self.pending_bytes += batch.add(write)
        return batch

    def _begin(self) -> None:
        if self.pending_bytes > self._max_pending:
            self._due = True
            self._feel_pressure()
        if self._gather is None:
            self._start()
        elif not self._gathering and self._running is None and not self._settling:
            self._gathering = True
            self._gather(self._gathered)

    def flushed(self) -> CommitTicket:
        """Return a ticket settled, without a failure, when all submitted before is committed or has failed.

        It brings an "async" commit forward.
        """
        last = self._queue[-1] if self._queue else self._running
        if last is None:
            return COMMITTED
        ticket = CommitTicket()
        last.tickets.append((None, ticket))
        if self._queue:
            self._hurry()
        return ticket

    def run(self, work: Callable[[Connection], T], in_transaction: bool = True) -> Deferred[T]:
        """Run work in the writer's thread after all that was submitted before, by default in its own transaction.

        Fails with what the work raised, or :class:`StorageFailure` when the database failed.
        """
        if self._closed is not None:
            return fail(self._closed)
        return self._send(partial(self._batches.transact if in_transaction else self._batches.attend, work))

    def close(self) -> Deferred[None]:
        """Commit all that is pending, bring the files in order and close the connection. Nothing is taken any more."""
        if self._closed is not None:
            return fail(self._closed)
        self._closed = StorageFailure(FailureKind.UNAVAILABLE, "the store is closed")
        if self._retry is not None:  # one last attempt
            self._retry.cancel()
            self._retry = None
        return self._send(self._batches.close)

    def _send(self, work: Callable[[], T]) -> Deferred[T]:
        errand = _Errand(work)
        self._queue.append(errand)
        self._hurry()
        return errand.answer

    def _hurry(self) -> None:
        self._due = True
        self._start()

    def _start(self) -> None:
        """Hand the next batch over, unless one is being committed, settled, or an interval has to pass first."""
        if self._running is not None or self._settling or self._retry is not None or not self._queue:
            return
        if self._flush_interval is not None and not self._due:
            if self._timer is None:
                self._timer = self._reactor.callLater(self._flush_interval, self._interval_passed)
            return
        batch = self._running = self._queue.popleft()
        if not self._queue:
            self._due = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if isinstance(batch, _Errand):
            work: Callable[[], Any] = batch.work
        else:
            work = partial(self._batches.store, list(batch.writes.values()), self._clock.latest)
        self._executor.call(work, self._done)

    def _gathered(self) -> None:
        self._gathering = False
        self._start()

    def _interval_passed(self) -> None:
        self._timer = None
        self._hurry()

    def _done(self, outcome: Any) -> None:
        """Take the outcome of the running batch, then settle; batches that end meanwhile are settled after it."""
        batch, self._running = self._running, None
        assert batch is not None
        if not isinstance(batch, _Errand):
            outcome = self._account(batch, outcome)
            self._failing = outcome.away is not None or any(
                failure.kind is not FailureKind.REFUSED for failure in outcome.failures.values()
            )
            if outcome.away is not None and self._wait(batch, outcome):
                batch = self._stored_of(batch, outcome)
            else:
                self._away = 0
        self._finished.append((batch, outcome))
        if self._draining:
            return
        self._draining = True
        try:
            while self._finished:
                self._start()  # the next batch is committed while this one's tickets are settled
                self._settling = True
                self._settle(*self._finished.popleft())
                self._settling = False
                self._start()
        finally:
            self._draining = self._settling = False

    @property
    def available(self) -> bool:
        """Whether the database was there when it was last written to."""
        return not self._away

    def _wait(self, batch: Pending, outcome: Stored) -> bool:
        """Keep what a database that is away has left, and try again soon; not if the writer is to close."""
        failure = outcome.away
        assert failure is not None
        if self._closed is not None:
            outcome.failures.update({(write.kind, write.key): failure for write in outcome.left})
            return False
        self._log_throttle.log("away", f"{len(outcome.left)} changes wait for the database: {failure}")
        queued = None
        if self._queue and type(self._queue[0]) is Pending:
            queued = self._queue.popleft()
        merged = put_back(outcome.left, batch, queued)
        self._queue.appendleft(merged)
        self.pending_bytes += merged.size - (queued.size if queued is not None else 0)
        self._feel_pressure()
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**self._away)
        self._away += 1
        self._retry = self._reactor.callLater(delay, self._try_again)
        return True

    def _stored_of(self, batch: Pending, outcome: Stored) -> Pending:
        """Return the batch with the tickets only of what has been stored or refused."""
        left = {(write.kind, write.key) for write in outcome.left}
        batch.tickets = [entry for entry in batch.tickets if entry[0] is not None and entry[0] not in left]
        return batch

    def _try_again(self) -> None:
        self._retry = None
        self._hurry()

    def _account(self, batch: Pending, outcome: Stored | BaseException) -> Stored:
        if isinstance(outcome, BaseException):  # not one of the database's failures: those come in a Stored
            failure = StorageFailure(FailureKind.UNAVAILABLE, f"the writer failed: {outcome!r}")
            outcome = Stored([], dict.fromkeys(batch.writes, failure))
        for kind, account in outcome.accounts:
            kind.committed(account)
        counters = self.counters
        counters.commits += outcome.commits
        counters.rows += outcome.rows
        counters.coalesced += batch.coalesced
        counters.cancelled += batch.cancelled
        counters.failed += len(outcome.failures)
        counters.seconds += outcome.seconds
        if outcome.failures:
            self._report(outcome)
            self._tell_kinds(batch, outcome)
        self.pending_bytes -= batch.size
        self._feel_pressure()
        return outcome

    def _report(self, outcome: Stored) -> None:
        by_kind: dict[FailureKind, list[StorageFailure]] = {}
        for failure in outcome.failures.values():
            by_kind.setdefault(failure.kind, []).append(failure)
        for kind, failures in by_kind.items():
            self._log_throttle.log(kind.value, f"{len(failures)} changes not stored ({kind.value}): {failures[0]}")

    def _tell_kinds(self, batch: Pending, outcome: Stored) -> None:
        told: dict[tuple[IWriteKind, FailureKind], tuple[StorageFailure, list[Write]]] = {}
        for identity, failure in outcome.failures.items():
            write = batch.writes.get(identity)
            if write is not None:
                told.setdefault((write.kind, failure.kind), (failure, []))[1].append(write)
        for (kind, _), (failure, writes) in told.items():
            kind.failed(writes, failure)

    def _settle(self, batch: Pending, outcome: Any) -> None:
        if isinstance(batch, _Errand):
            self._answer(batch, outcome)
        failures = outcome.failures if isinstance(outcome, Stored) else {}
        for identity, ticket in batch.tickets:
            try:
                ticket.settle(failures.get(identity) if failures and identity else None)
            except Exception:  # noqa: BLE001 - one waiter's mistake must not cost the others their acknowledgement
                self._log.failure("an acknowledgement failed")

    def _answer(self, errand: _Errand, outcome: Any) -> None:
        if not isinstance(outcome, BaseException):
            errand.answer.callback(outcome)
            return
        failure = self._database.failure(outcome)
        errand.answer.errback(outcome if failure.kind is FailureKind.REFUSED else failure)

    def _feel_pressure(self) -> None:
        pressed = self.pending_bytes > (self._max_pending // 2 if self._pressed else self._max_pending)
        if pressed is not self._pressed:
            self._pressed = pressed
            for hook in self._pressure_hooks:
                try:
                    hook(pressed)
                except Exception:  # noqa: BLE001 - it must not keep the batch from being settled
                    self._log.failure("a pressure hook failed")
