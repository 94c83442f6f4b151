"""Changes of a real database: what this node commits, and what other nodes commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.task import Clock

from holdfast.core.messages import ChangeKind, RetainedChange
from holdfast.core.tickets import CommitTicket
from holdfast.retained.changes.entries import NO_RULES, NOT_RECORDED, Rule, Rules
from holdfast.retained.changes.history import HistoryLimits, RetainedHistory
from holdfast.retained.changes.recent import Head, Place, place_of
from holdfast.retained.changes.watch import KEPT, ChangeWatch, PastChanges
from holdfast.retained.store.sql import SQLRetainedStore
from tests import postgres
from tests.pipeline.stores import MAKES, NOW, database, fill, message
from tests.postgres import synchronous
from tests.storage.doubles import result_of


class Node:
    """A node that keeps retained messages, and the watch over their changes."""

    def __init__(self, url: str, number: int = 1, recorded: bool = False) -> None:
        self.clock = Clock()
        self.durable = synchronous(url, number, now=lambda: NOW)[0]

        def flushed() -> CommitTicket:
            return self.store.flushed()

        self.history = RetainedHistory(
            self.durable, flushed=flushed, clock=self.clock, now=lambda: NOW,
            limits=HistoryLimits(enable=recorded, keep=None),
        )  # fmt: skip
        self.store = SQLRetainedStore(self.durable, recorder=self.history.recorder)
        self.durable.open()
        self.watch = ChangeWatch(self.store, PastChanges(self.history), self.clock)

    def tend(self) -> None:
        """Write the baseline of the history."""
        self.history.running = True
        tended = self.history.tend()
        while not tended.called:
            self.clock.advance(0)

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
        return found, taken.place.token, reset

    def close(self) -> None:
        self.watch.stop()
        assert not self.clock.getDelayedCalls()
        self.durable.close()


@contextmanager
def node_on(make: str, folder: Path, recorded: bool = False) -> Iterator[Node]:
    with database(make, folder, recorded) as filled:
        node = Node(filled.url, recorded=recorded)
        yield node
        node.close()


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


def test_nobody_pays_for_a_watch_that_nobody_uses(tmp_path: Path) -> None:
    """Two minutes after the last token nothing is recorded; the old token begins with a reset."""
    with node_on("sqlite", tmp_path) as node:
        assert not node.watch.is_recording
        token = node.token()
        node.clock.advance(KEPT + 1)
        assert not node.watch.is_recording
        node.put("a")
        found, _, reset = node.after(token)
        assert (found, reset) == ([], "the changes since the token are not known any more")


def test_a_history_outlasts_the_recording(tmp_path: Path) -> None:
    """The changes since the token come from the history, then those that are recorded. Another database is noticed."""
    with node_on("sqlite", tmp_path, recorded=True) as node:
        node.put("a/0")
        token = node.token()
        node.put("a/1", bytes(70_000))
        node.watch.stop()
        node.put("a/1", b"")
        for number in range(300):
            node.put(f"a/{number}")
        found, later, reset = node.after(token, "a/#")
        assert reset is None
        assert found[:2] == [("set", "a/1"), ("clear", "a/1")]
        assert len(found) == 302
        assert node.after(later)[0] == []
        place = place_of(token)
        for head, why in (
            (Head(place.head.seq, place.head.revision + 1), "of another database"),
            (Head(place.head.seq + 10_000, 1), "of a later state"),
        ):
            assert why in (node.after(Place(head=head).token)[2] or "")


def test_a_history_that_is_turned_on_during_the_recording_outlasts_it(tmp_path: Path) -> None:
    with node_on("sqlite", tmp_path) as node:
        early = node.token()
        node.history.change_limits(HistoryLimits(enable=True, keep=None))
        node.tend()
        node.put("a/1")
        node.clock.advance(10)
        token = node.token()
        node.watch.stop()
        node.put("a/2")
        assert node.after(token)[::2] == ([("set", "a/2")], None)
        node.watch.stop()
        assert node.after(early)[::2] == ([], "the changes since the token are not known any more")


def test_a_history_that_leaves_out_topics_has_not_every_change_of_them(tmp_path: Path) -> None:
    """A token of such topics begins with a reset, once the recording has ended; one of other topics does not."""
    with node_on("sqlite", tmp_path, recorded=True) as node:
        node.history.change_rules(Rules([Rule("noise/#", NOT_RECORDED)]))
        node.tend()
        node.put("a/0")
        token = node.token()
        node.watch.stop()
        node.put("a/1")
        node.put("noise/1")
        assert node.after(token, "a/#")[::2] == ([("set", "a/1")], None)
        node.watch.stop()
        assert node.after(token)[::2] == ([], "not every change of these topics is recorded")
        node.watch.stop()
        node.history.change_rules(NO_RULES)
        node.tend()
        assert node.after(token, "a/#")[::2] == ([], "not every change since the token is recorded")


@pytest.fixture
def two_nodes() -> Iterator[tuple[Node, Node]]:
    url = postgres.fresh_database()
    nodes = Node(url), Node(url, 2)
    yield nodes
    for node in nodes:
        node.close()
    postgres.drop(url)


def test_the_change_of_another_node_comes_whatever_its_revision_is(two_nodes: tuple[Node, Node]) -> None:
    """It was stamped before the list, and committed after it: its revision is lower than that of a change in the list.

    A change of this node that a walk finds again comes once.
    """
    node, other = two_nodes
    early = other.store.next_revision()
    node.put("a/listed")
    token = node.token()
    node.put("a/own")
    stored = evolve(message("a/late"), revision=early)
    assert other.store.put(RetainedChange("a/late", early, NOW, stored, None, None)).failure is None
    found, later, _ = node.after(token)
    node.clock.advance(1.1)
    found += node.after(later)[0]
    assert sorted(found) == [("set", "a/late"), ("set", "a/own")]
    other.put("a/own", b"")
    _, later, _ = node.after(later)
    node.clock.advance(1.1)
    assert node.after(later)[0] == [("clear", "a/own")]


def test_a_walk_in_many_parts_finds_all(two_nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one part has more changes than it returns."""
    monkeypatch.setattr("holdfast.retained.changes.watch._ROWS", 7)
    monkeypatch.setattr("holdfast.retained.changes.watch._CHANGES_PER_PART", 3)
    node, other = two_nodes
    other.put("old")
    token = node.token()
    for number in range(40):
        other.put(f"t/{number}")
    for _ in range(40):
        node.clock.advance(0.1)
    found, _, reset = node.after(token)
    assert (len(found), {kind for kind, _ in found}, reset) == (40, {ChangeKind.SET.value}, None)
