"""Changes of a real database: what this node commits, what other nodes commit, and what the log has since a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.changes import watch
from holdfast.changes.nodes import Epochs
from holdfast.changes.recording import AppendingRecorder, GatheringRecorder, IChangesRecorder
from holdfast.changes.since import ChangesSince
from holdfast.changes.tokens import NO_MEMORY, Token
from holdfast.changes.watch import MEMORY_KEPT, ChangeLog, ChangeWatch, NotStored
from holdfast.core.messages import ChangeKind, RetainedChange
from holdfast.retained.store.interfaces import NO_RECORDER
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.postgres import PostgresCursor
from tests import postgres
from tests.pipeline.stores import MAKES, NOW, database, fill, message
from tests.postgres import synchronous, wait_for_end
from tests.storage.doubles import result_of

UNKNOWN = "the changes since the token are not known any more"


class Node:
    """A node that stores which topics change, and the watch over their changes."""

    def __init__(self, url: str, number: int = 1, records: bool = True) -> None:
        self._url, self._number = url, number
        self.clock = Clock()
        self.durable = synchronous(url, number, now=lambda: NOW, clock=self.clock)[0]
        self.recorder: IChangesRecorder = (
            AppendingRecorder(NO_RECORDER) if self.durable.shared else GatheringRecorder(NO_RECORDER, self.durable.bulk)
        )
        epochs = Epochs(self.durable, lambda: NOW, recorded=records)
        self.store = SQLRetainedStore(self.durable, recorder=self.recorder if records else NO_RECORDER)
        self.durable.open()
        self.since = ChangesSince(
            self.store, epochs, self.recorder, clock=self.clock, now=lambda: NOW, keep=lambda: 10**9
        )
        if records:
            self.since.startService()
        self.watch = ChangeWatch(self.store, ChangeLog(self.store, self.since), self.clock)

    def put(self, topic: str, payload: bytes = b"x", **fields: Any) -> None:
        fill(self.store, [message(topic, payload, **fields)])

    def token(self) -> str:
        token: str = result_of(self.watch.token())
        return token

    def after(self, token: str | None, topic_filter: str = "#") -> tuple[list[tuple[str, str]], str, str | None]:
        """Return the changes after a token, the token after them, and why there was a reset."""
        follower = result_of(self.watch.follow(topic_filter, token, lambda: None))
        found, more, reset = [], True, None
        while more:
            taken = result_of(follower.take(1 << 20))
            found += [(change.kind.value, change.topic) for change in taken.changes]
            more, reset = taken.more, reset or taken.reset
        follower.close()
        return found, taken.token.text, reset

    def look(self, seconds: float = 1.1) -> None:
        self.clock.advance(seconds)

    def stop(self) -> None:
        """End in order."""
        self.watch.stop()
        if self.since.running:
            self.since.stopService()
        assert not self.clock.getDelayedCalls()
        result_of(self.durable.close())

    def kill(self) -> None:
        """End without a word."""
        self.watch.stop()
        self.since.running = False
        assert self.durable.parts is not None
        connection = self.durable.parts.writer._committer._connection
        assert connection is not None
        connection.close()
        self.durable.parts.readers.close()
        self.durable.parts.scanners.close()
        if self.durable.shared:
            wait_for_end(self._url, self._number)


@contextmanager
def node_on(make: str, folder: Path) -> Iterator[Node]:
    with database(make, folder) as filled:
        node = Node(filled.url)
        yield node
        node.stop()


@pytest.mark.parametrize("make", MAKES)
def test_each_kind_of_change_comes_after_the_token_before_it(make: str, tmp_path: Path) -> None:
    """In the order of commits, once each; nothing of other topics; and a later token has none of them."""
    with node_on(make, tmp_path) as node:
        node.put("a/1")
        token = node.token()
        node.put("a/2")
        node.put("b")
        node.put("a/1", b"")
        node.put("a/3", expires_at=NOW + 5)
        assert list(result_of(node.store.expire(NOW + 10, 10))) == ["a/3"]
        found, later, reset = node.after(token, "a/#")
        assert (found, reset) == ([("set", "a/2"), ("clear", "a/1"), ("expire", "a/3")], None)
        assert node.after(later) == ([], later, None)
        assert node.after(None)[0] == []


@pytest.mark.parametrize("make", MAKES)
def test_nobody_pays_for_a_watch_that_nobody_uses(make: str, tmp_path: Path) -> None:
    """Two minutes after the last token nothing is remembered. Then the log has the changes since the token."""
    with node_on(make, tmp_path) as node:
        assert not node.watch.remembers
        token = node.token()
        node.clock.advance(MEMORY_KEPT + 1)
        assert not node.watch.remembers
        node.put("a")
        found, _, reset = node.after(token)
        assert (found, reset) == ([("set", "a")], None)


@pytest.mark.parametrize("make", MAKES)
def test_a_token_outlasts_a_restart(make: str, tmp_path: Path) -> None:
    """The newest change of each topic since the token comes from the log, also of one whose tombstone is purged."""
    with database(make, tmp_path) as filled:
        node = Node(filled.url)
        for topic in ("a/0", "a/1", "a/gone"):
            node.put(topic)
        token = node.token()
        node.put("a/over", expires_at=NOW + 5)
        node.put("a/back", expires_at=NOW + 5)
        assert sorted(result_of(node.store.expire(NOW + 10, 10))) == ["a/back", "a/over"]
        node.put("a/back")
        node.put("a/back", b"")
        node.put("a/0", b"")
        node.put("a/gone", b"")
        assert result_of(node.store.purge(NOW + 1, 9)) == 3
        node.put("a/1", bytes(70_000), client_id="c")
        for number in range(300):
            node.put(f"a/{number + 2}")
        node.put("other")
        node.stop()
        node = Node(filled.url)
        found, later, reset = node.after(token, "a/#")
        assert reset is None
        assert len(found) == len(set(found)) == 305
        empty = {("clear", "a/0"), ("clear", "a/gone"), ("clear", "a/back"), ("expire", "a/over")}
        assert {change for change in found if change[0] != "set"} == empty
        node.put("a/1", b"later")
        assert node.after(later)[::2] == ([("set", "a/1")], None)
        of_marker = result_of(node.since.token())
        node.put("a/2", b"later")
        assert node.after(of_marker)[::2] == ([("set", "a/2")], None)
        follower = result_of(node.watch.follow("a/+", token, lambda: None))
        (first, *_) = (change for change in result_of(follower.take(1 << 20)).changes if change.topic == "a/10")
        assert (first.client_id, first.at, first.payload) == (None, NOW, b"x")
        follower.close()
        node.stop()


@pytest.mark.parametrize("make", MAKES)
def test_a_change_that_is_made_while_the_log_is_read_comes_too(make: str, tmp_path: Path) -> None:
    with node_on(make, tmp_path) as node:
        token = node.token()
        for number in range(200):
            node.put(f"a/{number:03}")
        node.watch.stop()
        follower = result_of(node.watch.follow("a/#", token, lambda: None))
        taken = result_of(follower.take(1 << 20))
        assert taken.more
        resumed = node.after(taken.token.text)[0]
        assert len(resumed) == 200  # it begins again: the log was not read to its end
        node.put("a/000", b"again")
        node.put("a/999")
        found = []
        while taken.more:
            taken = result_of(follower.take(1 << 20))
            found += [change.topic for change in taken.changes]
        assert {"a/000", "a/999"} <= set(found)
        assert node.after(taken.token.text)[0] == []
        follower.close()


@pytest.mark.parametrize("make", MAKES)
def test_the_token_behind_the_log_knows_no_change_that_was_made_while_it_was_read(make: str, tmp_path: Path) -> None:
    """Also if the broker has looked at the log meanwhile, and forgets what it remembers."""
    with node_on(make, tmp_path) as node:
        token = node.token()
        for number in range(200):
            node.put(f"a/{number:03}")
        node.watch.stop()
        follower = result_of(node.watch.follow("a/#", token, lambda: None))
        taken = result_of(follower.take(1 << 20))
        node.put("a/000", b"again")
        node.look(10.1)
        while taken.token.memory == NO_MEMORY:
            taken = result_of(follower.take(1 << 20))
        follower.close()
        node.watch.stop()
        assert ("set", "a/000") in node.after(taken.token.text)[0]


@pytest.mark.parametrize("make", MAKES)
def test_a_change_that_is_made_before_the_log_is_read_comes_too(
    make: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the broker's memory, before the position from which the follower goes on."""
    with node_on(make, tmp_path) as node:
        node.look(10)
        token = node.token()
        node.put("a/1")
        node.watch.stop()
        check = node.watch.log.check
        monkeypatch.setattr(node.watch.log, "check", lambda token: check(token).addCallback(lambda _: node.put("a/2")))
        assert node.after(token)[0] == [("set", "a/1"), ("set", "a/2")]


