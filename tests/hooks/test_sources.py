"""Sources of hooks: no change is missing over a kill, and of each topic none comes after a newer one."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock

from holdfast.admin.api.happenings import Happenings, Tell
from holdfast.changes.recent import RecentChanges, change_of_row
from holdfast.changes.watch import ChangeWatch, NotStored, Revised
from holdfast.core.tickets import CommitTicket
from holdfast.hooks.positions import CLAIM, Position, claim, save
from holdfast.hooks.sources import HappeningSource, RetainedSource
from tests.changes.test_list_then_watch import FakeLog, FakeStore

TOPICS = ("a", "b", "c", "d", "e")
TABLE = (
    "CREATE TABLE hook_positions (hook TEXT PRIMARY KEY, token TEXT, revision INTEGER, node INTEGER,"
    " claimed_until INTEGER)"
)


class Log(FakeLog):
    """A log that can read the table of retained messages, too."""

    def __init__(self, store: Store, kept: bool) -> None:
        super().__init__(store, kept)
        self._rows = store.rows

    def read_revised(self, revision: int, wanted: Callable[[str], bool], after: str) -> Deferred[Revised]:
        """Look at one topic."""
        topics = sorted(topic for topic in self._rows if topic > after)[:1]
        rows = [self._rows[topic] for topic in topics if self._rows[topic].revision > revision and wanted(topic)]
        return succeed(Revised([change_of_row(row) for row in rows], topics[-1] if topics else after, not topics))


class Store(FakeStore):
    """A store with places of hooks."""

    node = 1

    def __init__(self) -> None:
        super().__init__()
        self._cursor = sqlite3.connect(":memory:").cursor()
        self._cursor.execute(TABLE)

    def ask_writer(self, work: Callable[[Any], Any]) -> Deferred[Any]:
        return succeed(work(self._cursor))

    def next_revision(self) -> int:
        return next(self._revisions)

    def flushed(self) -> CommitTicket:
        """Commit what was stamped, in any order of reports."""
        while self.stamped:
            self.commit(0)
        ticket = CommitTicket()
        ticket.settle(None)
        return ticket


class World:
    """A store, and the hook of a process that is killed and starts again."""

    def __init__(self) -> None:
        self.store = Store()
        self.delivered: dict[str, list[int]] = defaultdict(list)
        self.clock = Clock()
        self.names = count(1)
        self.start(kept=True)

    def start(self, kept: bool) -> None:
        self.watch = ChangeWatch(
            self.store,  # type: ignore[arg-type]
            Log(self.store, kept),  # type: ignore[arg-type]
            self.clock, lambda: next(self.names).to_bytes(8, "big"), lambda: RecentChanges(most=3),
        )  # fmt: skip
        self.source = RetainedSource(
            "h", lambda _topic: True, self.store, self.watch, self.clock, lambda: 0, 2  # type: ignore[arg-type]
        )  # fmt: skip
        self.asked: Deferred[Any] | None = None
        self.pass_time(1)

    def kill(self) -> None:
        """Forget everything but what is committed. No token of before counts."""
        if self.asked is not None:
            self.asked.addErrback(lambda failure: failure.trap(CancelledError))
            self.asked.cancel()
        self.store.watch(None)
        self.store.stamped.clear()
        self.store.unreported.clear()
        self.watch.stop()
        self.start(kept=False)

    def pass_time(self, seconds: float) -> None:
        """Ask for events, and deliver those that are there."""
        for _ in range(round(seconds / 0.5)):
            if self.asked is None:
                self.asked = Deferred.fromCoroutine(self.source.next())
            self.clock.advance(0.5)
            if self.asked.called:
                self.asked.addCallback(self._deliver)
                self.asked = None

    def _deliver(self, events: list[bytes]) -> None:
        for each in map(json.loads, events):
            self.delivered[each["topic"]].append(int(each["revision"]))
        Deferred.fromCoroutine(self.source.confirm())


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.sampled_from(TOPICS), st.integers(0, 2)),
            st.tuples(st.just("set"), st.sampled_from(TOPICS), st.integers(0, 2)),
            st.tuples(st.just("commit"), st.integers(0, 9)),
            st.tuples(st.just("commit"), st.integers(0, 9)),
            st.tuples(st.just("report")),
            st.tuples(st.just("time"), st.integers(1, 4)),
            st.tuples(st.just("kill")),
        ),
        max_size=60,
    )
)
def test_the_newest_change_of_each_topic_is_delivered_and_none_behind_it(steps: list[tuple[Any, ...]]) -> None:
    """Whenever the process is killed, commits are reported and batches are confirmed."""
    world = World()
    for step in steps:
        match step:
            case "set", topic, value:
                world.store.stamp(topic, value)
            case "commit", number:
                world.store.commit(number)
            case ("report",):
                world.store.report()
            case "time", halves:
                world.pass_time(halves / 2)
            case ("kill",):
                world.kill()
    world.store.flushed()
    while world.store.unreported:
        world.store.report()
    world.pass_time(60)
    for topic, row in world.store.rows.items():
        assert world.delivered[topic][-1:] == [row.revision], topic
    for revisions in world.delivered.values():
        assert revisions == sorted(revisions)


def test_a_source_begins_again_when_changes_are_stored_again() -> None:
    """Another node had ``retainer.changes.enable = false`` for a while: nothing of that time is missing."""
    world = World()
    world.watch.stop()
    world.watch.refusal = NotStored("node 2 does not store them")
    failed: list[Any] = []
    assert world.asked is not None
    world.asked.addErrback(failed.append)
    world.clock.advance(20)
    assert [failure.type for failure in failed] == [NotStored]
    world.asked = None
    world.store.stamp("a", 1)
    world.store.flushed()
    world.pass_time(20)
    assert world.delivered["a"] == [world.store.rows["a"].revision]


def test_of_two_nodes_one_has_a_hook_until_its_claim_ends() -> None:
    """A node whose claim was taken writes no place any more."""
    store = Store()
    cursor = store._cursor
    assert claim(cursor, "h", 1, 0) == Position("", 0)
    assert claim(cursor, "h", 2, CLAIM) is None
    assert save(cursor, "h", 1, Position("t", 7), 10)
    assert claim(cursor, "h", 2, CLAIM + 5) is None
    assert claim(cursor, "h", 2, CLAIM + 11) == Position("t", 7)
    assert not save(cursor, "h", 1, Position("u", 9), CLAIM + 12)
    assert claim(cursor, "h", 1, CLAIM + 12) is None


def test_happenings_are_marked_where_some_are_missing() -> None:
    """At the beginning, and where a slow server has missed more than the ring keeps."""
    clock, tells = Clock(), []

    def source(tell: Tell) -> Callable[[], None]:
        tells.append(tell)
        return tells.clear

    happenings = Happenings(clock, {"client": source}, most=5, most_per_second=100)
    events = HappeningSource(happenings, ["client"], clock, 3)

    def following() -> list[dict[str, Any]]:
        found: list[Any] = []
        Deferred.fromCoroutine(events.next()).addCallback(found.extend)
        clock.advance(0)
        return [json.loads(each) for each in found]

    assert following() == [{"type": "missed", "reason": "the broker has started"}]
    for number in range(8):
        tells[0]({"event": "connected", "clientid": str(number)})
    first, second = following(), following()
    assert first[0] == {"type": "missed", "count": 3}
    assert [each["clientid"] for each in first[1:] + second] == ["3", "4", "5", "6", "7"]
    events.stop()
    assert tells == []
