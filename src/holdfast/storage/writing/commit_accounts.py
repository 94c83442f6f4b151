"""What became of the writer's commits: counted, logged, and reported to the kinds whose writes they held."""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from holdfast.log.log_throttle import LogThrottle
from holdfast.metrics.histogram import COMMIT_ROWS, COMMIT_SECONDS, Histogram
from holdfast.storage.writing.groups import CommitGroup, CommitOutcome
from holdfast.storage.writing.writes import IWriteKind, Write
from holdfast.tickets import FailureKind, StorageFailure


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
