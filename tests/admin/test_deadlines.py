"""Every call has an answer in time, also while the database is away. What the writer has got is never withdrawn."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from holdfast.admin.address import API_PREFIX, JOBS_PATH
from holdfast.admin.api.jobs import JobCalls
from holdfast.admin.call import ANYONE, CALL_PATIENCE, DONE, Answer, Call, Head, RefusedCall, answer
from holdfast.admin.callers import this_operator
from holdfast.admin.deadlines import Deadlines
from holdfast.admin.jobs import MOST_ADOPTED, MOST_RUNNING, Job, Jobs, note_of
from holdfast.admin.routing import Route, RoutingTable
from holdfast.changes import restoring
from holdfast.commands.access import BrokerClient
from holdfast.commands.interfaces import Inaccessible
from holdfast.config import default
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.identity.addresses import Peer
from holdfast.retained import administration
from tests.admin.doubles import Desk
from tests.admin.test_table import CHIEF, route
from tests.retained.store.delayed_store import DelayedStore
from tests.storage.doubles import result_of


class Counter:
    """A table whose handlers answer when the test says so."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.away = False
        self.told: list[int] = []
        self.ended: list[dict[str, object]] = []
        self.work: list[Deferred[Answer]] = []
        self.pieces: list[Deferred[bytes]] = []
        self.jobs = Jobs(lambda: round(1000 * self.clock.seconds()), lambda job: self.ended.append(note_of(job)))
        routes: list[Route] = [
            route("GET", "/read", handler=self._later),
            route("GET", "/long", handler=lambda _: succeed(Answer(more=self._piece))),
            route("GET", "/events", handler=lambda _: succeed(Answer(more=self._piece)), has_deadline=False),
            route("GET", "/events/later", handler=self._later, has_deadline=False),
            route("POST", "/merge", handler=self._later, stores=True, has_deadline=False),
            route("POST", "/memory", handler=self._later),
            route("POST", "/store", handler=self._later, stores=True, refusals={LookupError: self._refused}),
            route("POST", "/finished", handler=self._later, stores=True, finishes=True),
            *JobCalls(self.jobs).routes,
        ]
        run = Deadlines(self.clock, self.jobs, lambda: self.away).run
        self.table = RoutingTable(routes, lambda _call, told: self.told.append(told.status), run=run)

    def ask(self, method: str, path: str, prefer: str | None = None, caller: Any = CHIEF) -> Deferred[Answer]:
        """Make a call."""
        head = Head(method=method, peer=Peer(None), prefer=prefer)
        return self.table.answer(Call(method, path, {}, b"", caller, head=head))

    def job(self, accepted: Answer) -> Any:
        """Return the job that an answer names."""
        assert accepted.status == 202
        place = dict(accepted.headers)["Location"]
        return json.loads(result_of(self.ask("GET", place)).body)

    def _later(self, _call: Call) -> Deferred[Answer]:
        self.work.append(Deferred())
        return self.work[-1]

    def _piece(self) -> Deferred[bytes]:
        self.pieces.append(Deferred())
        return self.pieces[-1]

    @staticmethod
    def _refused(_error: LookupError) -> RefusedCall:
        return RefusedCall(409, "CONFLICT", "there")


@pytest.fixture
def counter() -> Counter:
    return Counter()


def refusal(found: Answer) -> tuple[int, str | None, str]:
    """Return status, Retry-After and message of a refusal."""
    return found.status, dict(found.headers).get("Retry-After"), json.loads(found.body)["message"]


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [(None, 10), ("wait=3", 3), ("respond-async, Wait=45;x=1", 45), ("wait=9999", 60), ("wait=0", 1), ("wait=x", 10)],
)
def test_a_read_is_refused_after_the_time_that_its_caller_gives_it(
    counter: Counter, prefer: str | None, seconds: int
) -> None:
    """10 seconds, or those of ``Prefer: wait``, up to 60. The read is cancelled."""
    asked = counter.ask("GET", "/read", prefer)
    counter.clock.advance(seconds - 0.1)
    assert not asked.called
    counter.clock.advance(0.1)
    status, later, message = refusal(result_of(asked))
    assert (status, later) == (503, "5")
    assert f"no answer after {seconds} seconds" in message
    assert counter.work[0].called
    assert counter.clock.getDelayedCalls() == []


def test_an_answer_in_time_leaves_no_timer(counter: Counter) -> None:
    for method, path in (("GET", "/read"), ("POST", "/memory"), ("POST", "/finished")):
        asked = counter.ask(method, path)
        counter.work.pop().callback(DONE)
        assert result_of(asked) is DONE
    assert counter.clock.getDelayedCalls() == []
    assert counter.jobs.all() == []
    assert counter.told == [204, 204]


