"""Rows in a real Postgres: nothing is lost and nothing comes twice, whoever ends when, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import Any, cast

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.cluster import crossing
from holdfast.cluster.crossing import CrossedMessage, Rows, text_of
from holdfast.core.messages import ApplicationMessage, RetainedChange, RetainedMessage
from holdfast.core.tickets import CommitTicket, FailureKind, StorageFailure
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.sessions.rows import RowKind
from holdfast.storage import layouts
from holdfast.storage.committer import Write
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.postgres_values import PostgresBulk
from holdfast.storage.store import DurableStore, OpenStore
from holdfast.wire.properties import NO_PROPERTIES, Properties
from tests.postgres import drop, fresh_database
from tests.storage.doubles import Wall

ALL = (1, 2, 3)
_deliveries = count()


def ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, or nothing."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


@pytest.fixture
def url() -> Iterator[str]:
    """A database with three members."""
    made = fresh_database()
    for node in ALL:
        ask(made, f"INSERT INTO cluster_members VALUES ({node}, 'plant', 1, 0, 'member', 1, 1, '', '')")
    yield made
    drop(made)


class Node:
    """A process of a node with its rows. What it delivers is a row of ``session_received`` as well."""

    def __init__(self, url: str, node: int, *, now: int = Wall().now, manual: bool = False) -> None:
        self.url, self.node = url, node
        self.clock, self.wall = Clock(), Wall(now)
        self.executor = SynchronousExecutor(manual, waits_for_turn=True)
        self.reader = SynchronousExecutor()
        self.durable = DurableStore(
            url, durability=Durability.PROCESS, node=node, reactor=self.clock, now=self.wall, executor=self.executor,
            reading_executor=lambda: self.reader,
        )  # fmt: skip
        self.store = SQLRetainedStore(self.durable)
        self.heard = frozenset(ALL)
        self.hints: list[tuple[int, int]] = []
        self.got: list[CrossedMessage] = []
        self.after: list[CommitTicket] = []
        self.deliveries = RowKind(layouts.session_received, 60, PostgresBulk(), lambda: None)
        self.rows = Rows(
            self.durable, self.clock, deliver=self.deliver, hint=lambda *hint: self.hints.append(hint),
            heard=lambda: self.heard,
        )  # fmt: skip

    def open(self) -> Node:
        """Start."""
        self.durable.open()
        self.rows.start()
        self.settle()
        return self

    @property
    def parts(self) -> OpenStore:
        """The open store."""
        assert self.durable.parts is not None
        return self.durable.parts

    def deliver(self, crossed: CrossedMessage, after: CommitTicket) -> None:
        """Take a message, as a Session would."""
        self.got.append(crossed)
        self.after.append(after)
        key = (self.node, next(_deliveries))
        self.parts.writer.add(Write(self.deliveries, key, (*key, crossed.number), 100))

    def settle(self, seconds: float = 0) -> None:
        """Let so much time pass, second by second, and all that is due happen."""
        while seconds > 0:
            self.clock.advance(min(1.0, seconds))
            seconds -= 1
        for _ in range(60):
            self.clock.advance(0)

    def cross(self, topic: str, *targets: int, payload: bytes = b"x", **more: Any) -> tuple[int, CommitTicket]:
        """Let a message cross; do not commit it yet."""
        message = ApplicationMessage(topic, payload, 1, client_id="gateway")
        return self.rows.cross(message, targets, **more)

    def send(self, topic: str, *targets: int, **more: Any) -> int:
        """Let a message cross, and commit it."""
        number, ticket = self.cross(topic, *targets, **more)
        self.settle()
        assert (ticket.settled, ticket.failure) == (True, None)
        return number

    def topics(self) -> list[str]:
        """Return the topics of the messages that it got."""
        return [each.message.topic for each in self.got]

    def stored(self) -> list[int]:
        """Return the numbers of the deliveries that are committed."""
        found = ask(self.url, f"SELECT received_at FROM session_received WHERE session_id = {self.node} ORDER BY 1")
        return [number for (number,) in found]

    def retain(self, topic: str, payload: bytes) -> tuple[int, CommitTicket]:
        """Set a retained message; return its revision as it was given."""
        revision = self.store.next_revision()
        now = self.wall.now
        message = RetainedMessage(topic, payload, 1, NO_PROPERTIES, "gateway", None, now, None, revision)
        return revision, self.store.put(RetainedChange(topic, revision, now, message, "gateway"))

    def kill(self) -> None:
        """Lose what is not committed."""
        self.executor.waiting.clear()
        self.rows.stop()
        connection = self.parts.writer._committer._connection
        if connection is not None:
            connection.close()
        self.parts.readers.close()

    def restart(self) -> Node:
        """Kill it, and start another process of the node, a second later."""
        self.kill()
        return Node(self.url, self.node, now=self.wall.now + 1000).open()


def fired(waiting: Deferred[None]) -> bool:
    """Tell whether a Deferred has fired."""
    return bool(waiting.called)


def hand(hints: list[tuple[int, int]], origin: int, *nodes: Node) -> None:
    """Let the hints of a node arrive."""
    for target, number in hints:
        for node in nodes:
            if node.node == target:
                node.rows.hinted(origin, number)
    hints.clear()


class LosesTheAnswer:
    """A connection whose server commits, and is gone before it says so."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        """Commit, and fail."""
        self._connection.commit()
        raise psycopg.OperationalError("the connection is lost")


# --- sending ----------------------------------------------------------------------------------------------------------


def test_rows_are_committed_with_ascending_numbers_and_then_hinted(url: str) -> None:
    """The own cursor says up to where a reader misses nothing. A hint goes to the targets only."""
    node = Node(url, 1).open()
    numbers = [node.cross("a", 2)[0], node.cross("b", 2, 3)[0], node.cross("c", 3)[0]]
    assert node.hints == []
    node.settle()
    assert numbers == sorted(numbers)
    assert ask(url, "SELECT number, targets FROM cluster_messages ORDER BY number") == list(
        zip(numbers, [",2,", ",2,3,", ",3,"], strict=True)
    )
    assert ask(url, "SELECT number FROM cluster_cursors WHERE node = 1 AND origin = 1") == [(numbers[2],)]
    assert sorted(node.hints) == [(2, numbers[1]), (3, numbers[2])]


def test_a_message_crosses_as_it_was_published(url: str) -> None:
    """With its publisher, its expiry and its properties."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    properties = Properties(content_type="text/plain", user_properties=(("unit", "\u00b0C"),))
    message = ApplicationMessage("t/\u6e29", b"\0\xff", 2, True, "gateway", "anna", properties, 4_102_444_800_000)
    origin.rows.cross(message, (2,), share="$share/g/t/#", replaces=True)
    origin.settle()
    hand(origin.hints, 1, target)
    (crossed,) = target.got
    assert crossed.message == message
    assert (crossed.origin, crossed.share, crossed.replaces, crossed.revision) == (1, "$share/g/t/#", True, None)


