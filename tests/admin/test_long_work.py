"""Clears and restores of many topics, as jobs."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred

from holdfast.admin.address import API_PREFIX
from holdfast.admin.call import Answer, Call, Head
from holdfast.admin.callers import this_operator
from holdfast.admin.jobs import Job, State
from holdfast.identity.addresses import Peer
from tests.admin.doubles import Desk
from tests.storage.doubles import result_of


def begin(desk: Desk, method: str, path: str, **arguments: str) -> Answer:
    """Make a call that prefers a job."""
    head = Head(method=method, peer=Peer(None), prefer="respond-async")
    answering = desk.table.answer(Call(method, API_PREFIX + path, arguments, b"", this_operator(), head=head))
    answer: Answer = result_of(answering)
    return answer


def job_of(desk: Desk, answer: Answer) -> Job:
    """Return the job that an answer names."""
    assert answer.status == 202
    place = dict(answer.headers)["Location"]
    job = desk.jobs.find(place.rpartition("/")[2])
    assert job is not None
    return job


def test_a_job_clears_all_matching_messages() -> None:
    """Its total is counted first. It works past the size of a part."""
    desk = Desk()
    for number in range(700):
        desk.retain(f"t/{number}")
    desk.retain("other")
    job = job_of(desk, begin(desk, "DELETE", "/messages", topic="t/#"))
    desk.broker.settle()
    assert (job.kind, job.about, job.state, job.done, job.total) == ("clear", "t/#", State.DONE, 700, 700)
    assert job.result == {"count": 700, "dry_run": False, "meta": {"hasnext": False, "cursor": None}}
    assert desk.topics() == ["other"]
    job_of(desk, begin(desk, "DELETE", "/messages"))
    desk.broker.settle()
    assert desk.topics() == []


def test_messages_published_while_a_job_clears_stay() -> None:
    """And a cancelled job says where it ended: what it has cleared before stays cleared."""
    desk = Desk()
    for number in range(1200):
        desk.retain(f"t/{number:04}")
    turns: list[Deferred[None]] = []

    def pause() -> Deferred[None]:
        turns.append(Deferred())
        return turns[-1]

    unpaused, desk.administration.pause = desk.administration.pause, pause
    job = job_of(desk, begin(desk, "DELETE", "/messages", topic="t/#"))
    desk.broker.settle()
    assert (job.state, job.done) == (State.RUNNING, 500)
    desk.retain("t/0900", b"newer")
    turns.pop().callback(None)
    desk.broker.settle()
    desk.jobs.cancel(job)
    assert job.state is State.CANCELLED
    desk.administration.pause = unpaused
    assert (job.done, job.result["meta"]) == (1000, {"hasnext": True, "cursor": "t/1000"})
    assert desk.topics(limit="3") == ["t/0900", "t/1001", "t/1002"]


def test_short_calls_are_answered_at_once() -> None:
    """A dry run and a call with a limit ignore the preference, and so do calls with arguments that are not allowed."""
    desk = Desk()
    desk.retain("a")
    told: list[Any] = [
        json.loads(begin(desk, "DELETE", "/messages", topic="a", dry_run="true").body)["count"],
        json.loads(begin(desk, "DELETE", "/messages", topic="a", limit="5").body)["count"],
        begin(desk, "DELETE", "/messages", topic="a/#/b").status,
        begin(desk, "DELETE", "/messages", publisher="c").status,
        begin(desk, "POST", "/restore", topic="a").status,
    ]
    assert told == [1, 1, 400, 400, 400]
    assert desk.jobs.all() == []


def test_a_job_whose_work_is_refused_says_why() -> None:
    """A restore without a history: the text is that of the call."""
    desk = Desk()
    job = job_of(desk, begin(desk, "POST", "/restore", topic="a", at="2027-01-01"))
    assert (job.state, job.problem) == (
        State.FAILED, "no history is kept; set retainer.history.enable = true"
    )  # fmt: skip
