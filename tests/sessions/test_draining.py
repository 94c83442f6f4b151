"""Draining: clients are sent to other servers at a bounded rate, and no new ones are admitted."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.sessions.draining import Draining
from holdfast.wire import ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker

SERVERS = ["mqtt2:1883", "mqtt3:1883"]


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def draining(broker: MemoryBroker, rate: float = 100) -> Draining:
    """Return the draining of a broker."""
    found = broker.session_parts.broker_parts.draining
    found.rate = rate
    return found


def connected(broker: MemoryBroker) -> int:
    return broker.registry.connection_count


def last(client: Client) -> p.Packet | None:
    """Return the last packet that a client has got."""
    packets = client.packets()
    return packets[-1] if packets else None


def test_clients_are_sent_to_the_servers_in_turn_some_each_second(broker: MemoryBroker) -> None:
    """Ten a second: after a second, ten of thirty are gone. Their Server References take turns."""
    clients = [broker.client(f"c{number}", version=5) for number in range(30)]
    drain = draining(broker, 10)
    drain.begin()
    assert connected(broker) == 30
    drain.send_to(SERVERS)
    for _ in range(50):
        broker.clock.advance(0.02)
        drain.send_to(SERVERS)
    assert connected(broker) in (19, 20)
    for _ in range(150):
        broker.clock.advance(0.02)
    assert connected(broker) == 0
    told = [last(client) for client in clients]
    assert {packet.reason_code for packet in told if isinstance(packet, p.Disconnect)} == {0x9C}
    assert Counter(packet.properties.server_reference for packet in told if isinstance(packet, p.Disconnect)) == {
        "mqtt2:1883": 15,
        "mqtt3:1883": 15,
    }


@pytest.mark.parametrize(
    ("servers", "version", "code", "server"),
    [
        (SERVERS, 5, 0x9C, "mqtt2:1883"),
        ([], 5, 0x88, None),
        (SERVERS, 4, 3, None),
    ],
)
def test_no_client_is_admitted_meanwhile(
    broker: MemoryBroker, servers: list[str], version: int, code: int, server: str | None
) -> None:
    """MQTT 5 tells the other server if there is one; MQTT 3 says that this one is not available."""
    drain = draining(broker)
    drain.begin()
    drain.send_to(servers)
    packet = broker.client("late", version=version).connack
    assert packet is not None
    assert (packet.reason_code, packet.properties.server_reference) == (code, server)
    assert connected(broker) == 0
    drain.end()
    broker.client("later", version=version)
    assert connected(broker) == 1


def test_without_another_server_clients_are_told_that_this_one_stops(broker: MemoryBroker) -> None:
    """Those of MQTT 3 are closed without a packet. Sessions stay."""
    new, old = broker.client("new", version=5), broker.client("old", version=4, clean=False)
    drain = draining(broker)
    drain.begin()
    drain.send_to([])
    broker.clock.advance(0.1)
    packet = last(new)
    assert isinstance(packet, p.Disconnect)
    assert packet.reason_code == ReasonCode.SERVER_SHUTTING_DOWN
    assert last(old) is None or not isinstance(last(old), p.Disconnect)
    assert connected(broker) == 0
    assert broker.registry.session_of("old") is not None


def test_whoever_was_being_admitted_is_sent_away_later(broker: MemoryBroker) -> None:
    """A CONNECT whose judgement took until the others were gone."""
    drain = draining(broker)
    drain.begin()
    drain.send_to(SERVERS)
    drain.is_on = False
    broker.client("slow", version=5)
    drain.is_on = True
    for _ in range(60):
        broker.clock.advance(0.02)
    assert connected(broker) == 0


def test_after_its_end_nobody_is_sent_away(broker: MemoryBroker) -> None:
    """Those who are left stay, also with a late answer about the servers."""
    for number in range(5):
        broker.client(f"c{number}", version=5)
    drain = draining(broker, 50)
    drain.begin()
    drain.send_to(SERVERS)
    broker.clock.advance(0.02)
    drain.end()
    left = connected(broker)
    drain.send_to(SERVERS)
    broker.clock.advance(5)
    assert (left, connected(broker)) == (4, 4)
