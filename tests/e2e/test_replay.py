"""A replay of ``#`` over 100,000 retained messages is complete, also for a client that reads slowly."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.wire import encode
from holdfast.wire import packets as p
from tests.e2e.raw import RawClient
from tests.processes import BrokerProcess

pytestmark = pytest.mark.e2e

MANY = 100_000


def seed(port: int, count: int) -> None:
    """Retain ``count`` messages with QoS 1, some in flight at a time, and wait for every PUBACK."""
    client = RawClient(port, "seeder")
    answered = 0
    for first in range(0, count, 5000):
        client.socket.sendall(
            b"".join(
                encode(p.Publish(f"site/{n % 1000}/dev/{n}/temp", b"%020d" % n, 1, True, False, n % 60_000 + 1), 4)
                for n in range(first, first + 5000)
            )
        )
        for packet in client.packets():
            assert isinstance(packet, p.Puback)
            answered += 1
            if answered == first + 5000:
                break
    client.close()


def replay(client: RawClient, qos: int, pause: float = 0) -> set[str]:
    """Subscribe to ``#``, and wait for all messages. Return the topics, each once."""
    client.send(p.Subscribe(1, (p.SubscriptionRequest("#", qos),)))
    topics: set[str] = set()
    for number, packet in enumerate(client.packets()):
        if isinstance(packet, p.Publish):
            assert packet.retain
            assert packet.topic not in topics
            topics.add(packet.topic)
            if packet.qos:
                client.send(p.Puback(packet.packet_identifier))
        if pause and number % 5000 == 0:
            time.sleep(pause)
        if len(topics) == MANY:
            break
    return topics


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], BrokerProcess]:
    """A broker with 100,000 retained messages, shared by the tests of this module."""
    broker = BrokerProcess(tmp_path_factory.mktemp("seeded")).start()
    seed(broker.port, MANY)
    return lambda: broker


@pytest.fixture(scope="module", autouse=True)
def end(seeded: Callable[[], BrokerProcess]):  # type: ignore[no-untyped-def]
    """End the shared broker."""
    yield
    seeded().end()


@pytest.mark.parametrize(("version", "qos", "pause"), [(4, 0, 0), (5, 0, 0), (4, 1, 0), (5, 1, 0), (4, 0, 0.05)])
def test_a_replay_is_complete(seeded: Callable[[], BrokerProcess], version: int, qos: int, pause: float) -> None:
    """Exactly 100,000 distinct topics, with QoS 0 and 1, in both versions, also for a slow reader."""
    client = RawClient(seeded().port, f"reader-{version}-{qos}-{pause}", version)
    assert len(replay(client, qos, pause)) == MANY
    client.send(p.Pingreq())  # nothing comes after the last one
    assert isinstance(next(client.packets()), p.Pingresp)
    client.close()


def test_others_are_served_while_a_stalled_client_waits(seeded: Callable[[], BrokerProcess]) -> None:
    """A client that subscribes to ``#`` and reads nothing delays no other client. It gets all when it reads again."""
    port = seeded().port
    stalled = RawClient(port, "stalled")
    stalled.send(p.Subscribe(1, (p.SubscriptionRequest("#"),)))
    other = RawClient(port, "other")
    other.send(p.Subscribe(1, (p.SubscriptionRequest("site/7/#"),)))
    count = 0
    for packet in other.packets():
        count += isinstance(packet, p.Publish)
        if count == MANY // 1000:
            break
    other.close()
    topics = {
        packet.topic
        for _, packet in zip(range(MANY + 1), stalled.packets(), strict=False)  # SUBACK, then all of them
        if isinstance(packet, p.Publish)
    }
    assert len(topics) == MANY
    stalled.close()
