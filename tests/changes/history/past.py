"""A retained store with its history, and a model that keeps every past state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from attrs import define, evolve, field
from twisted.internet.task import Clock
from zope.interface import implementer

from holdfast.changes.entries import NO_RULES, HistoryEvent, Rule, Rules
from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.moments import Moment
from holdfast.changes.restoring import Restored, Restorer
from holdfast.core.messages import ApplicationMessage, ChangeOrigin, RetainedChange, RetainedMessage
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.retained.administration import IPublisher
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from holdfast.wire.properties import NO_PROPERTIES
from tests.postgres import fresh_database
from tests.storage.doubles import Wall, fresh_file, result_of

START = 1_700_000_000_000


@implementer(IPublisher)
@define
class CallPublisher:
    """A publisher with room for everything."""

    publish: Callable[[ApplicationMessage, ChangeOrigin], CommitTicket]

    def room(self, topic: str) -> None:
        return


@define
class Past:
    """A node with its retained messages and their history, on a database, with clocks that stand still."""

    url: str
    limits: HistoryLimits = field(factory=lambda: HistoryLimits(enable=True, keep=None))
    node: int = 1
    rules: Rules = NO_RULES
    wall: Wall = field(factory=Wall)
    clock: Clock = field(factory=Clock)
    executor: SynchronousExecutor = field(factory=SynchronousExecutor)
    durable: DurableStore = field(init=False)
    store: SQLRetainedStore = field(init=False)
    history: RetainedHistory = field(init=False)
    retained: RetainedMessages = field(init=False)
    routed: list[ApplicationMessage] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.durable = DurableStore(
            self.url, durability=Durability.PROCESS, flush_interval=1.0, max_pending=0, node=self.node,
            reactor=self.clock, now=self.wall, executor=self.executor, reading_executor=SynchronousExecutor,
        )  # fmt: skip

        def flushed() -> CommitTicket:
            return self.store.flushed()

        self.history = RetainedHistory(
            self.durable,
            flushed=flushed,
            clock=self.clock,
            now=self.wall,
            limits=self.limits,
            rules=self.rules,
        )
        self.store = SQLRetainedStore(self.durable, recorder=self.history.recorder)
        self.retained = RetainedMessages(self.store, clock=self.clock, now=self.wall, limits=RetainerLimits())

    def open(self, started: bool = True) -> Past:
        """Open the store; with ``started``, let the history write its baseline."""
        self.durable.open()
        if started:
            self.history.running = True
            self.tend()
        return self

    def close(self) -> None:
        """Commit waiting changes, and close."""
        self.executor.manual = False
        while self.executor.waiting:
            self.executor.step()
        result_of(self.durable.close())

    def kill(self) -> None:
        """End as a kill does: changes and works that wait are lost, and nothing is completed."""
        parts, self.durable.parts = self.durable.parts, None
        assert parts is not None
        self.history.running = False
        self.executor.waiting.clear()
        parts.writer._committer._disconnect()  # as the end of its process does
        parts.readers.close()
        parts.scanners.close()

    def finish(self, work: Any) -> Any:
        """Let reactor turns pass until a Deferred has fired; return its result."""
        for _ in range(10_000):
            if work.called:
                break
            self.clock.advance(0)
            while self.executor.waiting:
                self.executor.step()
        return result_of(work)

    def tend(self) -> None:
        """Write the baseline and prune, to the end or until the database fails."""
        self.finish(self.history.tend().addErrback(lambda failure: failure.trap(StorageFailure)))

    def follow(self, *rules: tuple[str, int | None]) -> None:
        """Record by other rules, as after a reload."""
        self.history.change_rules(Rules(Rule(*rule) for rule in rules))
        self.tend()

    def reload(self, enable: bool) -> None:
        """Begin or end to record, as after a reload."""
        self.history.change_limits(evolve(self.history.limits, enable=enable))

    def pass_turns(self) -> None:
        """Let the running history do all that it has to do now."""
        for _ in range(10_000):
            self.clock.advance(0)
            if not self.executor.waiting:
                return
            self.executor.step()
        raise AssertionError("the history does not come to an end")

    def set(self, topic: str, payload: bytes = b"x", **fields: Any) -> CommitTicket:
        """Retain a message now."""
        return self.retained.retain(
            ApplicationMessage(topic, payload, retain=True, **fields), ChangeOrigin.PUBLISH
        )  # fmt: skip

    def clear(self, topic: str) -> CommitTicket:
        """Clear a topic now."""
        return self.set(topic, b"")

    def put(self, topic: str, payload: bytes, revision: int) -> CommitTicket:
        """Store a message under a revision of the test's."""
        message = RetainedMessage(topic, payload, 0, NO_PROPERTIES, None, None, self.wall.now, None, revision)
        return self.store.put(RetainedChange(topic, revision, self.wall.now, message))

    def expire(self) -> list[str]:
        """Remove expired messages."""
        return list(self.finish(self.store.expire(self.wall.now, 1000)))

    def events(self, topic_filter: str = "#", **options: Any) -> list[HistoryEvent]:
        """Read all events, page by page."""
        found: list[HistoryEvent] = []
        cursor, done = 0, False
        while not done:
            page = self.finish(self.history.events(topic_filter, cursor=cursor, **options))
            assert page.done or page.cursor > cursor
            found += page.events
            cursor, done = page.cursor, page.done
        return found

    def moment(self, at: int) -> Moment:
        """Find a moment."""
        moment: Moment = self.finish(self.history.moment(at))
        return moment

    def messages(self, at: int, topic_filter: str = "#") -> list[HistoryEvent]:
        """Read the messages of a moment, page by page."""
        moment = self.moment(at)
        found: list[HistoryEvent] = []
        after, done = "", False
        while not done:
            page = self.finish(self.history.as_of(topic_filter, moment, after))
            assert page.done or page.after > after
            found += page.messages
            after, done = page.after, page.done
        return found

    def as_of(self, at: int, topic_filter: str = "#") -> dict[str, bytes]:
        """Return topics and payloads of the messages of a moment, which must come in order."""
        found = self.messages(at, topic_filter)
        assert [one.topic for one in found] == sorted(one.topic for one in found)
        return {one.topic: one.payload for one in found}

    def restore(self, at: int, topic_filter: str = "#", publish: Any = None, **options: Any) -> Restored:
        """Restore."""
        restorer = Restorer(self.history, self.retained, CallPublisher(publish or self.publish), self.wall)
        report: Restored = self.finish(restorer.restore(topic_filter, at, **options))
        return report

    def publish(self, message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        """Retain and route, as the router does."""
        self.routed.append(message)
        return self.retained.retain(message, origin)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Read with plain SQL."""
        assert self.durable.parts is not None
        connection = self.durable.parts.database.connect_reader()
        try:
            cursor = connection.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall())
        finally:
            connection.close()

    def in_step(self) -> bool:
        """Tell whether the newest entry of each topic equals its retained message, byte for byte."""
        lasting = f"(expires_at IS NULL OR expires_at > {self.wall.now}) ORDER BY topic"
        live = self.query(f"SELECT topic, payload FROM retained WHERE tombstone = 0 AND {lasting}")
        newest = self.query(
            "SELECT topic, payload FROM retained_history WHERE op = 'set' AND seq IN (SELECT max(seq) FROM "
            "retained_history WHERE seq > (SELECT max(first_seq) FROM retained_history_periods) GROUP BY topic) "
            f"AND {lasting}"
        )
        return live == newest


@contextmanager
def sqlite() -> Iterator[Callable[..., Past]]:
    """Yield a function that makes nodes on an empty SQLite file. Open nodes are closed at the end."""
    with TemporaryDirectory() as directory:
        path = fresh_file(Path(directory))
        yield from _nodes(f"sqlite:///{path}")


@cache
def _postgres() -> str:
    return fresh_database()


@contextmanager
def postgres() -> Iterator[Callable[..., Past]]:
    """Yield a function that makes nodes on an empty Postgres database. Open nodes are closed at the end."""
    with psycopg.connect(_postgres().replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(
            "TRUNCATE retained, retained_levels, nodes, retained_history, retained_history_periods, "
            "retained_history_absent;"
            "UPDATE retained_history_state SET last_seq = 0, last_at = 0, bytes = 0, archived_seq = NULL, "
            "rules = NULL"
        )
    yield from _nodes(_postgres())


def _nodes(url: str) -> Iterator[Callable[..., Past]]:
    made: list[Past] = []

    def make(**options: Any) -> Past:
        made.append(Past(url, **options))
        return made[-1]

    yield make
    for past in made:
        if past.durable.parts is not None:
            past.close()


@define
class Model:
    """The expected history: every change in the order of commits, each with the moment of its effect.

    ``ended_at`` is the first moment after the history.
    """

    ended_at: int | None = None
    changes: list[tuple[int, str, bytes | None, int | None]] = field(factory=list)
    last_at: int = 0

    @property
    def since(self) -> int:
        """The first moment of the history."""
        return self.changes[0][0]

    def change(self, at: int, topic: str, payload: bytes | None, expires_at: int | None = None) -> None:
        """Note a change. The payload of a clear is None."""
        self.last_at = max(self.last_at, at)
        self.changes.append((self.last_at, topic, payload, expires_at))

    def as_of(self, moment: int) -> dict[str, bytes]:
        """Return topics and payloads of the messages of a moment."""
        found: dict[str, tuple[bytes | None, int | None]] = {}
        for at, topic, payload, expires_at in self.changes:
            if at <= moment:
                found[topic] = payload, expires_at
        return {
            topic: payload
            for topic, (payload, expires_at) in sorted(found.items())
            if payload is not None and (expires_at is None or expires_at > moment)
        }
