"""Many Wills at one moment: published in parts, and in the right order with what their Clients publish next."""

from __future__ import annotations

from pathlib import Path

from holdfast.scheduling.long_work import STEPS_IN_PART
from holdfast.wire import Properties, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file


def with_will(broker: MemoryBroker, number: int) -> Client:
    """Connect a client with a Will."""
    return broker.client(f"c{number}", 5, will=p.Will(f"state/{number}", b"offline", 0, True))


def count(client: Client) -> int:
    return len(client.got(p.Publish))


def test_wills_of_a_cut_are_published_in_portions() -> None:
    broker = MemoryBroker()
    clients = [with_will(broker, number) for number in range(200)]
    observer = broker.client("observer")
    observer.subscribe("state/#")
    for client in clients:
        client.network.closed = True
        client.connection.lost()
    broker.clock.turn()
    counts = [count(observer)]
    while counts[-1]:
        broker.clock.turn()
        counts.append(count(observer))
    assert sum(counts) == 200
    assert max(counts) <= 2 * STEPS_IN_PART  # one part in the turn of the cut, one in the next


def test_a_will_that_waits_for_its_turn_comes_before_the_messages_of_its_client() -> None:
    """Else a Client that is back would be shown as offline."""
    broker = MemoryBroker()
    clients = [with_will(broker, number) for number in range(200)]
    for client in clients:
        client.network.closed = True
        client.connection.lost()
    back = Client(broker, 5)
    connect, online = p.Connect("c199", 5), p.Publish("state/199", b"online", 0, True)
    back.connection.receive(encode(connect, 5) + encode(online, 5))  # before any turn of the reactor
    broker.settle()
    [retained] = [packet for packet in broker.client("late").subscribe("state/199") if isinstance(packet, p.Publish)]
    assert retained.payload == b"online"


def test_wills_of_a_killed_broker_are_published_in_portions(tmp_path: Path) -> None:
    broker = RestartableBroker(fresh_file(tmp_path))
    for number in range(100):
        with_will(broker, number)
    broker = broker.restart()
    observer = broker.client("observer", 5, clean=False, properties=Properties(session_expiry_interval=1000))
    observer.subscribe("state/#")
    broker.clock.rightNow += 61
    counts = []
    for _ in range(20):
        broker.clock.turn()
        counts.append(count(observer))
    assert sum(counts) == 100
    assert max(counts) <= 2 * STEPS_IN_PART
    assert broker.rows("wills") == 0
