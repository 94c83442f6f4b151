"""A periodic job survives every failing run, and reports the first one and the recovery."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent

from holdfast.scheduling.deadlines import PeriodicJob
from holdfast.watch.log import LastingFailure
from tests.logs import logged


class Foreseen(Exception):
    """A failure that is expected now and then."""


class Work:
    """Counts its runs, and fails as told."""

    def __init__(self) -> None:
        self.runs = 0
        self.outcome: Callable[[], object] = lambda: None

    def __call__(self) -> object:
        self.runs += 1
        return self.outcome()


@pytest.fixture
def events() -> Iterator[list[LogEvent]]:
    with logged(LastingFailure) as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work(clock: Clock, events: list[LogEvent]) -> Work:
    work = Work()
    PeriodicJob(work, name="the job", interval=10, clock=clock, foreseen=(Foreseen,)).start(10)
    return work


def raises(error: Exception) -> Callable[[], object]:
    def outcome() -> object:
        raise error

    return outcome


@pytest.mark.parametrize(
    "outcome", [raises(OSError(24, "too many files")), lambda: fail(OSError(24, "too many files"))]
)
def test_a_failing_run_is_reported_once_and_the_job_goes_on(
    clock: Clock,
    work: Work,
    events: list[LogEvent],
    logged_failures: list[LogEvent],
    outcome: Callable[[], object],
) -> None:
    work.outcome = outcome
    for _ in range(5):
        clock.advance(10)
    assert work.runs == 5
    assert [formatEvent(event) for event in events] == ["the job failed, and is tried again every 10 s"]
    assert events[0]["log_failure"].type is OSError
    logged_failures.clear()
    work.outcome = lambda: None
    clock.advance(10)
    clock.advance(10)
    assert work.runs == 7
    assert [formatEvent(event) for event in events[1:]] == ["the job works again, after 5 failures"]
    work.outcome = outcome
    clock.advance(10)
    assert len(events) == 3
    logged_failures.clear()


def test_a_foreseen_failure_is_one_sentence(clock: Clock, work: Work, events: list[LogEvent]) -> None:
    work.outcome = raises(Foreseen("the database is away"))
    clock.advance(10)
    [event] = events
    assert formatEvent(event) == "the job failed, and is tried again every 10 s: the database is away"
    assert "log_failure" not in event


def test_a_run_waits_for_the_run_before_it(clock: Clock, work: Work) -> None:
    slow: Deferred[None] = Deferred()
    work.outcome = lambda: slow
    for _ in range(3):
        clock.advance(10)
    assert work.runs == 1
    work.outcome = lambda: None
    clock.advance(4)
    slow.callback(None)
    clock.advance(5)
    assert work.runs == 1
    clock.advance(1)
    assert work.runs == 2


def test_a_stopped_job_does_not_run(clock: Clock, events: list[LogEvent]) -> None:
    work = Work()
    job = PeriodicJob(work, name="the job", interval=10, clock=clock)
    job.stop()
    job.start()
    clock.advance(0)
    assert work.runs == 1
    job.stop()
    clock.advance(100)
    assert work.runs == 1


def test_a_hurried_job_runs_at_once_and_then_as_before(clock: Clock, events: list[LogEvent]) -> None:
    work = Work()
    job = PeriodicJob(work, name="the job", interval=10, clock=clock)
    job.hurry()
    clock.advance(10)
    assert work.runs == 0  # it has not been started
    job.start(10)
    clock.advance(5)
    job.hurry()
    clock.advance(0)
    assert work.runs == 1
    clock.advance(9)
    assert work.runs == 1
    clock.advance(1)
    assert work.runs == 2
    job.stop()


def test_a_job_that_is_hurried_while_it_runs_runs_once_more_behind_it(clock: Clock, events: list[LogEvent]) -> None:
    work, running = Work(), Deferred[None]()
    work.outcome = lambda: running
    job = PeriodicJob(work, name="the job", interval=10, clock=clock)
    job.start()
    clock.advance(0)
    job.hurry()
    job.hurry()
    clock.advance(3)
    assert work.runs == 1
    work.outcome = lambda: None
    running.callback(None)
    clock.advance(0)
    assert work.runs == 2
    clock.advance(9)
    assert work.runs == 2
    job.stop()


def test_a_job_that_is_started_again_while_it_runs_has_one_next_run(clock: Clock, events: list[LogEvent]) -> None:
    """A service that is stopped and started in a slow run would otherwise run its job twice for ever."""
    work, running = Work(), Deferred[None]()
    work.outcome = lambda: running
    job = PeriodicJob(work, name="the job", interval=10, clock=clock)
    job.start()
    clock.advance(0)
    job.stop()
    job.start(3)
    clock.advance(20)
    assert work.runs == 1  # the run before has not ended
    work.outcome = lambda: None
    running.callback(None)
    clock.advance(3)
    assert work.runs == 2
    clock.advance(10)
    assert work.runs == 3
    job.start(1)  # in the place of the run that is due in ten seconds
    clock.advance(1)
    assert work.runs == 4
    clock.advance(9.5)
    assert work.runs == 4
    job.stop()