@pytest.mark.parametrize("make", MAKES)
def test_after_a_kill_and_for_a_token_of_another_database_there_is_a_reset(make: str, tmp_path: Path) -> None:
    """The killed process had changes in its memory only."""
    with database(make, tmp_path) as filled:
        node = Node(filled.url)
        token = node.token()
        node.put("a")
        node.kill()
        node = Node(filled.url)
        assert node.after(token)[::2] == ([], UNKNOWN)
        assert node.after(Token(b"no epoch", 0).text)[::2] == ([], UNKNOWN)
        assert "copy it unchanged" in (node.after("no token")[2] or "")
        node.stop()


def test_more_changes_than_a_replay_may_bring_are_a_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.changes.since.MOST_CHANGES", 3)
    with node_on("sqlite", tmp_path) as node:
        token = node.token()
        for topic in "abc":
            node.put(topic)
        node.watch.stop()
        assert node.after(token)[2] is None
        node.put("d")
        node.watch.stop()
        assert node.after(token)[2] == UNKNOWN


@pytest.fixture
def url() -> Iterator[str]:
    url = postgres.fresh_database()
    yield url
    postgres.drop(url)


@pytest.fixture
def two_nodes(url: str) -> Iterator[tuple[Node, Node]]:
    nodes = Node(url), Node(url, 2)
    for node in nodes:
        node.look(10)
    yield nodes
    for node in nodes:
        node.stop()


