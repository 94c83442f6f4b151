"""While too many changes wait for their commit, each packet that adds to them holds its sender, and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.logger import LogEvent

from holdfast.sessions.connection.pressure import RELEASED_IN_A_TURN
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.retained.store.delayed_store import DelayedStore
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

DURABLE: Any = {"version": 5, "clean": False, "properties": Properties(session_expiry_interval=600)}

#: packets that write a row of Session State
ADDING = {
    "PUBLISH with QoS 2": p.Publish("t", b"", 2, packet_identifier=9),
    "PUBREL": p.Pubrel(1),
    "PUBREC": p.Pubrec(1),
    "SUBSCRIBE": p.Subscribe(5, (p.SubscriptionRequest("new"),)),
    "UNSUBSCRIBE": p.Unsubscribe(6, ("mine",)),
}


def changes(broker: MemoryBroker) -> int:
    """Return how many changes of retained messages wait for their commit."""
    return len(broker.store.pending)


@pytest.mark.parametrize("packet", ADDING.values(), ids=ADDING)
def test_each_packet_that_adds_to_the_backlog_holds_its_sender(tmp_path: Path, packet: p.Packet) -> None:
    """A PINGREQ behind it waits until the pressure is over; another Client goes on."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client, other = Client(broker, 5), broker.client("other", 5)
    client.connect("c", False, properties=DURABLE["properties"])
    broker.commit()
    client.send(p.Subscribe(1, (p.SubscriptionRequest("mine", 2),)), p.Publish("mine", b"", 2, packet_identifier=1))
    broker.commit()
    client.packets()
    broker.pressure.change(True)
    client.send(packet, p.Pingreq())
    other.send(p.Pingreq())
    assert client.packets() == []
    assert other.packets() == [p.Pingresp()]
    assert len(broker.pressure) == 1
    broker.pressure.change(False)
    broker.settle()
    assert p.Pingresp() in client.packets()
    assert len(broker.pressure) == 0


def test_a_packet_that_adds_nothing_holds_nobody(tmp_path: Path) -> None:
    """A Session that is not stored may subscribe under pressure, and one without changes may do anything."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    broker.pressure.change(True)
    client = broker.client("c", 5)
    assert isinstance(client.subscribe("a")[0], p.Suback)
    client.send(p.Pingreq())
    assert client.packets() == [p.Pingresp()]


def test_connections_that_come_and_go_under_pressure_add_nothing_and_leave_nothing() -> None:
    """A stranger that connects, publishes and leaves again and again has not one message more with each connection."""
    broker = MemoryBroker(store=DelayedStore)
    before = [broker.client(f"before {number}") for number in range(10)]
    broker.pressure.change(True)
    for client in before:
        client.publish("t/" + str(id(client)), qos=1, retain=True)
        client.drop()
    assert changes(broker) == len(before)
    for number in range(100):
        client = broker.client("stranger", 4 + number % 2)
        client.publish(f"t/{number}", qos=number % 3, retain=True)
        client.publish(f"t/{number}", qos=number % 3, retain=True)
        client.drop()
    assert changes(broker) == len(before)
    assert len(broker.pressure) == 0


def test_a_client_that_connects_under_pressure_publishes_once_it_is_over() -> None:
    """Its packets stay in their order, and nothing is lost."""
    broker = MemoryBroker(store=DelayedStore)
    broker.pressure.change(True)
    client = broker.client("c")
    client.publish("a", b"1", qos=1, retain=True)
    client.send(p.Pingreq())
    assert client.packets() == []
    broker.pressure.change(False)
    broker.settle()
    broker.store.commit()
    broker.settle()
    assert sorted(type(packet).__name__ for packet in client.packets()) == ["Pingresp", "Puback"]


def test_a_connect_that_stores_a_row_waits_until_the_pressure_is_over(tmp_path: Path) -> None:
    """It is admitted then; a Client that waits longer than the idle timeout is closed, and leaves nothing."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    broker.pressure.change(True)
    for number in range(50):
        client = Client(broker, 5)
        assert client.connect(f"gone {number}", properties=DURABLE["properties"]) is None
        client.drop()
        assert Client(broker, 5).connect(f"late {number}", will=p.Will("w", b"gone")) is None
    assert broker.registry.session_count == 0
    assert len(broker.pressure) == 50
    broker.advance(broker.limits.idle_timeout + 1)
    assert len(broker.pressure) == 0
    client = Client(broker, 5)
    client.connect("c", properties=DURABLE["properties"])
    broker.pressure.change(False)
    broker.commit()
    assert isinstance(client.packets()[0], p.Connack)


def test_connections_are_released_in_portions_in_their_order() -> None:
    """One turn releases some of them, and a new pressure leaves the others where they are."""
    broker = MemoryBroker(store=DelayedStore)
    clients = [broker.client(f"c{number}") for number in range(2 * RELEASED_IN_A_TURN + 1)]
    broker.pressure.change(True)
    for client in clients:
        client.publish("t", qos=1, retain=True)
        client.send(p.Pingreq())
    broker.pressure.change(False)
    broker.clock.turn()
    assert len(broker.pressure) == RELEASED_IN_A_TURN + 1
    broker.pressure.change(True)
    broker.settle()
    assert len(broker.pressure) == RELEASED_IN_A_TURN + 1
    broker.pressure.change(False)
    broker.settle()
    assert len(broker.pressure) == 0
    assert all(client.packets() == [p.Pingresp()] for client in clients)


def test_a_failing_connection_keeps_no_other_one_waiting(logged_failures: list[LogEvent]) -> None:
    """An unexpected error in one Client's packet ends its connection only."""
    broker = MemoryBroker(store=DelayedStore)
    broker.pressure.change(True)
    clients = [broker.client(f"c{number}") for number in range(3)]
    for number, client in enumerate(clients):
        client.publish(f"t/c{number}", qos=1, retain=True)
    retain = broker.retained.retain

    def failing(message: Any, *rest: Any) -> Any:
        if message.topic == "t/c1":
            raise RuntimeError("broken")
        return retain(message, *rest)

    broker.retained.retain = failing  # type: ignore[assignment]
    broker.pressure.change(False)
    broker.settle()
    assert [client.network.closed for client in clients] == [False, True, False]
    assert changes(broker) == 2
    assert str(logged_failures.pop()["log_failure"].value) == "broken"
