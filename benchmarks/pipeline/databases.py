"""Databases for the benchmarks, filled by the broker's own store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twisted.internet.task import Clock

from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.recording import HistoryRecorder
from holdfast.core.messages import RetainedChange, RetainedMessage
from holdfast.retained.store.interfaces import NO_RECORDER
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.store import DurableStore
from holdfast.wire.properties import NO_PROPERTIES
from tests.postgres import drop, empty_database

#: Changes of each topic in a database with a history.
CHANGES = 3
_BATCH = 10_000
_PENDING = 1 << 40
_START = 1_700_000_000_000
_MOST_TURNS = 1_000_000


@contextmanager
def database(postgres: bool, folder: Path, name: str) -> Iterator[str]:
    """Give the URL of an empty database without a schema; remove it at the end."""
    if not postgres:
        yield f"sqlite:///{folder / name}.db"
        return
    url = empty_database()
    try:
        yield url
    finally:
        drop(url)


def topic_of(number: int) -> str:
    """Return the Topic Name for a number, with five levels."""
    return f"site/{number % 1000}/dev/{number}/temp"


def fill(url: str, rows: int, changes: int = 1, recorded: bool = False) -> None:
    """Retain ``rows`` messages of 120 bytes, ``changes`` times each; with ``recorded``, keep their history.

    Without rows, only the schema is made.
    """
    clock, executor, now = Clock(), SynchronousExecutor(), [_START]
    durable = DurableStore(
        url, durability=Durability.PROCESS, flush_interval=1.0, max_pending=_PENDING, node=1, reactor=clock,
        now=lambda: now[0], executor=executor, reading_executor=SynchronousExecutor,
    )  # fmt: skip
    store = SQLRetainedStore(durable, recorder=HistoryRecorder(durable.bulk) if recorded else NO_RECORDER)
    history = RetainedHistory(
        durable, flushed=store.flushed, clock=clock, now=lambda: now[0],
        limits=HistoryLimits(enable=recorded, keep=None),
    )  # fmt: skip
    durable.open()
    if recorded:
        history.running = True
        tended = history.tend()
        for _ in range(_MOST_TURNS):
            if tended.called:
                break
            clock.advance(0)
    for change in range(changes):
        for start in range(0, rows, _BATCH):
            now[0] += 1000
            executor.manual = True
            for number in range(start, min(start + _BATCH, rows)):
                topic, revision = topic_of(number), store.next_revision()
                payload = b"%0120d" % (number + change)
                message = RetainedMessage(topic, payload, 0, NO_PROPERTIES, "bench", None, now[0], None, revision)
                store.put(RetainedChange(topic, revision, now[0], message, "bench"))
            executor.stop()
            executor.manual = False
    durable.close()
