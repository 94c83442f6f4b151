"""Retained messages above the client's Maximum Packet Size are left out of a replay, counted and logged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from zope.interface import implementer

from holdfast.retained.limits import FlowSettings
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import MemoryBroker
from tests.sessions.places import place
from tests.sessions.restartable import RestartableBroker


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []

    @implementer(ILogObserver)
    def note(event: LogEvent) -> None:
        found.append(str(event.get("text", "")))

    globalLogPublisher.addObserver(note)
    yield found
    globalLogPublisher.removeObserver(note)


@pytest.mark.parametrize("topic_filter", ["t/#", "t/+", "+/5", "t/2"])
@pytest.mark.parametrize("flow", [FlowSettings(), FlowSettings(3, 2)])
@pytest.mark.parametrize("make", ["memory", "sqlite", "postgres"])
def test_messages_that_are_too_large_are_counted_once_each(
    tmp_path: Path, lines: list[str], make: str, flow: FlowSettings, topic_filter: str
) -> None:
    with place(make, tmp_path) as database:
        broker = MemoryBroker(flow=flow) if database is None else RestartableBroker(database, flow=flow)
        count_left_out(broker, lines, topic_filter)


def count_left_out(broker: MemoryBroker, lines: list[str], topic_filter: str) -> None:
    """Let a replay leave messages out, and check their count and the log."""
    publisher = broker.client("publisher")
    large = {2, 5, 6, 7, 29}
    for number in range(30):
        publisher.publish(f"t/{number}", b"x" * (500 if number in large else 5), 1, True)
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=100))
    client.send(p.Subscribe(1, (p.SubscriptionRequest(topic_filter, 1),)))
    got = len(client.messages())
    counted = {"t/#": 5, "t/+": 5, "+/5": 1, "t/2": 1}[topic_filter]
    assert broker.counters.messages_dropped_too_large == counted
    assert got == {"t/#": 25, "t/+": 25, "+/5": 0, "t/2": 0}[topic_filter]
    assert sum("above its Maximum Packet Size of 100" in line for line in lines) == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_that_are_too_large_in_the_form_of_the_subscription_are_counted_and_logged(
    lines: list[str], qos: int
) -> None:
    """Packet Identifier and Subscription Identifier count: the stored packet alone would fit."""
    broker = MemoryBroker()
    publisher = broker.client("publisher")
    for topic, size in (("t/1", 94), ("t/2", 10), ("t/3", 94)):  # 2 + 2 + 3 + 1 + 94 = 102 bytes with QoS 0
        publisher.publish(topic, b"x" * size, qos, True, identifier=int(topic[2:]))
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=102))
    identified = Properties(subscription_identifiers=(7,))
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", qos),), identified))
    assert [topic for topic, *_ in client.messages()] == ["t/2"]
    assert broker.counters.messages_dropped_too_large == 2
    assert sum("2 for 't/#' above its Maximum Packet Size of 102" in line for line in lines) == 1


def test_a_client_without_a_maximum_packet_size_costs_no_count() -> None:
    broker = MemoryBroker()
    broker.client("publisher").publish("t", b"x" * 500, 1, True)
    client = broker.client("c", 5)
    client.subscribe("t")
    assert broker.counters.messages_dropped_too_large == 0


def test_live_messages_that_are_too_large_are_counted_and_logged_alike(lines: list[str]) -> None:
    broker = MemoryBroker()
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=100))
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", 1),)))
    broker.client("publisher").publish("t/1", b"x" * 500, 1)
    assert broker.counters.messages_dropped_too_large == 1
    assert sum("a message is left out: " in line and " bytes to 't/1', 100 at most" in line for line in lines) == 1