def test_a_repeated_commit_does_not_bring_back_what_was_passed_and_deleted(url: str) -> None:
    """The outcome of the first try is unknown. Meanwhile its rows were read, and the origin's others deleted them."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    ask(url, "UPDATE cluster_members SET state = 'left' WHERE node = 3")
    committer = origin.parts.writer._committer
    committer._connection = LosesTheAnswer(committer._connection)
    number, ticket = origin.cross("a", 2)
    origin.settle()
    assert not ticket.settled
    target.heard = frozenset()  # so that it needs no hint
    target.settle(1)
    assert target.topics() == ["a"]
    ask(url, "DELETE FROM cluster_messages")
    second, later = origin.cross("b", 2)  # it joins the group that is repeated
    origin.settle(2)
    assert (ticket.settled, ticket.failure, later.settled, later.failure) == (True, None, True, None)
    assert ask(url, "SELECT number FROM cluster_messages") == [(second,)]
    target.settle(1)
    assert target.topics() == ["a", "b"]
    assert [each for each in origin.hints if each[1] in (number, second)]


def test_a_row_that_the_database_refuses_fails_alone(url: str) -> None:
    """The others of its commit cross."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    ask(url, "ALTER TABLE cluster_messages ADD CHECK (topic <> 'bad')")
    tickets = [origin.cross(topic, 2)[1] for topic in ("a", "bad", "b")]
    origin.settle()
    failures = [ticket.failure and ticket.failure.kind for ticket in tickets]
    assert failures == [None, FailureKind.REFUSED, None]
    hand(origin.hints, 1, target)
    assert target.topics() == ["a", "b"]