def test_a_long_answer_is_refused_while_its_first_piece_is_late_and_later_breaks_off(counter: Counter) -> None:
    """An export used to send its head, and then nothing."""
    asked = counter.ask("GET", "/long")
    counter.clock.advance(CALL_PATIENCE)
    assert refusal(result_of(asked))[:2] == (503, "5")
    asked = counter.ask("GET", "/long")
    counter.pieces[-1].callback(b"first")
    more = result_of(asked).more
    assert more is not None
    assert result_of(more()) == b"first"
    second = more()
    counter.pieces[-1].callback(b"second")
    assert result_of(second) == b"second"
    third = more()
    counter.clock.advance(CALL_PATIENCE)
    with pytest.raises(RefusedCall, match="no answer after 10 seconds"):
        result_of(third)


def test_a_first_piece_that_fails_is_a_refusal(counter: Counter) -> None:
    asked = counter.ask("GET", "/long")
    counter.pieces[-1].errback(StorageFailure(FailureKind.UNAVAILABLE, "damaged"))
    assert refusal(result_of(asked)) == (503, "5", "damaged")


def test_the_events_of_a_stream_may_come_late_but_not_its_beginning(counter: Counter) -> None:
    more = result_of(counter.ask("GET", "/events")).more
    assert more is not None
    for _ in range(2):
        event = more()
        counter.clock.advance(1000)
        counter.pieces[-1].callback(b"event")
        assert result_of(event) == b"event"
    asked = counter.ask("GET", "/events/later")
    counter.clock.advance(CALL_PATIENCE)
    assert refusal(result_of(asked))[:2] == (503, "5")


def test_a_merge_may_take_any_time_once_it_has_begun(counter: Counter) -> None:
    """It is a stream, too: its caller waits for each part, and goes on with the job's name after a failure."""
    asked = counter.ask("POST", "/merge")
    counter.clock.advance(1000)
    counter.work[0].callback(DONE)
    assert result_of(asked) is DONE
    counter.away = True
    assert result_of(counter.ask("POST", "/merge")).status == 503


def test_a_late_change_goes_on_as_a_job_that_tells_the_outcome(counter: Counter) -> None:
    """Status and note, but not the content, which may be the secret of a key. The audit log is told of both."""
    asked = counter.ask("POST", "/store")
    counter.clock.advance(CALL_PATIENCE)
    found = result_of(asked)
    shown = counter.job(found)
    assert (shown["kind"], shown["about"], shown["by"], shown["state"]) == ("call", "POST /store", "alice", "running")
    counter.work[0].callback(answer({"secret": "x"}, 201, note={"api_key": "tool"}))
    shown = counter.job(found)
    assert (shown["state"], shown["result"]) == ("done", {"status": 201, "api_key": "tool"})
    assert counter.told == [202]
    assert [each["state"] for each in counter.ended] == ["done"]


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        (StorageFailure(FailureKind.FULL, "no space left"), "no space left"),
        (KeyError("x"), "there"),
        (Answer(409), "Conflict"),
    ],
)
def test_the_job_of_a_late_change_tells_why_it_was_refused(counter: Counter, outcome: Any, message: str) -> None:
    asked = counter.ask("POST", "/store")
    counter.clock.advance(CALL_PATIENCE)
    counter.work[0].callback(outcome if isinstance(outcome, Answer) else Failure(outcome))
    shown = counter.job(result_of(asked))
    assert (shown["state"], shown["message"]) == ("failed", message)


def test_a_change_that_finishes_is_not_stopped_by_the_end_of_its_job(counter: Counter) -> None:
    asked = [counter.ask("POST", path) for path in ("/store", "/finished")]
    counter.clock.advance(CALL_PATIENCE)
    for found in map(result_of, asked):
        result_of(counter.ask("DELETE", f"{JOBS_PATH}/{counter.job(found)['id']}"))
        assert counter.job(found)["state"] == "cancelled"
    assert [each.called for each in counter.work] == [True, False]
    counter.work[1].callback(DONE)


def test_a_caller_that_leaves_before_the_deadline_leaves_no_job(counter: Counter) -> None:
    for path in ("/store", "/finished"):
        asked = counter.ask("POST", path)
        asked.addErrback(lambda failure: failure.trap(CancelledError))
        asked.cancel()
    counter.work[1].callback(DONE)
    counter.clock.advance(CALL_PATIENCE)
    assert counter.jobs.all() == []
    assert counter.told == [499, 204]


