"""List, then watch: the copy that a client keeps from lists and events equals the store, whatever comes between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from holdfast.changes.recent import RecentChanges, change_of_row
from holdfast.changes.tokens import Token
from holdfast.changes.watch import ChangeWatch, Follower, Forgotten, Part
from holdfast.core.messages import ChangeKind
from holdfast.retained.store.rows import Row
from tests.storage.doubles import result_of

TOPICS = ("a", "a/b", "c", "d/e", "f")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(TOPICS), st.integers(0, 2)),
        st.tuples(st.just("set"), st.sampled_from(TOPICS), st.integers(0, 2)),
        st.tuples(st.just("stamp"), st.sampled_from(TOPICS), st.integers(0, 2)),
        st.tuples(st.just("commit"), st.integers(0, 9)),
        st.tuples(st.just("report"),),
        st.tuples(st.just("expire"), st.sampled_from(TOPICS)),
        st.tuples(st.just("list"), st.integers(0, 2)),
        st.tuples(st.just("take"), st.integers(0, 2)),
        st.tuples(st.just("resume"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.just("restart"),),
        st.tuples(st.just("look"),),
    ),
    min_size=10,
    max_size=60,
)  # fmt: skip


def row(topic: str, revision: int, value: int) -> Row:
    """Return the row of a message; 0 is a tombstone."""
    payload = str(value).encode() if value else b""
    return Row(topic, revision, 1, 0, len(payload), 0, None, int(not value), None, None, b"", b"", b"\0", None, payload)


class FakeLog:
    """A log of all commits, also of those that are not reported yet; one that is not ``kept`` knows no token."""

    def __init__(self, store: FakeStore, kept: bool) -> None:
        self._store = store
        self._kept = kept

    def now(self) -> Deferred[Token]:
        """Answer behind all reports, as the writer's thread does."""
        while self._store.unreported:
            self._store.report()
        return succeed(Token(b"an epoch", len(self._store.log)))

    def check(self, _token: Token) -> Deferred[Any]:
        return succeed(None) if self._kept else fail(Forgotten("there is nothing"))

    def read_wanted(self, since: Token, wanted: Callable[[str], bool], after: str) -> Deferred[Part]:
        """Return one change."""
        changed = {topic for topic in self._store.log[since.turn :] if topic > after and wanted(topic)}
        topics = sorted(changed)[:1]
        changes = [change_of_row(self._store.rows[topic]) for topic in topics]
        return succeed(Part(changes, topics[0] if topics else after, not topics, since))


class FakeStore:
    """A store whose commits come in any order, and are reported later."""

    shared = False
    available = True

    def __init__(self) -> None:
        self.watcher: Any = None
        self.rows: dict[str, Row] = {}
        self.stamped: list[Row] = []
        self.unreported: list[Callable[[], None]] = []
        self.log: list[str] = []
        self._revisions = count(1)

    def watch(self, watcher: Any) -> None:
        self.watcher = watcher

    def stamp(self, topic: str, value: int) -> None:
        self.stamped.append(row(topic, next(self._revisions), value))

    def commit(self, number: int) -> None:
        """Commit one of the stamped changes, unless the stored one is newer."""
        if not self.stamped:
            return
        chosen = self.stamped.pop(number % len(self.stamped))
        known = self.rows.get(chosen.topic)
        if known is None or known.revision < chosen.revision:
            self._write(chosen, lambda watcher: watcher.written([chosen]))

    def expire(self, topic: str) -> None:
        known = self.rows.get(topic)
        if known is not None and not known.tombstone:
            revision = next(self._revisions)
            self._write(row(topic, revision, 0), lambda watcher: watcher.expired([topic], 0, revision))

    def report(self) -> None:
        if self.unreported:
            self.unreported.pop(0)()

    def messages(self) -> dict[str, bytes]:
        return {topic: each.payload for topic, each in self.rows.items() if not each.tombstone}

    def _write(self, written: Row, tell: Callable[[Any], None]) -> None:
        self.rows[written.topic] = written
        self.log.append(written.topic)
        begun = self.watcher is not None  # a commit that begins before the watch is not reported to it

        def report() -> None:
            if begun and self.watcher is not None:
                tell(self.watcher)

        self.unreported.append(report)


@define
class Mirror:
    """A client: it lists, takes events, and remembers tokens."""

    store: FakeStore
    watch: ChangeWatch
    topic_filter: str
    copy: dict[str, bytes] = field(factory=dict)
    tokens: list[tuple[str, dict[str, bytes]]] = field(factory=list)
    follower: Follower | None = None

    def list(self) -> None:
        token = result_of(self.watch.token())
        self.copy = self._wanted()
        self.tokens.append((token, dict(self.copy)))
        self.follow(token)

    def follow(self, token: str) -> None:
        if self.follower is not None:
            self.follower.close()
        self.follower = result_of(self.watch.follow(self.topic_filter, token, lambda: None))

    def resume(self, back: int) -> None:
        """Connect again, with the state of an older token."""
        if self.tokens:
            token, copy = self.tokens[-1 - back % len(self.tokens)]
            self.copy = dict(copy)
            self.follow(token)

    def take(self) -> bool:
        """Take the next events; tell whether others may be there."""
        if self.follower is None:
            return False
        taken = result_of(self.follower.take(300))
        if taken.reset is not None:
            self.copy = self._wanted()
        for change in taken.changes:
            if change.kind is ChangeKind.SET:
                self.copy[change.topic] = change.payload
            else:
                self.copy.pop(change.topic, None)
        self.tokens.append((taken.token.text, dict(self.copy)))
        return bool(taken.more)

    def _wanted(self) -> dict[str, bytes]:
        found = self.store.messages()
        return found if self.topic_filter == "#" else {t: p for t, p in found.items() if t.startswith("a")}


@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(1, 4), st.booleans())
def test_the_copy_of_each_client_equals_the_store_at_the_end(
    steps: Sequence[tuple[Any, ...]], kept: int, has_log: bool
) -> None:
    """Commits come late and in any order, are reported late, clients are slow, and resume with older tokens.

    The watch forgets, and looks at the log now and then.
    """
    store, clock, names = FakeStore(), Clock(), count(1)
    parts: tuple[Any, Any] = (store, FakeLog(store, has_log))
    watch = ChangeWatch(*parts, clock, lambda: next(names).to_bytes(8, "big"), lambda: RecentChanges(kept))
    mirrors = [Mirror(store, watch, each) for each in ("#", "a/#", "#")]
    for step, *values in steps:
        match step:
            case "set":
                store.stamp(*values)
                store.commit(len(store.stamped) - 1)
                while store.unreported:
                    store.report()
            case "stamp":
                store.stamp(*values)
            case "commit":
                store.commit(*values)
            case "report":
                store.report()
            case "expire":
                store.expire(*values)
            case "list":
                mirrors[values[0]].list()
            case "take":
                mirrors[values[0]].take()
            case "resume":
                mirrors[values[0]].resume(values[1])
            case "look":
                clock.advance(10)
            case "restart":
                watch.stop()
                for mirror in mirrors:
                    if mirror.tokens:
                        mirror.resume(0)
    while store.stamped:
        store.commit(0)
    while store.unreported:
        store.report()
    for mirror in mirrors:
        while mirror.take():
            pass
        assert mirror.follower is None or mirror.copy == mirror._wanted()
        if mirror.follower is not None:
            mirror.follower.close()
    watch.stop()
    assert not clock.getDelayedCalls()
