"""A restore in a whole broker: subscribers get it like any other change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.changes.history import HistoryLimits, RetainedHistory
from holdfast.changes.recording import HistoryRecorder
from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.tickets import CommitTicket
from holdfast.core.units import Rate
from holdfast.retained.limits import NotRetained, RetainerLimits
from holdfast.retained.store.sql import SQLRetainedStore
from holdfast.wire.packets import Publish
from tests.changes.history.recorded import RecordedBroker
from tests.doubles import START
from tests.postgres import synchronous
from tests.storage.doubles import Bench, fresh_file, result_of


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RecordedBroker]:
    broker = made_in(tmp_path)
    yield broker
    broker.close()


def made_in(folder: Path, limits: RetainerLimits | None = None) -> RecordedBroker:
    url = f"sqlite:///{fresh_file(folder)}"
    return RecordedBroker(lambda now: synchronous(url, now=now)[0], limits)


def test_present_and_new_subscribers_get_a_restored_message(broker: RecordedBroker) -> None:
    """Present subscribers get it live, with RETAIN 0; new subscribers get it as a retained message."""
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
    assert broker.retained.totals.refreshed().count == 2
    assert {message.topic for message in result_of(broker.history.events("#")).events[-3:]} == {
        "lamp/1", "lamp/2", "lamp/3",
    }  # fmt: skip


def test_the_history_is_pruned_once_a_minute(tmp_path: Path) -> None:
    """The baseline is written at once. A stopped service does nothing."""
    bench = Bench(fresh_file(tmp_path))
    store = SQLRetainedStore(bench.store, recorder=HistoryRecorder(bench.store.bulk))
    limits = HistoryLimits(enable=True, keep=30)
    history = RetainedHistory(bench.store, flushed=store.flushed, clock=bench.clock, now=bench.wall, limits=limits)
    bench.store.open()
    history.startService()
    bench.clock.advance(0)
    assert result_of(history.moment(bench.wall.now)).at == bench.wall.now
    bench.wall.now += 40_000
    for _ in range(3):
        bench.clock.advance(60)
    history.stopService()
    bench.clock.advance(60)
    assert bench.clock.getDelayedCalls() == []
    result_of(bench.store.close())


def test_a_message_published_during_a_restore_stays(broker: RecordedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between the comparison of a topic and its restore: the last message sent is the retained one."""
    client = broker.client("publisher")
    client.publish("a", b"then", qos=1, retain=True)
    client.publish("b", b"then", qos=1, retain=True)
    broker.advance(60)
    client.publish("a", b"later", qos=1, retain=True)
    client.publish("b", b"later", qos=1, retain=True)
    publish = broker.publisher.publish

    def interrupted(message: ApplicationMessage, origin: ChangeOrigin) -> CommitTicket:
        ticket = publish(message, origin)
        broker.router.publish(ApplicationMessage("b", b"meanwhile", retain=True), ChangeOrigin.PUBLISH)
        return ticket

    monkeypatch.setattr(broker.publisher, "publish", interrupted)
    restoring = broker.restorer.restore("#", START * 1000 + 30_000)
    broker.settle()
    report = result_of(restoring)
    assert (report.restored, report.changed) == (1, 1)
    found = broker.client("new").subscribe("#")
    assert [(one.topic, one.payload) for one in found if isinstance(one, Publish)] == [
        ("a", b"then"),
        ("b", b"meanwhile"),
    ]


def test_a_restore_is_exact_at_a_limit_and_ignores_the_publish_rate(tmp_path: Path) -> None:
    """A topic with a message is restored even if no other topic fits the limit."""
    broker = made_in(tmp_path, RetainerLimits(max_retained_messages=2, max_publish_rate=Rate(5, 1)))
    client = broker.client("publisher", 5)
    for topic in ("a", "b"):
        client.publish(topic, b"then", qos=1, retain=True)
    broker.advance(60)
    for topic in ("a", "b"):
        client.publish(topic, b"later", qos=1, retain=True)
    for _ in range(3):
        client.publish("a", b"later", qos=1, retain=True)
    restoring = broker.restorer.restore("#", START * 1000 + 30_000)
    broker.settle()
    report = result_of(restoring)
    assert (report.restored, report.refused, report.reason) == (2, 0, None)
    broker.close()


def test_nothing_is_restored_while_the_retainer_is_off(tmp_path: Path) -> None:
    """No subscriber gets a message either."""
    broker = made_in(tmp_path, RetainerLimits(enable=False))
    with pytest.raises(NotRetained, match=r"retainer\.enable is false"):
        result_of(broker.restorer.restore("#", START * 1000))
    broker.close()