def test_a_row_has_the_revision_that_the_store_has_given(url: str) -> None:
    """The clock of another node is ahead. The later change wins, with a higher revision; the row tells that one."""
    ahead, node = Node(url, 2, now=Wall().now + 60_000).open(), Node(url, 1).open()
    before, _ = ahead.retain("t", b"old")
    ahead.settle()
    given, stored = node.retain("t", b"new")
    node.cross("t", 2, payload=b"new", revision=given)
    node.settle()
    assert stored.failure is None
    ((final,),) = ask(url, "SELECT revision FROM retained WHERE topic = 't'")
    assert given < before < final
    assert ask(url, "SELECT revision FROM cluster_messages WHERE origin = 1") == [(final,)]


def test_revisions_are_found_for_more_topics_than_a_statement_has_parameters(url: str) -> None:
    """Postgres takes 65,535; a commit after an outage may have more, and would never succeed."""
    node = Node(url, 1).open()
    kind = node.rows._kind
    rest = (0, 1, 0, None, None, None, b"\0", b"")
    rows = [(1, number, ",2,", None, number, f"t{number}", *rest) for number in range(70_000)]
    found = node.parts.writer.run(lambda connection: kind._with_final_revisions(connection.cursor(), rows))
    node.settle()
    assert cast("list[Any]", found.result) == rows


# --- receiving --------------------------------------------------------------------------------------------------------


def test_a_cursor_is_in_the_commit_of_the_deliveries(url: str) -> None:
    """A process that ends before this commit leaves neither; the next one gets exactly the rest, in order."""
    origin = Node(url, 1).open()
    target = Node(url, 2).open()
    numbers = [origin.send(f"a{turn}", 2) for turn in range(3)]
    hand(origin.hints, 1, target)
    target.settle()
    assert target.stored() == numbers
    assert all(ticket.settled and ticket.failure is None for ticket in target.after)
    more = [origin.send(f"b{turn}", 2) for turn in range(3)]
    target.executor.manual = True
    hand(origin.hints, 1, target)
    target.settle()
    assert target.topics()[3:] == ["b0", "b1", "b2"]
    assert not any(ticket.settled for ticket in target.after[3:])  # nothing of them may be sent with QoS 2
    target = target.restart()
    assert target.topics() == []
    target.heard = frozenset()
    target.settle(1)
    assert target.topics() == ["b0", "b1", "b2"]
    assert target.stored() == numbers + more
    target = target.restart()
    target.heard = frozenset()
    target.settle(2)
    assert target.topics() == []


def test_rows_wait_for_their_hints(url: str) -> None:
    """Runs that were sent before come before the hint. Those of an origin that is not heard wait for nothing."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    first, second = origin.send("a", 2), origin.send("b", 2)
    target.settle(3)
    assert target.topics() == []
    target.rows.hinted(1, first)
    assert target.topics() == ["a"]
    target.heard = frozenset((3,))
    target.settle(1)
    assert target.topics() == ["a", "b"]
    assert target.rows.when_passed(1, second).settled


def test_a_row_whose_hint_is_lost_is_applied_at_last(url: str) -> None:
    """Nobody waits for it, and no later hint comes."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    origin.send("a", 2)
    target.settle(crossing._LONG)
    assert target.topics() == []
    target.settle(3)
    assert target.topics() == ["a"]


def test_the_cursor_passes_rows_for_other_nodes_without_hints(url: str) -> None:
    """Their hints go to others. Else each batch of a replay would wait for them, and runs behind them for ever."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    for_others = origin.send("a", 3)
    waiting = target.rows.caught_up()
    target.settle()
    assert fired(waiting)
    assert target.rows.when_passed(1, for_others).settled
    for_this = origin.send("b", 2)
    behind = origin.send("c", 3)
    run = target.rows.when_passed(1, behind)
    target.settle()
    assert not run.settled  # it would overtake b, whose hint is still to come
    assert target.topics() == []
    target.rows.hinted(1, for_this)
    target.settle()
    assert target.topics() == ["b"]
    assert run.settled


def test_a_run_behind_a_row_that_is_never_committed_goes_on(url: str) -> None:
    """Its publisher was told. The run would wait for ever if the origin had nothing more to commit."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    number = origin.send("a", 2)
    hand(origin.hints, 1, target)
    run = target.rows.when_passed(1, number + 256)
    target.settle(crossing._LONG)
    assert not run.settled
    target.settle(2)
    assert run.settled


