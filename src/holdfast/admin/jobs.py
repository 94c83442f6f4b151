"""The jobs that calls have begun: those that run, and for an hour the results of those that are over.

A handler begins one and answers with :func:`accepted`:

    job = self._jobs.begin("backup", str(call.caller), self._back_up)
    return succeed(accepted(job))

The work is given the job, and tells its progress there: ``job.done = 7``. Its Deferred fires with the result, which
must be JSON; it is cancelled if an operator cancels the job. A cancelled or failed job keeps the ``job.result`` that
the work has set so far.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from enum import Enum
from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http

from holdfast.admin.address import JOBS_PATH
from holdfast.admin.call import Answer, Refusals, RefusedCall, answer, unavailable
from holdfast.core.tickets import StorageFailure
from holdfast.core.units import second_of
from holdfast.storage.location import StoreUnusable

#: the most jobs that run at one time, and that are known
MOST_RUNNING, MOST_JOBS = 8, 200
#: the running jobs that were adopted, above which no more calls should begin that may become jobs
MOST_ADOPTED = 100
#: milliseconds for which the result of a job is kept
RESULT_KEPT = 3_600_000


class State(Enum):
    """Whether a job runs, and how it has ended."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@define(eq=False)
class Job:
    """A job. ``done`` of ``total`` (None: not known) is its progress; times are milliseconds since the epoch.

    ``now`` returns such a time. ``about`` says what the job works on, such as a Topic Filter.
    """

    kind: str
    by: str
    began: int
    now: Callable[[], int]
    about: str = ""
    number: str = field(factory=lambda: secrets.token_hex(8))
    state: State = State.RUNNING
    done: int = 0
    total: int | None = None
    ended: int | None = None
    result: Any = None
    problem: str | None = None

    @property
    def rate(self) -> float:
        """What was done in a second, on average."""
        elapsed = max(1, (self.now() if self.ended is None else self.ended) - self.began)
        return round(1000 * self.done / elapsed, 1)

    def shown(self) -> dict[str, Any]:
        """Return the job as JSON."""
        return {
            "id": self.number,
            "kind": self.kind,
            "about": self.about,
            "by": self.by,
            "state": self.state.value,
            "progress": {"done": self.done, "total": self.total, "rate": self.rate},
            "began_at": second_of(self.began),
            "ended_at": None if self.ended is None else second_of(self.ended),
            "result": self.result,
            "message": self.problem,
        }


_NO_REFUSALS: Refusals = {}

#: Does the job. It may fail with RefusedCall, whose text is then the problem of the job.
Work = Callable[[Job], Deferred[Any]]


class Jobs:
    """The jobs by their numbers, the oldest first.

    ``now`` returns milliseconds since the epoch. ``ended`` is called with each job that has ended.
    """

    _log = Logger()

    def __init__(self, now: Callable[[], int], ended: Callable[[Job], None] = lambda _: None) -> None:
        self._now = now
        self._ended = ended
        self._jobs: dict[str, Job] = {}
        self._work: dict[str, Deferred[Any]] = {}
        self._adopted: set[str] = set()

    def begin(self, kind: str, by: str, work: Work, about: str = "", refusals: Refusals = _NO_REFUSALS) -> Job:
        """Begin a job. Raises RefusedCall if too many run. ``refusals`` are those of the call that begins it."""
        self._forget()
        if len(self._work) - len(self._adopted) >= MOST_RUNNING:
            raise unavailable(f"{MOST_RUNNING} jobs run already; wait until one ends, or cancel one")
        job = self._new(kind, by, about)
        self._run(job, maybeDeferred(work, job), refusals)
        return job

    def adopt(self, kind: str, by: str, doing: Deferred[Any], about: str, refusals: Refusals = _NO_REFUSALS) -> Job:
        """Make a job of work that has begun already. It is no matter how many run: nothing can withdraw this work."""
        self._forget()
        job = self._new(kind, by, about)
        self._adopted.add(job.number)
        self._run(job, doing, refusals)
        return job

    @property
    def is_full(self) -> bool:
        """Whether so many adopted jobs run that no more work should begin that may have to be adopted."""
        return len(self._adopted) >= MOST_ADOPTED

    def _new(self, kind: str, by: str, about: str) -> Job:
        job = Job(kind=kind, by=by, began=self._now(), now=self._now, about=about)
        self._jobs[job.number] = job
        return job

    def _run(self, job: Job, doing: Deferred[Any], refusals: Refusals) -> None:
        self._work[job.number] = doing
        doing.addCallbacks(self._succeeded, self._failed, callbackArgs=(job,), errbackArgs=(job, refusals))

    def all(self) -> list[Job]:
        """Return all known jobs, the oldest first."""
        self._forget()
        return list(self._jobs.values())

    def find(self, number: str) -> Job | None:
        """Return a job, None if it is not known any more."""
        self._forget()
        return self._jobs.get(number)

    def cancel(self, job: Job) -> None:
        """Cancel a running job, or forget an ended one. Finished work of a cancelled job remains."""
        doing = self._work.get(job.number)
        if doing is None:
            self._jobs.pop(job.number, None)
        else:
            doing.cancel()

    def stop(self) -> None:
        """Cancel all jobs, because the broker stops."""
        for number, doing in tuple(self._work.items()):
            job = self._jobs[number]
            self._log.info(
                "the job {number} ({kind} {about}) ends because the broker stops; it has done {done} of {total}",
                number=number, kind=job.kind, about=job.about,
                done=job.done, total="an unknown number" if job.total is None else job.total,
            )  # fmt: skip
            doing.cancel()

    def _succeeded(self, result: Any, job: Job) -> None:
        job.result = result
        self._end(job, State.DONE)

    def _failed(self, failure: Failure, job: Job, refusals: Refusals) -> None:
        if failure.check(CancelledError):
            self._end(job, State.CANCELLED)
            return
        error = failure.value
        refused = next((make(error) for kind, make in refusals.items() if isinstance(error, kind)), error)
        if isinstance(refused, StorageFailure):
            job.problem = refused.detail
        elif isinstance(refused, RefusedCall | StoreUnusable):
            job.problem = str(refused)
        else:
            job.problem = "this is a fault of the broker; see its log"
            self._log.failure("a job failed", failure)
        self._end(job, State.FAILED)

    def _end(self, job: Job, state: State) -> None:
        job.state, job.ended = state, self._now()
        self._work.pop(job.number, None)
        self._adopted.discard(job.number)
        self._ended(job)

    def _forget(self) -> None:
        now = self._now()
        over = [job for job in self._jobs.values() if job.ended is not None]
        too_many = max(0, len(self._jobs) - MOST_JOBS + 1)
        for place, job in enumerate(over):
            if place < too_many or (job.ended is not None and job.ended + RESULT_KEPT <= now):
                del self._jobs[job.number]


def accepted(job: Job) -> Answer:
    """Return the answer to a call that has begun a job."""
    headers = (("Location", f"{JOBS_PATH}/{job.number}"),)
    return answer(job.shown(), http.ACCEPTED, headers, note=note_of(job))


def note_of(job: Job) -> dict[str, object]:
    """Return what the audit log says about a job."""
    return {"job": job.number, "kind": job.kind, "state": job.state.value, "done": job.done, "total": job.total}
