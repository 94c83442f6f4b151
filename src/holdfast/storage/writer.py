"""The one writer: it commits all durable changes, many in one transaction, and settles their tickets.

How it works
============

The writer lives in the reactor thread. Its transactions run in the writer's thread, one at a time; an executor carries
them there and their outcomes back. Only ``Committer`` and ``IWriteKind.apply`` run in the writer's thread, and no state
is shared: a group that has been handed over is not changed until its outcome is back.

Commits are grouped without a timer. All changes that arrive during a commit are one *commit group*, which is the next
commit. So the groups grow with the load, and a single change waits for nothing:

    ms    reactor thread                                          writer's thread
    0.0   put a=1 -> ticket 1; IDLE -> GATHERING
    0.1   put b=1 -> ticket 2
    0.2   the turn ends; -> COMMITTING with {a=1, b=1}            BEGIN, upsert 2 rows
    0.9   put a=2 -> ticket 3; put c=1 -> ticket 4; put a=3 -> ticket 5
    1.4                                                           COMMIT
    1.5   done: -> COMMITTING with {c=1, a=3}                     BEGIN, upsert 2 rows
          meanwhile tickets 1 and 2 are settled: PUBACK for a, b
    2.6   done; tickets 3, 4 and 5 are settled; -> IDLE           COMMIT

A later change of the same key replaces an earlier one in its group (a=2 is never written), and one commit settles the
tickets of both. Invariants: tickets are settled in the order of submission; a ticket is settled without a failure only
after the commit that contains its change, or a later change of the same key.

The states, and the events that leave them:

    IDLE        nothing is to be done. A change leads to GATHERING (in tools, which have no turns, to COMMITTING); a
                change that no client waits for ("async") to DELAYED; an errand or ``close`` to COMMITTING.
    GATHERING   changes wait for the end of the reactor turn, so that the first commit of a burst has more than one row.
                The end of the turn, an errand, or ``flushed`` leads to COMMITTING.
    DELAYED     durability "async": changes wait for the flush interval. Its end, an errand, or ``flushed`` leads to
                COMMITTING; a change that a client waits for, or too many pending bytes, to GATHERING.
    COMMITTING  a group or an errand is in the writer's thread. Its outcome leads to IDLE, or to AWAY.
    AWAY        the database is away. A timer (0.1 s, doubled up to 5 s) or ``close`` leads to IDLE, from which the next
                attempt begins at once.
    FENCED      another incarnation of this node has begun. The state is final: no ticket is settled, errands fail.

*Settling* overlaps with the states: the next group is already being committed while tickets are settled. Changes that
are submitted by a ticket's callback wait until all tickets of the group are settled, so that they share a commit.

*Maintenance* of the database, such as moving SQLite's log, follows each commit in the writer's thread. The outcome is
handed over before, so the acknowledgements of a commit do not wait for it, and new packets are read meanwhile.

*Errands* are other work for the writer's thread, such as counting behind all changes submitted so far. They stand in
the same queue, between groups, and have a transaction of their own.

*Async durability* acknowledges a change at once. The loss after a crash is at most one flush interval of acknowledged
changes: if the oldest acknowledged change is older than that, or if the last commit failed, tickets wait again.

*Back-pressure*: above ``max_pending`` bytes the hooks are told to pause the publishers, below half of it to resume.

*A database that is away*: the committer returns the writes that it has left. They go back to the head of the queue,
merged with the group behind them, and their tickets go on waiting. Failed writes are reported to their kinds, and their
tickets are settled with the failure.

Left out: a timer that delays commits to make groups larger (it delays every PUBACK, and under load the groups are large
anyway), and several commits at a time (SQLite allows one writer, and settling in order would need a second queue).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from holdfast.core.tickets import COMMITTED, CommitTicket, FailureKind, RunTicket, StorageFailure, Superseded
from holdfast.storage.committer import (
    CommitGroup,
    CommitOutcome,
    Committer,
    Errand,
    IWriteKind,
    Write,
    merge_left,
    note_failures,
)
from holdfast.storage.driver import Connection, WritableDatabase
from holdfast.storage.executor import IExecutor
from holdfast.storage.revisions import RevisionClock
from holdfast.watch.lazy_log import LogThrottle
from holdfast.watch.metrics import COMMIT_ROWS, COMMIT_SECONDS, Histogram

T = TypeVar("T")

#: Seconds until the next attempt if the database is away: doubled from the first delay to the longest one.
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
#: The bound of pending bytes, above which publishers are paused.
MAX_PENDING = 64 << 20


class _State(Enum):
    IDLE = "idle"
    GATHERING = "gathering"
    DELAYED = "delayed"
    COMMITTING = "committing"
    AWAY = "away"
    FENCED = "fenced"


# Names of their own, because the hot path compares states: an attribute of an Enum class takes longer to read.
_IDLE, _GATHERING, _DELAYED, _COMMITTING, _AWAY, _FENCED = _State

#: The states that may follow each state. An entry that is missing here is an error of the writer.
_NEXT = {
    _IDLE: (_GATHERING, _DELAYED, _COMMITTING),
    _GATHERING: (_COMMITTING,),
    _DELAYED: (_GATHERING, _COMMITTING),
    _COMMITTING: (_IDLE, _AWAY, _FENCED),
    _AWAY: (_IDLE,),
    _FENCED: (),
}


class Writer:
    """Commits writes in groups and settles their tickets in the order of submission, in the reactor thread.

    ``max_pending`` is in bytes. ``flush_interval`` (seconds) is given for durability "async" only. ``at_turn_end``
    calls its argument at the end of the reactor turn; without it, an idle writer begins at once. ``connection`` is a
    writer's connection that is already open. ``on_superseded`` is called once if the state becomes FENCED.
    """

    _log = Logger()

    def __init__(
        self,
        database: WritableDatabase,
        executor: IExecutor,
        clock: RevisionClock,
        reactor: IReactorTime,
        *,
        max_pending: int = MAX_PENDING,
        flush_interval: float | None = None,
        at_turn_end: Callable[[Callable[[], None]], object] | None = None,
        connection: Connection | None = None,
        on_superseded: Callable[[], None] | None = None,
    ) -> None:
        self._accounts = CommitAccounts(reactor)
        self.counters = self._accounts.counters
        self.pending_bytes = 0
        self._database = database
        self._committer = Committer(database, clock.node, connection)
        self._executor = executor
        self._clock = clock
        self._reactor = reactor
        self._max_pending = max_pending
        self._flush_interval = flush_interval
        self._at_turn_end = at_turn_end
        self._pressure_hooks: list[Callable[[bool], None]] = []
        self._pressed = False
        self._state = _IDLE
        self._timer: IDelayedCall | None = None  #: runs in the states DELAYED and AWAY
        self._queue: deque[CommitGroup] = deque()
        self._running: CommitGroup | None = None  #: in the writer's thread, in the state COMMITTING
        self._settling = False
        self._finished: deque[tuple[CommitGroup, Any]] = deque()  #: to be settled, the oldest first
        self._urgent = False  #: the queue does not wait for the flush interval
        self._failing = False  #: the last commit failed, or the database is away
        self._attempts = 0  #: failed attempts since the database went away
        self._closed: StorageFailure | None = None
        self._superseded: Superseded | None = None
        self._on_superseded = on_superseded

    def on_pressure(self, hook: Callable[[bool], None]) -> None:
        """Call the hook with True above ``max_pending`` pending bytes, then with False below half of that."""
        self._pressure_hooks.append(hook)

    @property
    def available(self) -> bool:
        """Whether the last attempt to write reached the database, and this node may write."""
        return not self._attempts and self._superseded is None

    @property
    def pending_changes(self) -> int:
        """How many changes wait for their commit, or are being committed."""
        groups = self._queue if self._running is None else (self._running, *self._queue)
        return sum(len(group.writes) for group in groups if type(group) is CommitGroup)

    @property
    def room(self) -> int:
        """How many bytes may be added before publishers are told to pause."""
        return self._max_pending - self.pending_bytes

    # --- work comes in ------------------------------------------------------------------------------------------------

    def submit(self, write: Write, committed: bool = False) -> CommitTicket:
        """Add a write to the next commit. Its ticket is settled when it is durable or has failed.

        With ``committed`` that holds for durability "async" too: the caller needs what the commit decides.
        """
        ticket = CommitTicket()
        if self._closed is not None:
            ticket.settle(self._closed)
            return ticket
        group = self._queued(write)
        if not committed and self._flush_interval is not None and self._may_acknowledge(group, self._flush_interval):
            ticket = COMMITTED
        else:
            self._urgent = True  # a client waits
            group.tickets.append(((write.kind, write.key), ticket))
        self._arrange()
        return ticket

    def submit_together(self, writes: Sequence[Write]) -> CommitTicket:
        """Add writes to the next commit with one ticket, which knows the failure of each."""
        ticket = RunTicket()
        if self._closed is not None:
            ticket.settle(self._closed)
            return ticket
        group = self._open_group()
        for write in writes:
            self.pending_bytes += group.add(write)
        if self._flush_interval is not None and self._may_acknowledge(group, self._flush_interval):
            self._arrange()
            return COMMITTED
        self._urgent = True  # a client waits
        group.tickets.append(([(write.kind, write.key) for write in writes], ticket))
        self._arrange()
        return ticket

    def add(self, write: Write) -> None:
        """Add a write to the next commit without a ticket. A closed writer ignores it."""
        if self._closed is None:
            self._queued(write)
            self._arrange()

    def flushed(self) -> CommitTicket:
        """Return a ticket that is settled, without a failure, when all earlier changes are committed or have failed.

        With durability "async" this begins the commit early.
        """
        ticket = CommitTicket()
        if self._state is _FENCED:
            return ticket
        last = self._queue[-1] if self._queue else self._running
        if last is None:
            return COMMITTED
        last.tickets.append((None, ticket))
        if self._queue:
            self._hurry()
        return ticket

    def run(self, work: Callable[[Connection], T], in_transaction: bool = True) -> Deferred[T]:
        """Run work in the writer's thread after all earlier changes, by default in a transaction of its own.

        Fails with the exception of the work, or with :class:`StorageFailure` if the database failed.
        """
        refused = self._closed or self._superseded
        if refused is not None:
            return fail(refused)
        committer = self._committer
        return self._send(partial(committer.transact if in_transaction else committer.run_outside_transaction, work))

    def close(self) -> Deferred[None]:
        """Commit all pending changes, complete the files and close the connection. Later changes are refused."""
        if self._closed is not None:
            return fail(self._closed)
        self._closed = StorageFailure(FailureKind.UNAVAILABLE, "the store is closed")
        if self._state is _FENCED:
            closed: Deferred[None] = Deferred()
            self._executor.call(self._committer.close, lambda _: closed.callback(None))
            return closed
        if self._state is _AWAY:
            self._enter(_IDLE)  # one last attempt
        return self._send(self._committer.close)

    def _open_group(self) -> CommitGroup:
        queue = self._queue
        if not queue or type(queue[-1]) is not CommitGroup:  # a group never overtakes an errand
            queue.append(CommitGroup(self._reactor.seconds()))
        return queue[-1]

    def _queued(self, write: Write) -> CommitGroup:
        group = self._open_group()
        self.pending_bytes += group.add(write)
        return group

    def _may_acknowledge(self, group: CommitGroup, flush_interval: float) -> bool:
        """Tell whether a change of this group may be acknowledged before its commit."""
        if self._failing:
            return False
        now = self._reactor.seconds()
        uncommitted = self._queue if self._running is None else (self._running, *self._queue)
        oldest = next((each.acknowledged_at for each in uncommitted if each.acknowledged_at is not None), now)
        if now - oldest >= flush_interval:
            return False
        if group.acknowledged_at is None:
            group.acknowledged_at = now
        return True

    def _send(self, work: Callable[[], T]) -> Deferred[T]:
        errand = Errand(work)
        self._queue.append(errand)
        self._hurry()
        return errand.answer

    # --- when a commit begins -----------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Begin a commit, or wait for the turn's end or the flush interval; called for each queued change."""
        if self.pending_bytes > self._max_pending:
            self._urgent = True
            self._update_pressure()
        state = self._state
        # In every other state, and while tickets are settled, the next commit is arranged already.
        if (state is _IDLE or (state is _DELAYED and self._urgent)) and not self._settling:
            if self._at_turn_end is None or (self._flush_interval is not None and not self._urgent):
                self._begin()
            else:
                self._enter(_GATHERING)
                self._at_turn_end(self._turn_ended)

    def _hurry(self) -> None:
        self._urgent = True
        if not self._settling:  # else the loop that settles begins the commit
            self._begin()

    def _begin(self) -> None:
        """Hand the oldest group over, or start the flush interval. A commit in progress or a retry comes first."""
        if not self._queue or self._state in (_COMMITTING, _AWAY, _FENCED):
            return
        if self._flush_interval is not None and not self._urgent:
            if self._state is not _DELAYED:
                self._enter(_DELAYED)
                self._timer = self._reactor.callLater(self._flush_interval, self._timer_fired)
            return
        self._enter(_COMMITTING)
        group = self._running = self._queue.popleft()
        if not self._queue:
            self._urgent = False
        if isinstance(group, Errand):
            work: Callable[[], Any] = group.work
        else:
            work = partial(self._committer.store, list(group.writes.values()), self._clock.latest)
        self._executor.call(work, self._done, self._committer.maintain)

    def _turn_ended(self) -> None:
        if self._state is _GATHERING:  # else an errand has begun the commit before
            self._begin()

    def _timer_fired(self) -> None:
        self._timer = None
        if self._state is _AWAY:
            self._enter(_IDLE)
        self._hurry()

    def _enter(self, state: _State) -> None:
        if state not in _NEXT[self._state]:
            raise RuntimeError(f"the writer cannot go from {self._state} to {state}")
        self._state = state
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- an outcome comes back ----------------------------------------------------------------------------------------

    def _done(self, outcome: Any) -> None:
        """Take the outcome of the running group and settle its tickets, after those of older groups."""
        group, self._running = self._running, None
        assert group is not None
        superseded = outcome.away if isinstance(outcome, CommitOutcome) else outcome
        if isinstance(superseded, Superseded):
            self._fence(group, superseded)
            return
        away = False
        if not isinstance(group, Errand):
            outcome = self._accounts.enter(group, outcome)
            self.pending_bytes -= group.size
            self._update_pressure()
            self._failing = outcome.away is not None or any(
                failure.kind is not FailureKind.REFUSED for failure in outcome.failures.values()
            )
            away = outcome.away is not None and self._put_back(group, outcome)
            if not away:
                self._attempts = 0
        # The state changes only now: changes that a kind or a hook has submitted above must not begin a commit too
        # early.
        self._enter(_AWAY if away else _IDLE)
        if away:
            delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**self._attempts)
            self._attempts += 1
            self._timer = self._reactor.callLater(delay, self._timer_fired)
        self._finished.append((group, outcome))
        # A ticket's callback, or a synchronous executor, has called this again: the outer call's loop continues.
        if self._settling:
            return
        self._settling = True
        try:
            self._begin()  # the next group is committed while the tickets of this one are settled
            while self._finished:
                self._settle(*self._finished.popleft())
                self._begin()  # with the changes that the tickets' callbacks have submitted
        finally:
            self._settling = False

    def _fence(self, group: CommitGroup, superseded: Superseded) -> None:
        """Store nothing any more, and settle no ticket: the clients must not hear from this incarnation."""
        self._superseded = superseded
        self._enter(_FENCED)
        for each in (group, *self._queue):
            if isinstance(each, Errand):
                each.answer_with(superseded, self._database)
        self._queue.clear()
        if self._on_superseded is not None:
            self._on_superseded()

    def _put_back(self, group: CommitGroup, outcome: CommitOutcome) -> bool:
        """Put the writes that the outcome has left back into the queue; False if the writer closes: they fail."""
        failure = outcome.away
        assert failure is not None
        if self._closed is not None:
            outcome.failures.update({(write.kind, write.key): failure for write in outcome.left})
            return False
        self._accounts.wait(len(outcome.left), failure)
        queued = None
        if self._queue and type(self._queue[0]) is CommitGroup:
            queued = self._queue.popleft()
        note_failures(group.tickets, outcome.failures)  # of writes that run tickets share with those left
        merged = merge_left(outcome.left, group, queued)
        group.keep_settled(outcome.left)
        self._queue.appendleft(merged)
        self.pending_bytes += merged.size - (queued.size if queued is not None else 0)
        self._update_pressure()
        return True

    def _settle(self, group: CommitGroup, outcome: Any) -> None:
        if isinstance(group, Errand):
            group.answer_with(outcome, self._database)
        elif group.tickets:
            self.counters.waits.observe(max(0.0, self._reactor.seconds() - group.began), len(group.tickets))
        failures = outcome.failures if isinstance(outcome, CommitOutcome) else {}
        note_failures(group.tickets, failures)
        for identity, ticket in group.tickets:
            try:
                ticket.settle(failures.get(identity) if failures and isinstance(identity, tuple) else None)
            except Exception:  # noqa: BLE001 - one callback's mistake must not cost the others their acknowledgement
                self._log.failure("an acknowledgement failed")

    def _update_pressure(self) -> None:
        pressed = self.pending_bytes > (self._max_pending // 2 if self._pressed else self._max_pending)
        if pressed is not self._pressed:
            self._pressed = pressed
            for hook in self._pressure_hooks:
                try:
                    hook(pressed)
                except Exception:  # noqa: BLE001 - a failing hook must not keep the group from being settled
                    self._log.failure("a pressure hook failed")


# What became of the writer's commits: counted, logged, and reported to the kinds whose writes they held.


@define
class WriterCounters:
    """Totals since the writer was made. ``seconds`` is the time that its thread has spent on commit groups.

    ``durations`` are the seconds of commit groups in the thread, ``sizes`` their rows. ``waits`` are the seconds from
    a change until its ticket is settled: each ticket counts with the age of its group, the longest of them.
    """

    commits: int = 0
    rows: int = 0
    coalesced: int = 0
    cancelled: int = 0
    failed: int = 0
    seconds: float = 0.0
    durations: Histogram = field(factory=lambda: Histogram(COMMIT_SECONDS))
    sizes: Histogram = field(factory=lambda: Histogram(COMMIT_ROWS))
    waits: Histogram = field(factory=lambda: Histogram(COMMIT_SECONDS))


class CommitAccounts:
    """Takes the outcome of each commit group, in the reactor thread. The tickets are not its matter."""

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self.counters = WriterCounters()
        self._log_throttle = LogThrottle(self._log, clock.seconds)

    def enter(self, group: CommitGroup, outcome: CommitOutcome | BaseException) -> CommitOutcome:
        """Report the outcome to the kinds and count it. For an exception, all writes have failed."""
        if isinstance(outcome, BaseException):  # an error of this program; those of the database are inside an outcome
            failure = StorageFailure(FailureKind.UNAVAILABLE, f"the writer failed: {outcome!r}")
            outcome = CommitOutcome([], dict.fromkeys(group.writes, failure))
        for kind, result in outcome.results:
            try:
                kind.committed(result)
            except Exception:  # noqa: BLE001 - the writer must go on, and the other kinds must hear of their commits
                self._log.failure("{kind}: a commit could not be accounted for", kind=kind.name)
        counters = self.counters
        counters.commits += outcome.commits
        counters.rows += outcome.rows
        counters.coalesced += group.coalesced
        counters.cancelled += group.cancelled
        counters.failed += len(outcome.failures)
        counters.seconds += outcome.seconds
        counters.durations.observe(outcome.seconds)
        counters.sizes.observe(outcome.rows)
        if outcome.failures:
            self._report(group, outcome)
        return outcome

    def _report(self, group: CommitGroup, outcome: CommitOutcome) -> None:
        """Log the failures, and tell each kind about its writes that failed."""
        failed: dict[FailureKind, list[StorageFailure]] = {}
        writes_of: dict[tuple[IWriteKind, FailureKind], tuple[StorageFailure, list[Write]]] = {}
        for identity, failure in outcome.failures.items():
            failed.setdefault(failure.kind, []).append(failure)
            write = group.writes.get(identity)
            if write is not None:
                writes_of.setdefault((write.kind, failure.kind), (failure, []))[1].append(write)
        for why, failures in failed.items():
            self._log_throttle.log(why.value, f"changes not stored ({why.value}): {len(failures)}; {failures[0]}")
        for (kind, _), (failure, writes) in writes_of.items():
            try:
                kind.failed(writes, failure)
            except Exception:  # noqa: BLE001 - as above
                self._log.failure("{kind}: a failed commit could not be accounted for", kind=kind.name)

    def wait(self, count: int, failure: StorageFailure) -> None:
        """Log that changes wait for a database that is away."""
        self._log_throttle.log("away", f"changes wait for the database: {count}; {failure}")