def test_a_run_behind_a_row_comes_before_the_next_row(url: str) -> None:
    """Also if both rows are read together: the run was sent between them."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    number = origin.send("row 1", 2)
    seen: list[list[str]] = []
    target.rows.when_passed(1, number).when_settled(lambda _: seen.append(target.topics()))
    origin.send("row 2", 2)
    hand(origin.hints, 1, target)
    assert target.topics() == ["row 1", "row 2"]
    assert seen == [["row 1"]]


def test_an_error_of_one_who_waits_does_not_end_the_reading(url: str, logged_failures: list[Any]) -> None:
    """It is logged, and the others go on."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    number, later = origin.send("a", 2), origin.send("b", 2)

    def fail(_: object) -> None:
        raise ValueError("a mistake")

    target.rows.when_passed(1, number).when_settled(fail)
    told = target.rows.when_passed(1, later)
    hand(origin.hints, 1, target)
    target.settle()
    assert told.settled
    origin.send("c", 2)
    hand(origin.hints, 1, target)
    target.settle()
    assert target.topics() == ["a", "b", "c"]
    assert len(logged_failures) == 1
    logged_failures.clear()


def test_caught_up_waits_for_all_rows_that_are_committed(url: str) -> None:
    """For their hints two seconds; then they are applied without."""
    origins = [Node(url, 1).open(), Node(url, 3).open()]
    target = Node(url, 2).open()
    for origin in origins:
        origin.send(f"of {origin.node}", 2)
    first, second = target.rows.caught_up(), target.rows.caught_up()
    target.settle()
    assert not fired(first)
    hand(origins[0].hints, 1, target)
    target.settle()
    assert not fired(first)
    target.settle(4)
    assert target.topics() == ["of 1", "of 3"]
    assert fired(first)
    assert fired(second)


def test_caught_up_during_a_reading_waits_for_the_next_one(url: str) -> None:
    """The reading that is under way began before the call, and may not see the last commit."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    target.heard = frozenset()
    target.reader.manual = True
    early = target.rows.caught_up()
    work, done, _ = target.reader.waiting.popleft()
    found = work()  # in its thread it has read; its answer is not back yet
    origin.send("a", 2)
    late = target.rows.caught_up()
    done(found)
    target.settle()
    assert fired(early)
    assert not fired(late)
    target.reader.step()
    target.settle()
    assert fired(late)
    assert target.topics() == ["a"]


@pytest.mark.parametrize("patience", [None, 1.0])
def test_caught_up_outlasts_an_outage(url: str, monkeypatch: pytest.MonkeyPatch, patience: float | None) -> None:
    """It does not fail, also where other reads do, and fires when the database answers again."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    origin.send("a", 2)
    target.durable.change_patience(patience)
    found, away = crossing._find, [True]

    def find(*arguments: Any) -> Any:
        if away:
            raise psycopg.OperationalError("the server is away")
        return found(*arguments)

    monkeypatch.setattr(crossing, "_find", find)
    waiting = target.rows.caught_up()
    target.settle(8)
    assert not fired(waiting)
    away.clear()
    target.settle(4)
    assert fired(waiting)
    assert target.topics() == ["a"]


