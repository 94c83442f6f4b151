"""A member holds its work behind the deadline, and reads before its timers then. It tells once that it is fenced."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, cast

import pytest
from twisted.internet.task import Clock

from holdfast.cluster.lease import MARGIN
from holdfast.cluster.members import Candidate, LeaseConnection, Place, Renewal, StillLeased, join
from holdfast.cluster.membership import Membership
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.scheduling import reactor as turns
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.location import StoreUnusable
from holdfast.storage.maintenance import database_at
from holdfast.storage.postgres import MemberPostgres, PostgresDatabase
from tests.postgres import drop, fresh_database

LENGTH, GRACE = 6.0, 30.0
AWAY = StorageFailure(FailureKind.UNAVAILABLE, "no answer within 2 s")


class Server:
    """Stands in for the database. ``answers`` are taken in turn; when there are none, it renews."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.answers: SimpleQueue[Renewal | StorageFailure] = SimpleQueue()
        self.asked = 0
        self.ended = False

    def seconds(self) -> float:
        """Return the time of the member's clock."""
        return self.now

    def renew(self) -> Renewal:
        """Answer; each try takes five seconds."""
        self.asked += 1
        if self.answers.empty():
            return Renewal(renewed=True, now=round(1000 * self.now) - 7000, dead=())
        self.now += 5.0
        answer = self.answers.get()
        if isinstance(answer, StorageFailure):
            raise answer
        return answer

    def leave(self) -> None:
        """End the lease."""
        self.ended = True

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server that renews, and no pauses."""
    monkeypatch.setattr("holdfast.cluster.membership._PAUSE", 0.001)
    return Server()


@pytest.fixture
def lost() -> list[str]:
    """What was told when the lease was lost."""
    return []


@pytest.fixture
def member(server: Server, lost: list[str]) -> Membership:
    """A member since a moment ago."""
    candidate = Candidate(cluster="plant", node=1, lease=round(1000 * LENGTH), address="", config_hash="")
    made = Membership(
        candidate, lease=LENGTH, grace=GRACE, reactor=Clock(), executor=SynchronousExecutor(), seconds=server.seconds,
        wall=server.seconds,
    )  # fmt: skip
    made.attach(cast("Any", None), on_lost=lost.append, on_inherited=lambda _: None)
    made._connection = cast("LeaseConnection", server)
    made.begin()
    return made


def test_it_renews_three_times_in_a_lease(member: Membership, server: Server) -> None:
    """Each renewal moves the deadline, and tells the difference of the clocks."""
    clock = member._job._clock
    assert isinstance(clock, Clock)
    assert member.deadline == server.now + LENGTH - MARGIN
    for _ in range(6):
        server.now += 2.0
        clock.advance(2.0)
    assert server.asked == 7
    assert member.left() == LENGTH - MARGIN
    assert member.take_worst() == LENGTH - MARGIN - 2.0
    assert member.take_worst() is None
    assert member.offset == 7.0


def test_it_knows_the_living_nodes_with_another_configuration(member: Membership) -> None:
    """A dead one does not count."""
    member._note_places((Place(1, 1, True), Place(2, 1, True, "x"), Place(3, 1, False, "y"), Place(4, 1, True)))
    assert member.other_configurations == (2,)


def test_it_holds_until_the_database_answers(member: Membership, server: Server, lost: list[str]) -> None:
    """Tries that fail are repeated. Then it may serve again."""
    server.now = member.deadline + 1
    for _ in range(3):
        server.answers.put(AWAY)
    member.hold()
    assert server.now < member.deadline
    assert lost == []


def test_the_grace_ends_the_holding(member: Membership, server: Server, lost: list[str]) -> None:
    """It is told once, and nothing holds the reactor any more: the connections have to be closed."""
    server.now = member.deadline
    for _ in range(20):
        server.answers.put(AWAY)
    member.hold()
    member.hold()
    member.supersede()
    assert len(lost) == 1
    assert "node 1 has lost its lease" in lost[0]
    assert server.asked <= GRACE / 5 + 2
    assert member.deadline == float("inf")


def test_a_refusal_ends_the_holding_at_once(member: Membership, server: Server, lost: list[str]) -> None:
    """Another incarnation has begun."""
    server.now = member.deadline
    server.answers.put(Renewal(renewed=False, now=0, dead=()))
    member.hold()
    assert len(lost) == 1
    assert server.asked == 2


def test_what_the_writer_finds_is_told(member: Membership, lost: list[str]) -> None:
    """Its transactions compare the incarnation too."""
    member.supersede()
    assert len(lost) == 1


def test_leaving_ends_the_lease(member: Membership, server: Server) -> None:
    """Others need not wait for its end. No late answer brings a deadline back."""
    member.leave()
    assert server.ended
    member._renew()
    assert member.deadline == float("inf")
    assert server.asked == 1


@pytest.mark.parametrize("renewed", [False, True])
def test_a_start_waits_for_an_earlier_lease_unless_that_is_renewed(renewed: bool) -> None:
    """Time alone is no sign of life: the lease of a killed process has to end. A renewed one is of a living process."""
    url = fresh_database()
    database = database_at(url, Durability.FULL, 1)
    assert isinstance(database, PostgresDatabase)
    candidate = Candidate(cluster="plant", node=1, lease=60_000, address="", config_hash="")
    join(database, candidate)
    late = Membership(candidate, lease=60.0, grace=GRACE, reactor=Clock(), executor=SynchronousExecutor())
    try:
        for _ in range(2):
            with pytest.raises(StillLeased):
                late.join(database)
        earlier = LeaseConnection(database, 1, 1, 60_000, 5.0)
        if renewed:
            earlier.renew()
            with pytest.raises(StoreUnusable, match=r"node.id = 1 is in use by a living member; give each"):
                late.join(database)
        else:
            earlier.leave()
            assert isinstance(late.join(database), MemberPostgres)
            late.withdraw()
        earlier.close()
    finally:
        drop(url)


class Poller:
    """Stands in for ``epoll``: one event of a client."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.poll = lambda *_: [(5, turns._IN)]
        self.strangers: Callable[[], list[Any]] = list
        self._tell = tell


@pytest.mark.parametrize("late", ["before timers", "while it waits for clients"])
def test_clients_are_read_behind_the_guard_and_before_timers(late: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a stop, what has come is read before any timer: else a Keep Alive would end for packets that are there."""
    told: list[str] = []
    now = [1.0]

    class Guard:
        deadline = 5.0

        def hold(self) -> None:
            told.append("hold")
            self.deadline = now[0] + 5.0

    class Reader:
        def read(self) -> None:
            told.append("read")

    monkeypatch.setattr(turns, "watched", lambda _: {})
    monkeypatch.setattr(turns, "waker_of", lambda _: type("Waker", (), {"fileno": lambda _: 1, "doRead": None})())
    poller = Poller(told.append)
    plain = turns.Turns(None, cast("Any", poller))
    plain.readers[5] = cast("Any", Reader())
    guarded = turns.GuardedTurns(plain, Guard(), lambda: now[0])
    if late == "before timers":
        now[0] = 20.0
        guarded.before_timed_calls()
        assert told == ["hold", "read"]
        guarded.before_timed_calls()
        assert told == ["hold", "read"]
    else:

        def wait(*_: object) -> list[tuple[int, int]]:
            now[0] = 20.0
            return [(5, turns._IN), (5, turns._IN)]

        poller.poll = wait
        guarded.take(None)
        assert told == ["hold", "read", "read"]
