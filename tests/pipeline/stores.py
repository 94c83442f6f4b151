"""Databases for the pipeline's tests, filled by the store itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, frozen
from twisted.internet.task import Clock

from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.nodes import Epochs
from holdfast.changes.recording import AppendingRecorder, GatheringRecorder, HistoryRecorder
from holdfast.changes.telemetry import Telemetry
from holdfast.core.messages import ApplicationMessage, RetainedChange, RetainedMessage
from holdfast.retained.store.interfaces import NO_RECORDER, Recorder
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from holdfast.wire.properties import NO_PROPERTIES
from tests import postgres
from tests.storage.doubles import fresh_file, result_of

NOW = 1_700_000_000_000
MAKES = ("sqlite", "postgresql")


@frozen
class Filled:
    """A database with retained messages, as a broker leaves it.

    ``recorded`` tells that there is a history, ``marked`` that the topics that change are stored. The history begins
    at ``since``: changes of earlier times have this one.
    """

    url: str
    recorded: bool = False
    marked: bool = False
    since: int = NOW

    @contextmanager
    def store(self) -> Iterator[SQLRetainedStore]:
        """Open it as a broker does."""
        clock, executor = Clock(), SynchronousExecutor()
        durable = DurableStore(
            self.url, durability=Durability.PROCESS, flush_interval=1.0, max_pending=0, node=1, reactor=clock,
            now=lambda: self.since, executor=executor, reading_executor=SynchronousExecutor,
        )  # fmt: skip
        recorder: Recorder = HistoryRecorder(durable.bulk) if self.recorded else NO_RECORDER
        epochs = Epochs(durable, lambda: self.since, recorded=True) if self.marked else None
        if self.marked:
            sqlite = durable.dialect == "sqlite"
            recorder = GatheringRecorder(recorder, durable.bulk, most=1) if sqlite else AppendingRecorder(recorder)
        store = SQLRetainedStore(durable, recorder=recorder)
        history = None
        if self.recorded:
            limits = HistoryLimits(enable=True, keep=None)
            history = RetainedHistory(
                durable, flushed=store.flushed, clock=clock, now=lambda: self.since, limits=limits
            )
        durable.open()
        if history is not None:
            history.running = True
            tended = history.tend()
            while not tended.called:
                clock.advance(0)
        yield store
        if epochs is not None:
            result_of(store.ask_writer(epochs.end))
        durable.close()

    def record(self, *messages: RetainedMessage, at: int = NOW) -> None:
        """Record messages without RETAIN at a time."""
        clock = Clock()
        durable = DurableStore(
            self.url, durability=Durability.PROCESS, flush_interval=1.0, max_pending=0, node=1, reactor=clock,
            now=lambda: at, executor=SynchronousExecutor(), reading_executor=SynchronousExecutor,
        )  # fmt: skip
        telemetry = Telemetry(durable, clock=clock, now=lambda: at)
        durable.open()
        for each in messages:
            telemetry.record(
                ApplicationMessage(
                    each.topic, each.payload, each.qos, False, each.client_id, each.username, each.properties,
                    each.expires_at,
                ),
                False,
            )  # fmt: skip
        result_of(telemetry.flushed())
        durable.close()

    def put(self, *messages: RetainedMessage, at: int = NOW) -> None:
        """Retain messages at a time; a message with an empty payload clears its topic."""
        with self.store() as store:
            fill(store, messages, at)


def fill(store: SQLRetainedStore, messages: Iterable[RetainedMessage], at: int = NOW) -> None:
    """Write messages with the next revisions; a message with an empty payload clears its topic."""
    for message in messages:
        revision = store.next_revision()
        stored = evolve(message, revision=revision, stored_at=at) if message.payload else None
        change = RetainedChange(message.topic, revision, at, stored, message.client_id, message.username)
        assert store.put(change).failure is None


def message(topic: str, payload: bytes = b"x", **fields: Any) -> RetainedMessage:
    """Build a message with defaults."""
    return evolve(RetainedMessage(topic, payload, 0, NO_PROPERTIES, None, None, NOW, None, 0), **fields)


@contextmanager
def database(make: str, folder: Path, recorded: bool = False, marked: bool = False) -> Iterator[Filled]:
    """Give an empty database with a current schema."""
    if make == "sqlite":
        yield Filled(f"sqlite:///{fresh_file(folder)}", recorded, marked)
        return
    url = postgres.fresh_database()
    try:
        yield Filled(url, recorded, marked)
    finally:
        postgres.drop(url)
