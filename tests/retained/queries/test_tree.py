"""The topic tree is opened level by level, with figures that are exact or say that they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed

from holdfast.core.messages import stored_size
from holdfast.core.tickets import FailureKind, StorageFailure
from holdfast.retained import tree
from holdfast.retained import tree as known_tallies
from holdfast.retained.store.interfaces import IRetainedStore
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.retained.store.values import Tally
from holdfast.retained.tree import TopicTree, TreeNode, TreePage
from holdfast.storage.revisions import RevisionClock
from tests.retained.store.contract import NOW, clear, few, put
from tests.retained.store.memory import MemoryRetainedStore
from tests.retained.store.scan_contract import fields, fill
from tests.storage.doubles import Bench, Wall, fresh_file, result_of


class Forest:
    """A store and its tree. The clock stands still until the test moves it."""

    def __init__(self, store: IRetainedStore) -> None:
        self.store = store
        self.now = NOW
        self.later: list[Deferred[None]] = []
        self.holds = False
        self.tree = TopicTree(store.scans, lambda: self.now, self._pause)

    def _pause(self) -> Deferred[None]:
        if not self.holds:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self.later.append(waiting)
        return waiting

    def page(self, parent: str | None = None, low: str | None = None, limit: int = 100) -> TreePage:
        page: TreePage = result_of(self.tree.page(parent, low, limit))
        return page

    def level(self, parent: str | None = None, limit: int = 100) -> list[TreeNode]:
        nodes: list[TreeNode] = []
        low: str | None = None
        for _ in range(100):
            page = self.page(parent, low, limit)
            assert len(page.nodes) <= limit
            nodes += page.nodes
            low = page.next_low
            if low is None:
                return nodes
        raise AssertionError("the level does not come to an end")


def memory() -> IRetainedStore:
    return MemoryRetainedStore(RevisionClock(1, 0, Wall()))


class TreeContract:
    def opened(self) -> AbstractContextManager[IRetainedStore]:
        raise NotImplementedError

    @few
    @given(st.lists(fields, max_size=12), st.lists(st.integers(0, 11), max_size=3), st.integers(1, 4))
    def test_the_tree_has_what_a_naive_tree_has(self, rows: list[Any], cleared: list[int], limit: int) -> None:
        """Every level, for pages of any size: names, messages, children, counts, bytes and the newest time."""
        with self.opened() as store:
            kept = fill(store, rows, cleared)
            alive = [one for one in kept if one.expires_at is None or one.expires_at > NOW]
            forest = Forest(store)
            parents: list[str | None] = [None]
            seen: dict[str, TreeNode] = {}
            while parents:
                for node in forest.level(parents.pop(), limit):
                    assert node.topic not in seen
                    seen[node.topic] = node
                    if node.has_children:
                        parents.append(node.topic)
            expected: dict[str, Tally] = {}
            for one in alive:
                size = stored_size(one.topic, one.properties, len(one.payload))
                levels = one.topic.split("/")
                for depth in range(1, len(levels) + 1):
                    topic = "/".join(levels[:depth])
                    expected[topic] = expected.get(topic, Tally()).plus(Tally(1, size, one.stored_at))
            assert {topic: node.tally for topic, node in seen.items()} == expected
            for topic, node in seen.items():
                assert node.exact
                assert node.name == topic.split("/")[-1]
                assert node.has_message == any(one.topic == topic for one in alive)
                assert node.has_children == any(one.topic.startswith(f"{topic}/") for one in alive)


class TestTreeInMemory(TreeContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        yield memory()


class TestTreeInSQLite(TreeContract):
    @contextmanager
    def opened(self) -> Iterator[IRetainedStore]:
        with TemporaryDirectory() as directory:
            bench = Bench(fresh_file(Path(directory)))
            store = SQLRetainedStore(bench.store)
            bench.store.open()
            yield store
            result_of(bench.store.close())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every bound be small: a page counts four rows, a part of a count two."""
    monkeypatch.setattr(tree, "PAGE_ROWS", 4)
    monkeypatch.setattr(known_tallies, "ROWS_OF_COUNT", 2)


