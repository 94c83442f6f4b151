"""A restore in a whole broker: subscribers hear of it as of any other change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.interfaces import IRetainedStore
from holdfast.retained.history import HistoryLimits, RetainedHistory
from holdfast.retained.limits import RetainerLimits
from holdfast.retained.restoring import Restorer
from holdfast.retained.sql import SQLRetainedStore
from tests.doubles import START, MemoryBroker
from tests.storage.doubles import Bench, fresh_file, result_of


class RecordedBroker(MemoryBroker):
    """A broker whose retained messages are in a database, with their history."""

    def __init__(self, bench: Bench, limits: RetainerLimits | None = None) -> None:
        self.bench = bench

        def make(now: Callable[[], int]) -> IRetainedStore:
            store = SQLRetainedStore(bench.store, recorded=True)
            self.history = RetainedHistory(
                bench.store, store.flushed, self.clock, now, HistoryLimits(enable=True, keep=None)
            )
            bench.wall.now = now()
            bench.store.open()
            return store

        super().__init__(make, retainer=limits)
        self.history.startService()
        self.settle()
        self.restorer = Restorer(
            self.history, self.retained, lambda message, origin: self.router.publish(message, origin)[0], self.now
        )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RecordedBroker]:
    broker = RecordedBroker(Bench(fresh_file(tmp_path)))
    yield broker
    broker.history.stopService()
    result_of(broker.bench.store.close())


def test_live_subscribers_and_new_ones_get_what_was_restored(broker: RecordedBroker) -> None:
    """Live ones as a message of that moment, with RETAIN 0; new ones as what is retained."""
    client = broker.client("publisher")
    client.publish("lamp/1", b"on", qos=1, retain=True)
    client.publish("lamp/2", b"on", qos=1, retain=True)
    broker.advance(60)
    client.publish("lamp/1", b"off", qos=1, retain=True)
    client.publish("lamp/2", b"", qos=1, retain=True)
    client.publish("lamp/3", b"on", qos=1, retain=True)
    watcher = broker.client("watcher")
    watcher.subscribe("#")
    restoring = broker.restorer.restore("lamp/#", START * 1000 + 30_000, clear=True)
    broker.settle()
    report = result_of(restoring)
    assert (report.restored, report.cleared) == (2, 1)
    assert watcher.messages() == [
        ("lamp/1", b"on", 0, False),
        ("lamp/2", b"on", 0, False),
        ("lamp/3", b"", 0, False),
    ]
    new = broker.client("new")
    new.subscribe("#")
    broker.settle()
    assert broker.retained.statistics().count == 2
    assert {message.topic for message in result_of(broker.history.events("#")).events[-3:]} == {
        "lamp/1", "lamp/2", "lamp/3",
    }  # fmt: skip


def test_the_history_is_looked_after_once_a_minute(tmp_path: Path) -> None:
    """The baseline at once, pruning at every round; and nothing after the service has stopped."""
    bench = Bench(fresh_file(tmp_path))
    store = SQLRetainedStore(bench.store, recorded=True)
    limits = HistoryLimits(enable=True, keep=30)
    history = RetainedHistory(bench.store, store.flushed, bench.clock, bench.wall, limits)
    bench.store.open()
    history.startService()
    assert result_of(history.moment(bench.wall.now)).at == bench.wall.now
    bench.wall.now += 40_000
    for _ in range(3):
        bench.clock.advance(60)
    history.stopService()
    bench.clock.advance(60)
    assert bench.clock.getDelayedCalls() == []
    result_of(bench.store.close())
