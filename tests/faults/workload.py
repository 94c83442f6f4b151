"""Work of every kind for a store, in a fixed order, that can be interrupted anywhere.

Every change is a *fact*: a key and a value (None: no row). It is noted before the change is submitted, and again when
its ticket says that it is stored. Afterwards the database must have, for each key, the value stored last or a value
noted later.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import define, field
from twisted.internet.task import Clock

from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.recording import HistoryRecorder
from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.tickets import CommitTicket, StorageFailure
from holdfast.identity.interfaces import Principal
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.service import RetainedMessages
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.sessions.durable import DurableSessionStates
from holdfast.sessions.state import DeliveryState, KeptMessage, StoredWill, Subscription
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from holdfast.wire.packets import Will
from tests.storage.doubles import Wall, result_of

FILTER = "t/#"

Key = tuple[Any, ...]
#: called with the number, key and value of a fact; key and value are None if the fact is stored
Note = Callable[[int, Key | None, Any], None]


@define
class Workload:
    """A store with retained messages, history and Session State, and its clocks."""

    url: str
    note: Note
    turns: int = 3
    wall: Wall = field(factory=Wall)
    clock: Clock = field(factory=Clock)
    executor: SynchronousExecutor = field(factory=SynchronousExecutor)
    durable: DurableStore = field(init=False)
    store: SQLRetainedStore = field(init=False)
    history: RetainedHistory = field(init=False)
    retained: RetainedMessages = field(init=False)
    states: DurableSessionStates = field(init=False)
    _facts: int = 0

    def __attrs_post_init__(self) -> None:
        self.durable = DurableStore(
            self.url, durability=Durability.PROCESS, flush_interval=1.0, max_pending=0, node=1, reactor=self.clock,
            now=self.wall, executor=self.executor, reading_executor=SynchronousExecutor,
        )  # fmt: skip
        self.store = SQLRetainedStore(
            self.durable, counted_filters=[FILTER], counted_clients=True, recorder=HistoryRecorder(self.durable.bulk)
        )
        limits = HistoryLimits(enable=True, keep=0.025)
        self.history = RetainedHistory(
            self.durable, flushed=self.store.flushed, clock=self.clock, now=self.wall, limits=limits
        )
        self.retained = RetainedMessages(self.store, clock=self.clock, now=self.wall, limits=RetainerLimits())
        self.states = DurableSessionStates(self.durable, self.clock)

    def open(self) -> Workload:
        """Open the store."""
        self.durable.open()
        self.history.running = True
        return self

    def run(self) -> None:
        """Do all the work, several changes in one commit, and close."""
        while self._wait(self.store.count_usage(2)):
            pass
        for turn in range(self.turns):
            self._together(partial(self._changes, turn))
            self._together(partial(self._sessions, turn))
            self.wall.now += 10
            self._sweep()
            self._wait(self.history.tend())
        self._wait(self.store.cap_expiry(1000, True, "", 100))
        self._wait(self.store.purge(self.wall.now - 5, 100))
        self.clock.pump([0.5] * 6)  # Session State that could not be stored is tried again after a second
        self.close()

    def close(self) -> None:
        """Close the store and complete the files."""
        closed = self.durable.close()
        self._drain(lambda: bool(closed.called))
        result_of(closed)

    def _together(self, work: Callable[[], None]) -> None:
        """Do work, then commit it: the first change in one commit, all others in the next one."""
        self.executor.manual = True
        work()
        while self.executor.waiting:
            self.executor.step()
        self.executor.manual = False
        self._drain(lambda: not self._pending())

    def _pending(self) -> bool:
        return self.durable.parts is not None and self.durable.parts.writer.pending_bytes > 0

    def _drain(self, done: Callable[[], bool]) -> None:
        """Let time pass, so that the writer tries again while the database is away."""
        for _ in range(100):
            if done():
                return
            self.clock.advance(1)

    def _wait(self, work: Any) -> Any:
        """Let turns of the reactor pass; return the result of the work, None if the database failed."""
        failed: list[Any] = []
        work.addErrback(lambda failure: failed.append(failure.trap(StorageFailure)))
        for _ in range(1000):
            if work.called and not self._pending():
                break
            self.clock.advance(0.1)
        return None if failed else result_of(work)

    def _changes(self, turn: int) -> None:
        for number in range(6):
            topic = f"t/{number % 4}"
            payload = b"%d %d" % (turn, number) if (turn + number) % 3 else b""
            expires_at = self.wall.now + 5 if number == 5 else None
            message = ApplicationMessage(topic, payload, 1, True, f"c{number % 2}", expires_at=expires_at)
            fact = self._intend(("retained", topic), payload.decode() or None)
            self._when_stored(fact, self.retained.retain(message, ChangeOrigin.PUBLISH))

    def _sweep(self) -> None:
        fact = self._intend(("retained", "t/1"), None)  # every message of t/1 expires
        for _ in range(3):
            if self._wait(self.store.expire(self.wall.now, 10)) is not None:
                self.note(fact, None, None)
                return

    def _sessions(self, turn: int) -> None:
        client, session = f"s{turn}", self.states.record(f"s{turn}")
        identifier = session.identifier
        principal = Principal(client, None)
        self._when_stored(
            self._intend(("sessions", "id", identifier), client), session.attached(principal, "default", 60)
        )
        topic_filter = f"filter/{turn}"
        subscription = Subscription(topic_filter, 1)
        fact = self._intend(("session_subscriptions", "session_id", identifier), topic_filter)
        self._when_stored(fact, session.subscribed(topic_filter, subscription, None))
        kept: list[KeptMessage] = []
        for seq in range(3):
            message = self.states.keep(ApplicationMessage(f"live/{seq}", b"%d" % turn, 1))
            message.acquire()
            kept.append(message)
            fact = self._intend(("session_messages", "id", message.identifier), f"live/{seq}")
            self._when_stored(fact, message.ticket)
            session.delivering(DeliveryState(seq, message.identifier, 1, False, ()), True)
        fact = self._intend(("session_received", "session_id", identifier), 7)
        self._when_stored(fact, session.received(7, self.wall.now, True))
        will = Will(f"will/{client}", b"gone", 1, False)
        fact = self._intend(("wills", "client_id", client), will.topic)
        self._when_stored(fact, self.states.will_kept(StoredWill(principal, will, 0)))
        self.executor.step()
        self._intend(("session_messages", "id", kept[0].identifier), None)
        session.delivered(0)
        kept[0].release()
        self._when_stored(self._intend(("session_received", "session_id", identifier), None), session.released(7))
        self._intend(("wills", "client_id", client), None)
        self.states.will_over(client)
        if turn == 1:
            for table, column in (
                ("sessions", "id"), ("session_subscriptions", "session_id"), ("session_received", "session_id"),
            ):  # fmt: skip
                fact = self._intend((table, column, identifier), None)
            ended = session.ended()
            for number in range(3):
                self._when_stored(fact - number, ended)

    def _intend(self, key: Key, value: Any) -> int:
        self._facts += 1
        self.note(self._facts, key, value)
        return self._facts

    def _when_stored(self, fact: int, ticket: CommitTicket) -> None:
        def settled(failure: StorageFailure | None) -> None:
            if failure is None:
                self.note(fact, None, None)

        ticket.when_settled(settled)