def test_many_and_large_rows_are_read_in_parts(url: str) -> None:
    """So the memory of a reading is bounded, and a turn applies few of them."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    for turn in range(5):
        origin.cross(f"large{turn}", 2, payload=bytes(600_000))
    for turn in range(700):
        origin.cross(f"small{turn}", 2)
    origin.settle()
    readings: list[tuple[int, int]] = []
    apply = target.rows._apply

    def seen(reading: Any, rows: Any, left: Any) -> None:
        readings.append((len(rows), sum(len(row.message.payload) for row in rows)))
        apply(reading, rows, left)

    target.rows._apply = seen  # type: ignore[method-assign]
    hand(origin.hints, 1, target)
    target.clock.advance(0)
    in_a_turn = max(before[0] - after[0] for before, after in pairwise(readings))
    target.settle(1)
    assert in_a_turn <= crossing._ROWS_OF_A_TURN
    assert max(rows for rows, _ in readings) <= crossing._ROWS
    assert max(size for _, size in readings) <= crossing._BYTES + 600_000
    assert target.topics() == [f"large{turn}" for turn in range(5)] + [f"small{turn}" for turn in range(700)]


@pytest.mark.parametrize(("first", "other"), [(1, 3), (3, 1)])
def test_no_origin_waits_for_the_many_rows_of_another(url: str, first: int, other: int) -> None:
    """Whoever is furthest behind is read first."""
    busy, quiet, target = Node(url, first).open(), Node(url, other).open(), Node(url, 2).open()
    for turn in range(1200):
        busy.cross(f"busy{turn}", 2)
    busy.settle()
    quiet.send("quiet", 2)
    target.heard = frozenset()
    target.settle(1)
    assert target.topics().index("quiet") <= crossing._ROWS
    assert len(target.got) == 1201


def test_nothing_is_applied_after_the_stop(url: str) -> None:
    """The store closes next."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    origin.send("a", 2)
    target.reader.manual = True
    hand(origin.hints, 1, target)
    target.rows.stop()
    target.reader.stop()
    target.settle(3)
    assert target.topics() == []


def test_a_cursor_that_was_not_stored_is_written_again(url: str) -> None:
    """Its origin may have nothing more to say; after a restart, its messages would come twice."""
    origin, target = Node(url, 1).open(), Node(url, 2).open()
    number = origin.send("a", 2)
    hand(origin.hints, 1, target)
    target.settle()
    ((cursor,),) = ask(url, "SELECT number FROM cluster_cursors WHERE node = 2 AND origin = 1")
    assert cursor == number
    ask(url, "UPDATE cluster_cursors SET number = 0 WHERE node = 2 AND origin = 1")
    failed = [Write(target.rows._cursors, 1, (2, 1, number), 50)]
    target.rows._cursors.failed(failed, StorageFailure(FailureKind.FULL, "no space left"))
    target.settle(3)
    assert ask(url, "SELECT number FROM cluster_cursors WHERE node = 2 AND origin = 1") == [(number,)]


# --- whatever happens -------------------------------------------------------------------------------------------------

_steps = st.lists(
    st.one_of(
        st.tuples(st.just("cross"), st.sampled_from((1, 3)), st.sampled_from(((2,), (2, 3), (1, 2), (3,), (1,)))),
        st.tuples(st.just("commit"), st.sampled_from(ALL)),
        st.tuples(st.just("lose the answer"), st.sampled_from(ALL)),
        st.tuples(st.just("hints"), st.sampled_from((1, 3)), st.booleans()),
        st.tuples(st.just("heard"), st.sets(st.sampled_from(ALL))),
        st.tuples(st.just("pass"), st.sampled_from((0, 1, 3, 6))),
        st.tuples(st.just("kill"), st.sampled_from(ALL)),
        st.tuples(st.just("catch up"), st.just(2)),
    ),
    max_size=25,
)


