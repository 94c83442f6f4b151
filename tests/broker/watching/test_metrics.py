"""The broker's metrics: all can be read, agree with the broker's own topics, and take no label from a client."""

from __future__ import annotations

from pathlib import Path

from holdfast.watch.metrics import Histogram, Kind, Reading
from holdfast.wire import packets as p
from tests.broker.watching.watched import WatchedBroker
from tests.doubles import Client

HOSTILE = 'x"} 1 \\ evil'


def readings(broker: WatchedBroker) -> dict[str, Reading]:
    return {metric.name: reading for metric, reading in broker.monitoring.metrics.readings()}


def busy(broker: WatchedBroker) -> Client:
    """Let clients do many things, some of them forbidden, with hostile names."""
    client = broker.client(HOSTILE, version=5)
    for number in range(20):
        client.send(p.Publish(f"{HOSTILE}/{number}", b"1", 1, True, packet_identifier=1))
    client.subscribe("$SYS/none")
    reader = broker.client("reader", version=4)
    reader.subscribe("#", qos=1)
    reader.send(p.Publish("x", b"", 0, True))
    client.send(p.Publish("y", b"hello"))
    Client(broker).raw(b"\x00\x00")
    broker.advance(30)
    return client


def told(packets: list[p.Packet]) -> dict[str, str]:
    """Return the values among the packets by topic, without $SYS/broker/."""
    found = [each for each in packets if isinstance(each, p.Publish)]
    return {each.topic.removeprefix("$SYS/broker/"): each.payload.decode() for each in found}


def present(broker: WatchedBroker) -> dict[str, str]:
    """Return the present values of the broker's own topics."""
    broker.advance(10)
    observer = Client(broker)
    observer.connect("observer")
    return told(observer.subscribe("$SYS/#"))


def test_every_metric_can_be_read(broker: WatchedBroker) -> None:
    """Reading that fails is logged, and leaves the metric out: none is left out, at rest and at work."""
    names = {metric.name for metric in broker.monitoring.metrics}
    assert len(names) > 60
    assert set(readings(broker)) == names
    broker.watch()
    busy(broker)
    assert set(readings(broker)) == names


def test_metrics_tell_what_has_happened(broker: WatchedBroker) -> None:
    """Messages, changes, commits, replays, protocols and refusals are counted where they belong."""
    broker.watch()
    busy(broker)
    found = readings(broker)
    assert found["holdfast_messages_received_total"] == 22
    assert found["holdfast_retained_changes_total"] == {("set",): 20, ("clear",): 1, ("expire",): 0}
    assert found["holdfast_retained_messages"] == 20
    assert found["holdfast_clients_connected"] == {("3.1",): 0, ("3.1.1",): 1, ("5.0",): 1}
    assert found["holdfast_logins_total"] == {("none", "accepted"): 2}
    assert found["holdfast_replayed_messages_total"] == 20
    assert found["holdfast_messages_in_flight"] == 20  # nothing is acknowledged
    assert found["holdfast_protocol_errors_total"] == 1
    disk = found["holdfast_disk_free_bytes"]
    assert isinstance(disk, int)
    assert disk > 0
    for name in ("commit_duration_seconds", "commit_rows", "acknowledgement_seconds", "replay_duration_seconds",
                 "replay_first_message_seconds", "reactor_lag_seconds"):  # fmt: skip
        histogram = found[f"holdfast_{name}"]
        assert isinstance(histogram, Histogram)
        assert histogram.count, name


def test_what_metrics_and_sys_topics_both_show_is_the_same(broker: WatchedBroker) -> None:
    """A topic that a metric names exists, and has the metric's value."""
    broker.watch()
    busy(broker)
    observer = Client(broker)
    observer.connect("observer")
    broker.advance(10)
    readings = list(broker.monitoring.metrics.readings())
    shown = told(observer.subscribe("$SYS/#"))
    compared = 0
    for metric, reading in readings:
        for labels, topic in metric.topics.items():
            value = reading[labels] if isinstance(reading, dict) else reading
            assert not isinstance(value, Histogram | None), metric.name
            assert float(shown[topic]) == value, metric.name
            compared += 1
    assert compared > 50


def test_every_counter_of_the_broker_is_a_metric(broker: WatchedBroker) -> None:
    """What is counted for the broker's own topics can be scraped."""
    shown = {topic for metric in broker.monitoring.metrics for topic in metric.topics.values()}
    own = {topic for topic in present(broker) if topic.startswith(("holdfast/", "publish/", "bytes/"))}
    words = {"holdfast/storage/durability", "holdfast/storage/loss_window", "holdfast/storage/seconds",
             "holdfast/storage/quarantined", "publish/messages/dropped"}  # fmt: skip
    assert own - shown == words | {"holdfast/connections/most"}


def test_no_label_has_a_text_of_a_client(broker: WatchedBroker) -> None:
    """Whatever clients do: their texts would make series without end, and lines of their own."""
    busy(broker)
    for metric, reading in broker.monitoring.metrics.readings():
        if isinstance(reading, dict):
            for labels in reading:
                assert len(labels) == len(metric.labels)
                assert not any("evil" in label for label in labels)
            assert len(reading) < 40


def test_counters_never_fall(broker: WatchedBroker) -> None:
    """A counter that fell would look like a restart."""
    broker.watch()
    client = busy(broker)
    before = readings(broker)
    client.send(p.Disconnect())
    broker.advance(60)
    after = readings(broker)
    for metric in broker.monitoring.metrics:
        was, now = before[metric.name], after[metric.name]
        if metric.kind is Kind.COUNTER and isinstance(was, int | float) and isinstance(now, int | float):
            assert now >= was, metric.name


def test_the_sizes_of_the_files_are_known(broker: WatchedBroker, tmp_path: Path) -> None:
    """The database and its log."""
    broker.watch()
    busy(broker)
    found = readings(broker)
    assert found["holdfast_database_bytes"] == (tmp_path / "holdfast.db").stat().st_size
    assert found["holdfast_database_wal_bytes"] == (tmp_path / "holdfast.db-wal").stat().st_size