@pytest.mark.usefixtures("small")
def test_a_large_node_is_counted_in_the_background_and_exact_when_asked_again() -> None:
    """The first answer has at least what was counted so far; it waits for no long count."""
    forest = Forest(memory())
    for number in range(9):
        put(forest.store, f"a/{number}", stored_at=NOW - 9 + number)
    (node,) = forest.page(limit=2).nodes
    assert (node.tally.count, node.exact, node.has_children) == (2, False, True)
    forest.now += 1
    (node,) = forest.page(limit=2).nodes
    assert (node.tally.count, node.tally.newest, node.exact) == (9, NOW - 1, True)


@pytest.mark.usefixtures("small")
def test_an_old_count_is_an_estimate_until_the_next_one() -> None:
    """It is larger than the part that a page counts itself."""
    forest = Forest(memory())
    for number in range(9):
        put(forest.store, f"a/{number}")
    forest.page(limit=2)
    put(forest.store, "a/x")
    forest.holds = False
    forest.now += 61_000
    (node,) = forest.page(limit=2).nodes
    assert (node.tally.count, node.exact) == (9, False)
    (node,) = forest.page(limit=2).nodes
    assert (node.tally.count, node.exact) == (10, True)


@pytest.mark.usefixtures("small")
def test_the_count_in_the_background_leaves_turns_to_others() -> None:
    """It pauses before each part."""
    forest = Forest(memory())
    for number in range(5):
        put(forest.store, f"a/{number}")
    forest.holds = True
    asked = forest.tree.page(None, None, 2)
    turns = 0
    while forest.later:
        turns += 1
        forest.later.pop(0).callback(None)
    assert not result_of(asked).nodes[0].exact
    assert turns == 1 + 3  # the page's, and one for each part of the count
    forest.holds = False
    assert forest.page(limit=2).nodes[0].tally.count == 5


@pytest.mark.usefixtures("small")
def test_a_failed_count_is_repeated_by_the_next_page(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = Forest(memory())
    for number in range(5):
        put(forest.store, f"a/{number}")
    working: Callable[..., Any] = forest.store.scans.tally
    away = StorageFailure(FailureKind.UNAVAILABLE, "away")
    monkeypatch.setattr(forest.store.scans, "tally", lambda *_: fail(away))
    assert not forest.page(limit=2).nodes[0].exact
    monkeypatch.setattr(forest.store.scans, "tally", working)
    assert not forest.page(limit=2).nodes[0].exact
    assert forest.page(limit=2).nodes[0].exact


def test_names_without_messages_are_left_out() -> None:
    """Their topics were cleared or have expired. A page of such names only still makes progress."""
    forest = Forest(memory())
    for topic in ("a/1", "b", "c/1", "d"):
        put(forest.store, topic, expires_at=NOW if topic in ("a/1", "b") else None)
    clear(forest.store, "d")
    assert [node.topic for node in forest.level(limit=1)] == ["c"]


def test_a_level_of_topics_without_messages_costs_a_bounded_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page ends early and names the position to go on from."""
    monkeypatch.setattr(tree, "_MOST_WALKS", 2)
    forest = Forest(memory())
    for number in range(20):
        put(forest.store, f"{number:02}", expires_at=NOW)
    put(forest.store, "99")
    page = forest.page(limit=1)
    assert (page.nodes, page.scanned) == ([], 6)
    assert page.next_low == "05\1"
    assert [node.topic for node in forest.level(limit=1)] == ["99"]


def test_kept_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ones used last stay."""
    monkeypatch.setattr(tree, "PAGE_ROWS", 1)
    monkeypatch.setattr(known_tallies, "_MOST_CHARACTERS", 3)
    forest = Forest(memory())
    for topic in "abcde":
        put(forest.store, f"{topic}/1")
        put(forest.store, f"{topic}/2")
    forest.page()
    known = forest.tree._known
    assert [topic for topic in "abcde" if known.get(topic) is not None] == ["c", "d", "e"]
