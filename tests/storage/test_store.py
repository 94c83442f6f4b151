"""The durable store opens and closes its parts in order."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from holdfast.core.messages import RetainedChange
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.storage import store as store_module
from holdfast.storage.committer import StoreTotals, read_totals
from holdfast.storage.database import Durability
from holdfast.storage.executor import SynchronousExecutor
from holdfast.storage.location import StoreUnusable
from holdfast.storage.sqlite import verdict
from holdfast.storage.store import DurableStore, OpenStore
from tests.processes import PATIENCE
from tests.retained.store.contract import NOW, message
from tests.storage.doubles import Bench, Wall, fresh_file, result_of


class ThreadedClock(Clock):
    """A clock that keeps the calls from threads."""

    def __init__(self) -> None:
        super().__init__()
        self.from_thread: SimpleQueue[tuple[Any, ...]] = SimpleQueue()

    def callFromThread(self, *call: Any) -> None:
        self.from_thread.put(call)

    def turn_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            function, *arguments = self.from_thread.get(timeout=PATIENCE)
            function(*arguments)
        raise AssertionError("it does not come true")


def test_callbacks_run_once_the_store_is_open(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "new" / "store.db")
    told: list[OpenStore] = []
    bench.store.when_open(told.append)
    assert told == []
    bench.store.open()
    bench.store.when_open(told.append)
    assert told == [bench.store.parts] * 2
    assert told[0].totals == StoreTotals(0, 0, 0, 0, 0)
    result_of(bench.store.close())


def test_a_store_that_is_not_open_closes_at_once(tmp_path: Path) -> None:
    result_of(Bench(tmp_path / "x.db").store.close())
    assert not (tmp_path / "x.db").exists()


def test_a_store_may_be_closed_twice(tmp_path: Path) -> None:
    bench = Bench(fresh_file(tmp_path))
    bench.store.open()
    result_of(bench.store.close())
    result_of(bench.store.close())


def test_an_unusable_database_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_connection: object) -> StoreTotals:
        raise sqlite3.DatabaseError("database disk image is malformed")

    bench = Bench(fresh_file(tmp_path))
    monkeypatch.setattr(store_module, "read_totals", broken)
    with pytest.raises(StoreUnusable, match="malformed"):
        bench.store.open()
    assert bench.store.parts is None
    result_of(bench.store.close())


def test_pressure_is_passed_on(tmp_path: Path) -> None:
    bench = Bench(fresh_file(tmp_path), max_pending=1000, manual=True)
    retained = SQLRetainedStore(bench.store)
    bench.store.open()
    for number in range(2):
        stored = message(f"{number}", b"x" * 800, retained.next_revision())
        retained.put(RetainedChange(stored.topic, stored.revision, NOW, stored))
    assert bench.pressure == [True]
    bench.executor.stop()
    assert bench.pressure == [True, False]
    closed = bench.store.close()
    bench.executor.stop()
    result_of(closed)


def test_a_start_logs_the_version_of_sqlite_and_the_verdict(tmp_path: Path) -> None:
    store = DurableStore(
        f"sqlite:///{fresh_file(tmp_path)}", node=1, reactor=Clock(), now=Wall(), executor=SynchronousExecutor()
    )
    with capturedLogs() as events:
        store.open()
    assert verdict() in [formatEvent(event) for event in events]
    store.close()


@pytest.mark.parametrize("durability", list(Durability))
def test_with_a_real_thread_everything_acknowledged_is_in_the_file(tmp_path: Path, durability: Durability) -> None:
    clock = ThreadedClock()
    path = fresh_file(tmp_path)
    store = DurableStore(
        f"sqlite:///{path}", durability=durability, flush_interval=1.0, max_pending=0, node=1, reactor=clock, now=Wall()
    )
    retained = SQLRetainedStore(store)
    store.open()
    tickets = []
    for number in range(2000):
        stored = message(f"t/{number}", b"%d" % number, retained.next_revision())
        tickets.append(retained.put(RetainedChange(stored.topic, stored.revision, NOW, stored)))
    flushed = retained.flushed()
    clock.turn_until(lambda: flushed.settled)
    assert all(ticket.settled and ticket.failure is None for ticket in tickets)
    assert retained.statistics().count == 2000
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM retained").fetchone() == (2000,)
    assert read_totals(connection.cursor()).revision_mark >= retained.next_revision() - (1 << 8) - 255
    connection.close()
    closed: list[Any] = []
    store.close().addBoth(closed.append)
    clock.turn_until(lambda: bool(closed))
    assert closed == [None]
    assert not path.with_name("store.db-wal").exists()