def test_while_the_database_is_away_a_change_of_it_is_refused_at_once(counter: Counter) -> None:
    """It does not reach its handler. Changes in memory go on, and a read waits: the database may be back."""
    counter.away = True
    for path in ("/store", "/finished"):
        status, later, message = refusal(result_of(counter.ask("POST", path)))
        assert (status, later) == (503, "5")
        assert "nothing was changed" in message
    assert counter.work == []
    changed, read = counter.ask("POST", "/memory"), counter.ask("GET", "/read")
    counter.work[0].callback(DONE)
    counter.work[1].callback(DONE)
    assert result_of(changed) is result_of(read) is DONE


def test_a_stranger_is_not_told_that_the_database_is_away(counter: Counter) -> None:
    counter.away = True
    assert result_of(counter.ask("POST", "/store", caller=ANYONE)).status == 401


def test_late_changes_are_bounded_and_take_no_place_of_other_jobs(counter: Counter) -> None:
    asked = [counter.ask("POST", "/store") for _ in range(MOST_ADOPTED)]
    counter.clock.advance(CALL_PATIENCE)
    assert {result_of(each).status for each in asked} == {202}
    assert refusal(result_of(counter.ask("POST", "/store")))[0] == 503
    waiting: list[Deferred[Any]] = [Deferred() for _ in range(MOST_RUNNING)]

    def begin(number: int) -> Callable[[Job], Deferred[Any]]:
        return lambda _job: waiting[number]

    for number in range(MOST_RUNNING):
        counter.jobs.begin("clear", "alice", begin(number))
    with pytest.raises(RefusedCall):
        counter.jobs.begin("clear", "alice", lambda _job: Deferred())
    counter.work.pop().callback(DONE)
    counter.ask("POST", "/store")
    counter.work.pop().callback(DONE)
    assert counter.told[-1] == 204


def test_a_retained_message_that_was_handed_over_is_stored_later_and_its_job_says_so() -> None:
    """The store is away for longer than the call waits: live subscribers have had the message already."""
    desk = Desk(store=DelayedStore)
    body = json.dumps({"topic": "a", "payload": "1"}).encode()
    asked = desk.table.answer(Call("POST", API_PREFIX + "/messages", {}, body, this_operator()))
    desk.broker.clock.advance(CALL_PATIENCE)
    assert result_of(asked).status == 202
    (job,) = desk.jobs.all()
    assert (job.state.value, job.result) == ("running", None)
    desk.broker.store.available = False
    assert desk.refused("POST", "/messages", {"topic": "b", "payload": "2"})[0] == 503
    assert [change.message.topic for change, _ in desk.broker.store.pending if change is not None] == ["a"]
    desk.broker.store.commit()
    assert (job.state.value, job.result) == ("done", {"status": 204})
    desk.broker.store.available = True
    assert desk.topics() == ["a"]


class Line:
    """The connection of a command to a broker, which has the given answers."""

    def __init__(self, *answers: Answer) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []
        self._answers = list(answers)

    def connect(self) -> None:
        """Reach the broker."""

    def request(self, method: str, _uri: str, _body: object, headers: dict[str, str]) -> None:
        self.requests.append((method, headers))

    def getresponse(self) -> Any:
        found = self._answers.pop(0)
        return SimpleNamespace(
            status=found.status, read=lambda: found.body,
            getheader=lambda name, default=None: dict(found.headers).get(name, default),
        )  # fmt: skip


@pytest.mark.parametrize(("available", "prefer"), [(True, {"Prefer": "wait=50"}), (False, {})])
def test_a_command_waits_longer_for_a_database_that_is_there(available: bool, prefer: dict[str, str]) -> None:
    """Some calls take long for large databases. A change that becomes a job was not made yet: the command fails."""
    config = default()
    info = answer({"store": config.storage.url, "available": available})
    late = answer({"id": "5f2a", "state": "running"}, 202, (("Location", f"{JOBS_PATH}/5f2a"),))
    client = BrokerClient(config)
    line: Any = Line(info, late, answer({"id": "x"}, 202))
    client._connection = line
    assert client.answers()
    with pytest.raises(Inaccessible, match="makes this change when it is back: see the job 5f2a"):
        client.call("POST", "/messages")
    assert client.call("POST", "/api/v5/publish") == {"id": "x"}
    assert line.requests == [("GET", {}), ("POST", prefer), ("POST", prefer)]


def test_parts_of_long_changes_end_before_they_are_late() -> None:
    for module in (administration, restoring):
        assert module._MOST_TIME < 1000 * CALL_PATIENCE


def test_every_route_with_a_deadline_can_be_dispatched_without_one() -> None:
    """Commands without a broker have no clock: the database answers at once, or the command ends."""
    table = RoutingTable([evolve(route("POST", "/a", stores=True), handler=lambda _: succeed(DONE))])
    assert result_of(table.answer(Call("POST", "/a", {}, b"", CHIEF))) is DONE