class Scene:
    """Three nodes. Node 2 is the target of what nodes 1 and 3 send, and each commits when the test lets it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.nodes = {node: Node(url, node).open() for node in ALL}
        for node in self.nodes.values():
            node.executor.manual = True
        #: what is acknowledged for node 2, and what may be stored, by origin
        self.acknowledged: dict[int, list[int]] = {1: [], 3: []}
        self.sent: dict[int, list[int]] = {1: [], 3: []}
        self.waiting: list[tuple[Deferred[None], list[int]]] = []

    def cross(self, origin: int, targets: tuple[int, ...]) -> None:
        """Send a message."""
        number, ticket = self.nodes[origin].cross("t", *targets)
        if 2 in targets:
            self.sent[origin].append(number)
            ticket.when_settled(lambda failure: self.acknowledged[origin].append(number) if failure is None else None)

    def commit(self, node: int) -> None:
        """Let a node commit what it has."""
        self.nodes[node].settle()
        while self.nodes[node].executor.waiting:
            self.nodes[node].executor.step()
            self.nodes[node].settle()

    def lose_the_answer(self, node: int) -> None:
        """Let the connection of a node fail behind its next commit."""
        committer = self.nodes[node].parts.writer._committer
        if committer._connection is not None:
            committer._connection = LosesTheAnswer(committer._connection)
        self.commit(node)

    def hints(self, origin: int, arrive: bool) -> None:
        """Let the hints of a node arrive, or lose them."""
        hand(self.nodes[origin].hints, origin, *((self.nodes[2],) if arrive else ()))
        self.nodes[2].settle()

    def heard(self, nodes: set[int]) -> None:
        """Let node 2 hear these nodes only."""
        self.nodes[2].heard = frozenset(nodes)

    def pass_(self, seconds: int) -> None:
        """Let time pass for all."""
        for node in self.nodes.values():
            node.settle(seconds)

    def kill(self, node: int) -> None:
        """Kill a node, and start its next process."""
        self.nodes[node] = self.nodes[node].restart()
        self.nodes[node].executor.manual = True
        if node == 2:
            self.waiting.clear()  # the replays end with the process

    def catch_up(self, node: int) -> None:
        """Wait as a replay does, for all that is acknowledged now."""
        wanted = [number for numbers in self.acknowledged.values() for number in numbers]
        self.waiting.append((self.nodes[node].rows.caught_up(), wanted))
        self.nodes[node].settle()

    def check(self) -> None:
        """Compare what node 2 has delivered in this process."""
        target = self.nodes[2]
        for origin in (1, 3):
            got = [each.number for each in target.got if each.origin == origin]
            assert got == sorted(set(got))  # in order, each once
        durable = set(target.stored())
        got_now = {each.number for each in target.got}
        for waiting, wanted in self.waiting:
            if waiting.called:
                assert set(wanted) <= durable | got_now

    def end(self) -> None:
        """Let everything work again, and compare what is stored."""
        self.heard(set())
        for _ in range(3):
            self.pass_(6)
            for node in ALL:
                self.commit(node)
        stored = self.nodes[2].stored()
        assert len(stored) == len(set(stored))
        assert {number for numbers in self.acknowledged.values() for number in numbers} <= set(stored)
        assert set(stored) <= {number for numbers in self.sent.values() for number in numbers}


@settings(max_examples=12)
@given(steps=_steps)
def test_whatever_happens_each_acknowledged_message_is_delivered_once(steps: list[tuple[Any, ...]]) -> None:
    """Commits of which nobody knows, lost hints, nodes that are not heard, and processes that end at any step."""
    url = _shared_database()
    scene = Scene(url)
    try:
        for name, *arguments in steps:
            getattr(scene, {"pass": "pass_"}.get(name, name.replace(" ", "_")))(*arguments)
            scene.check()
        scene.end()
    finally:
        for node in scene.nodes.values():
            node.kill()


def _shared_database() -> str:
    """Return one database for all examples, as it is at first."""
    if not _shared:
        _shared.append(fresh_database())
    for table in ("cluster_messages", "cluster_cursors", "cluster_members", "session_received", "nodes"):
        ask(_shared[0], f"DELETE FROM {table}")
    for node in ALL:
        ask(_shared[0], f"INSERT INTO cluster_members VALUES ({node}, 'plant', 1, 0, 'member', 1, 1, '', '')")
    return _shared[0]


_shared: list[str] = []


@pytest.fixture(autouse=True, scope="module")
def no_database_left() -> Iterator[None]:
    """Drop it."""
    yield
    while _shared:
        drop(_shared.pop())


# --- where a node begins, and what is deleted -------------------------------------------------------------------------


def test_a_first_join_begins_at_the_present_numbers_and_a_restart_at_its_cursors(url: str) -> None:
    """A node that joins has no Sessions that older rows could concern."""
    origin = Node(url, 1).open()
    origin.send("before", 2, 3)
    target = Node(url, 2).open()
    target.heard = frozenset()
    target.settle(2)
    assert target.topics() == []
    target.kill()
    origin.send("meanwhile", 2)
    joined = Node(url, 3, now=Wall().now + 10).open()
    joined.send("by a new node", 2)
    target = Node(url, 2, now=Wall().now + 1000).open()
    target.heard = frozenset()
    target.settle(1)
    assert sorted(target.topics()) == ["by a new node", "meanwhile"]


def numbers_left(url: str) -> list[int]:
    """Return the numbers of the rows that are there."""
    return [row[0] for row in ask(url, "SELECT number FROM cluster_messages ORDER BY number")]


def pass_rows(nodes: Sequence[Node]) -> None:
    """Let nodes apply all rows."""
    for node in nodes:
        node.heard = frozenset()
        node.settle(1)


def test_rows_are_deleted_when_the_slowest_member_has_passed_them(url: str) -> None:
    """A member that has no cursor yet counts as one that has passed nothing."""
    origin, second = Node(url, 1).open(), Node(url, 2).open()
    first = origin.send("a", 2, 3)
    pass_rows([second])
    origin.settle(6)
    assert numbers_left(url) == [first]
    third = Node(url, 3).open()
    later = origin.send("b", 2)
    pass_rows([second, third])
    last = origin.send("c", 3)
    pass_rows([second])
    origin.settle(6)
    assert later
    assert numbers_left(url) == [last]


def test_rows_for_a_dead_node_are_kept_to_a_bound_and_for_a_removed_one_not(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets them when it comes back. What is kept is looked at once, and again when others are dead."""
    monkeypatch.setattr(crossing, "MOST_KEPT", 4)
    monkeypatch.setattr(crossing, "_TRIMMED", 3)
    origin, second, third = (Node(url, node).open() for node in ALL)
    third.kill()
    ask(url, "UPDATE cluster_members SET state = 'dead' WHERE node = 3")
    ask(url, "INSERT INTO sessions (id, client_id, listener, owner) VALUES (3, 'device', 'default', 3)")
    kept = [origin.send(f"a{turn}", *((2, 3) if turn % 2 else (2,))) for turn in range(8)][1::2]
    pass_rows([second])
    origin.settle(6)
    assert numbers_left(url) == kept
    more = origin.send("more", 3)
    pass_rows([second])
    origin.settle(6)
    assert numbers_left(url) == [*kept[1:], more]
    assert origin.rows.not_kept == 1
    ask(url, "UPDATE cluster_members SET state = 'left' WHERE node = 3")
    origin.settle(6)
    assert numbers_left(url) == []