def test_the_change_of_another_node_comes_whatever_its_revision_is(two_nodes: tuple[Node, Node]) -> None:
    """It was stamped before the list, and committed after it: its revision is lower than that of a change in the list.

    A change of this node that a look finds again comes once.
    """
    node, other = two_nodes
    early = other.store.next_revision()
    node.put("a/listed")
    token = node.token()
    node.put("a/own")
    stored = evolve(message("a/late"), revision=early)
    assert other.store.put(RetainedChange("a/late", early, NOW, stored, None, None)).failure is None
    found, later, _ = node.after(token)
    node.look()
    found += node.after(later)[0]
    assert sorted(found) == [("set", "a/late"), ("set", "a/own")]
    other.put("a/own", b"")
    other.put("a/over", expires_at=NOW + 5)
    assert result_of(other.store.expire(NOW + 10, 10)) == ["a/over"]
    _, later, _ = node.after(later)
    node.look()
    assert sorted(node.after(later)[0]) == [("clear", "a/own"), ("expire", "a/over")]


def test_a_token_of_one_node_is_good_on_another_one(two_nodes: tuple[Node, Node]) -> None:
    node, other = two_nodes
    node.put("a/listed")
    token = node.token()
    node.put("a/1")
    other.put("a/2", b"")
    assert [sorted(each.after(token)[0]) for each in (other, node)] == [
        [("clear", "a/2"), ("set", "a/1")],
        [("set", "a/1")],
    ]
    node.look()
    assert sorted(node.after(token)[0]) == [("clear", "a/2"), ("set", "a/1")]


