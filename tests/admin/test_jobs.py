"""Long jobs: their progress, their ends, and how many there are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent

from holdfast.admin.api.jobs import JobCalls
from holdfast.admin.call import Answer, Call, Caller, Head, RefusedCall, Scope, Via, bad_request
from holdfast.admin.callers import this_operator
from holdfast.admin.jobs import MOST_JOBS, MOST_RUNNING, RESULT_KEPT, Job, Jobs, State, accepted, note_of
from holdfast.admin.routing import RoutingTable
from holdfast.identity.addresses import Peer
from tests.storage.doubles import result_of


class Office:
    """Jobs and the calls about them."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000
        self.jobs = Jobs(lambda: self.now)
        self.table = RoutingTable(JobCalls(self.jobs).routes)

    def begin(self) -> tuple[Job, Deferred[Any]]:
        work: Deferred[Any] = Deferred()
        return self.jobs.begin("backup", "root", lambda _: work), work

    def ask(self, method: str, path: str) -> tuple[int, Any]:
        found: Answer = result_of(self.table.answer(Call(method, path, {}, b"", this_operator())))
        return found.status, json.loads(found.body) if found.body else None


@pytest.fixture
def office() -> Office:
    return Office()


def test_a_call_is_answered_with_the_place_of_its_job(office: Office) -> None:
    job, work = office.begin()
    told = accepted(job)
    place = dict(told.headers)["Location"]
    assert (told.status, told.note["kind"]) == (202, "backup")
    job.done, job.total = 7, 9
    assert office.ask("GET", place)[1]["progress"] == {"done": 7, "total": 9, "rate": 7000.0}
    assert office.ask("GET", place)[1]["state"] == "running"
    work.callback({"file": "x"})
    status, shown = office.ask("GET", place)
    assert (status, shown["state"], shown["result"]) == (200, "done", {"file": "x"})
    assert shown["ended_at"] == "2027-01-15T08:00:00Z"
    assert [each["id"] for each in office.ask("GET", "/api/v5/jobs")[1]["data"]] == [job.number]


def test_a_job_is_cancelled_and_then_forgotten(office: Office) -> None:
    job, _ = office.begin()
    place = f"/api/v5/jobs/{job.number}"
    assert office.ask("DELETE", place)[0] == 204
    assert office.ask("GET", place)[1]["state"] == "cancelled"
    assert office.ask("DELETE", place)[0] == 204
    assert office.ask("GET", place)[0] == 404


def test_a_failure_is_told_and_a_fault_is_logged(office: Office, logged_failures: list[LogEvent]) -> None:
    job, work = office.begin()
    work.errback(bad_request("the disk is full"))
    assert (job.shown()["state"], job.shown()["message"]) == ("failed", "the disk is full")
    assert logged_failures == []
    job, work = office.begin()
    work.errback(ZeroDivisionError("secret"))
    assert "secret" not in str(job.shown())
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_results_are_kept_for_an_hour(office: Office) -> None:
    job, work = office.begin()
    work.callback(None)
    office.now += RESULT_KEPT - 1
    assert office.jobs.find(job.number) is job
    office.now += 1
    assert office.jobs.find(job.number) is None


def test_jobs_are_limited_in_number(office: Office) -> None:
    running = [office.begin() for _ in range(MOST_RUNNING)]
    with pytest.raises(RefusedCall) as refused:
        office.begin()
    assert refused.value.status == 503
    running.pop()[1].callback(None)
    for _ in range(MOST_JOBS + 5):
        office.begin()[1].callback(None)
    assert len(office.jobs.all()) <= MOST_JOBS
    assert running[0][0] in office.jobs.all()
    office.jobs.stop()
    assert {job.state.value for job, _ in running} == {"cancelled"}


def test_a_job_tells_its_rate_and_its_subject(office: Office) -> None:
    """The rate is what was done in a second, on average, and stays after the end."""
    job, work = office.begin()
    job.done = 30
    office.now += 2000
    assert office.ask("GET", f"/api/v5/jobs/{job.number}")[1]["progress"]["rate"] == 15.0
    work.callback(None)
    office.now += 9000
    assert job.rate == 15.0


def test_the_end_of_a_job_is_told(office: Office) -> None:
    """Once for each job, however it ends; a cancelled one keeps what it has done so far."""
    ended: list[dict[str, object]] = []
    jobs = Jobs(lambda: office.now, lambda job: ended.append(note_of(job)))
    works: list[Deferred[Any]] = [Deferred(), Deferred(), Deferred()]
    begun = [jobs.begin("clear", "alice", lambda _, work=work: work, "a/#") for work in works]  # type: ignore[misc]
    begun[0].done, begun[0].result = 3, {"count": 3}
    works[1].callback(None)
    works[2].errback(bad_request("no"))
    jobs.stop()
    assert [(each["state"], each["done"]) for each in ended] == [("done", 0), ("failed", 0), ("cancelled", 3)]
    assert begun[0].shown()["result"] == {"count": 3}
    assert begun[0].shown()["about"] == "a/#"


def test_a_job_is_cancelled_by_who_has_begun_it_or_an_admin(office: Office) -> None:
    """A key that may write retained messages cannot cancel jobs of others."""
    work: Deferred[Any] = Deferred()
    job = office.jobs.begin("clear", "alice", lambda _: work)
    scopes = frozenset({Scope.RETAINED_WRITE})

    def cancel(name: str) -> int:
        call = Call("DELETE", f"/api/v5/jobs/{job.number}", {}, b"", Caller(name, scopes=scopes, via=Via.KEY))
        answered: Answer = result_of(office.table.answer(call))
        return answered.status

    assert (cancel("bob"), job.state) == (403, State.RUNNING)
    assert (cancel("alice"), job.state) == (204, State.CANCELLED)


def test_a_refusal_of_the_call_is_the_message_of_its_job(office: Office) -> None:
    """Exceptions that a call would answer with a text are no faults of the broker in its job either."""
    work: Deferred[Any] = Deferred()
    job = office.jobs.begin("clear", "alice", lambda _: work, refusals={LookupError: lambda error: bad_request("gone")})
    work.errback(KeyError())
    assert (job.state, job.problem) == (State.FAILED, "gone")


@pytest.mark.parametrize(
    ("prefer", "wanted"),
    [(None, False), ("respond-async", True), ("wait=5, Respond-Async;x=1", True), ("handling=strict", False)],
)
def test_who_prefers_a_job(prefer: str | None, wanted: bool) -> None:
    """The header of RFC 7240, with other preferences beside it."""
    assert Head(method="DELETE", peer=Peer(None), prefer=prefer).prefers_job is wanted