def test_rows_are_kept_for_a_session_that_has_moved_and_is_not_loaded(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind its cut, for whatever node they are, to a bound; none when it is loaded."""
    monkeypatch.setattr(crossing, "MOST_KEPT", 4)
    origin, second, third = (Node(url, node).open() for node in ALL)
    first = origin.send("first", 2)
    ask(url, "INSERT INTO sessions (id, client_id, listener, owner) VALUES (3, 'device', 'default', 3)")
    ask(url, f"INSERT INTO session_cuts VALUES (3, 1, {first})")
    kept = [origin.send(f"a{turn}", 2 + turn % 2) for turn in range(4)]
    pass_rows([second, third])
    origin.settle(6)
    assert numbers_left(url) == kept
    more = origin.send("more", 2)
    pass_rows([second, third])
    origin.settle(6)
    assert numbers_left(url) == [*kept[1:], more]
    ask(url, "DELETE FROM session_cuts")
    origin.settle(6)
    assert numbers_left(url) == []


def test_nothing_is_kept_for_a_dead_node_without_sessions(url: str) -> None:
    """Nobody would get it."""
    origin, second, third = (Node(url, node).open() for node in ALL)
    third.kill()
    ask(url, "UPDATE cluster_members SET state = 'dead' WHERE node = 3")
    origin.send("a", 3)
    pass_rows([second])
    origin.settle(6)
    assert numbers_left(url) == []


def test_many_rows_are_deleted_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, one behind the other: an origin may write more in five seconds than one part has."""
    monkeypatch.setattr(crossing, "_TRIMMED", 10)
    origin, second, third = (Node(url, node).open() for node in ALL)
    for turn in range(95):
        origin.cross(f"t{turn}", 2)
    origin.settle()
    pass_rows([second, third])
    origin.settle(6)
    assert numbers_left(url) == []


def test_targets_are_sorted_and_each_stands_between_commas() -> None:
    """So node 2 is not found in 12."""
    assert text_of((12, 2, 12)) == ",2,12,"