def test_a_look_in_many_parts_finds_all(two_nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_NEW", 7)
    node, other = two_nodes
    other.put("old")
    token = node.token()
    for number in range(40):
        other.put(f"t/{number}")
    node.look()
    found, later, reset = node.after(token)
    assert (len(found), {kind for kind, _ in found}, reset) == (40, {ChangeKind.SET.value}, None)
    node.look()
    assert node.after(later)[0] == []


def statements(monkeypatch: pytest.MonkeyPatch, node: Node) -> int:
    """Return how many statements a look makes."""
    made: list[object] = []
    execute = PostgresCursor.execute

    def counted(self: PostgresCursor, query: Any, params: Any = None, **options: Any) -> PostgresCursor:
        made.append(query)
        return execute(self, query, params, **options)

    with monkeypatch.context() as patched:
        patched.setattr(PostgresCursor, "execute", counted)
        node.look()
    return len(made)


def test_a_look_costs_the_same_for_any_number_of_messages_and_streams(
    two_nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what has changed, and no stream reads for itself."""
    node, other = two_nodes
    node.token()
    few = statements(monkeypatch, node)
    for number in range(1000):
        other.put(f"t/{number}")
    node.look()
    followers = [result_of(node.watch.follow("t/#", None, lambda: None)) for _ in range(60)]
    assert statements(monkeypatch, node) == few <= 10
    other.put("t/1", b"new")
    assert statements(monkeypatch, node) == few + 1
    assert [len(result_of(follower.take(1 << 16)).changes) for follower in followers] == [1] * 60
    for follower in followers:
        follower.close()


def test_changes_that_another_node_has_in_its_memory_come_when_it_stores_them(url: str) -> None:
    """A node that was alone gathers until it looks for others."""
    alone = Node(url)
    alone.look(10)
    node = Node(url, 2)
    token = node.token()
    alone.put("a")
    node.look()
    assert node.after(token)[0] == []
    alone.look(10)
    node.look()
    found, later, _ = node.after(token)
    assert found == [("set", "a")]
    assert node.after(later)[0] == []
    node.stop()
    alone.stop()


@pytest.mark.parametrize("gathers", [True, False])
def test_followers_learn_that_a_killed_node_has_taken_changes_with_it(url: str, gathers: bool) -> None:
    """If it has none in its memory, they go on."""
    other = Node(url, 2)
    if gathers:
        other.look(10)
    node = Node(url)
    assert other.recorder.alone is gathers  # type: ignore[attr-defined]
    token = node.token()
    told: list[None] = []
    follower = result_of(node.watch.follow("#", token, lambda: told.append(None)))
    other.put("a")
    node.look()
    other.kill()
    node.look(9)
    node.look()
    taken = result_of(follower.take(1 << 20))
    reset = "there were more changes than could be kept for you"
    assert taken.reset == (reset if gathers else None)
    assert [change.topic for change in taken.changes] == ([] if gathers else ["a"])
    assert told
    node.put("b")
    taken = result_of(follower.take(1 << 20))
    assert ([change.topic for change in taken.changes], taken.reset) == (["b"], None)
    follower.close()
    node.stop()


def test_followers_learn_it_when_the_killed_node_starts_again_before_anybody_has_noticed(url: str) -> None:
    other = Node(url, 2)
    other.look(10)
    node = Node(url)
    follower = result_of(node.watch.follow("#", node.token(), lambda: None))
    other.put("a")
    other.kill()
    other = Node(url, 2)
    node.look()
    assert result_of(follower.take(1 << 20)).reset is not None
    follower.close()
    other.stop()
    node.stop()


def test_nobody_follows_while_another_node_does_not_store_its_changes(url: str) -> None:
    """A stream that has begun ends."""
    node = Node(url)
    told: list[None] = []
    follower = result_of(node.watch.follow("#", None, lambda: told.append(None)))
    other = Node(url, 2, records=False)
    node.look()
    assert told
    waiting: list[Deferred[Any]] = [follower.take(1 << 20), node.watch.follow("#", None, lambda: None)]
    for deferred in waiting:
        with pytest.raises(NotStored, match=r"node.id 2 have retainer.changes.enable = false"):
            result_of(deferred)
    assert result_of(node.watch.token()) is None
    follower.close()
    other.stop()
    again = Node(url, 2)
    again.put("a")
    assert node.after(node.token())[0] == []
    again.stop()
    node.stop()
