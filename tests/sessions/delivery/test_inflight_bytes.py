"""The bytes in flight to one Client are bounded, for live messages and for replays, and nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.messages import HELD_ENTRY
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.sessions.restartable import RestartableBroker
from tests.storage.doubles import fresh_file

MOST = 3000
PAYLOAD = bytes(300)
LASTING = Properties(session_expiry_interval=100)


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(limits=Limits(max_inflight_bytes=MOST))


def kept(broker: MemoryBroker, client_id: str = "c") -> int:
    """Return the bytes of the packets that a Session keeps."""
    return sum(len(entry.packet) for entry in broker.registry._sessions[client_id].inflight.entries.values())


def live(broker: MemoryBroker, client: Client, qos: int, payloads: list[bytes]) -> None:
    """Send live messages to the client."""
    client.subscribe("#", qos=qos)
    publisher = broker.client()
    for number, payload in enumerate(payloads):
        publisher.publish(f"t/{number:02}", payload, qos=qos)


def replayed(broker: MemoryBroker, client: Client, qos: int, payloads: list[bytes]) -> None:
    """Send retained messages to the client."""
    publisher = broker.client()
    for number, payload in enumerate(payloads):
        publisher.publish(f"t/{number:02}", payload, qos=qos, retain=True)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("#", qos),)))


WAYS = pytest.mark.parametrize("send", [live, replayed])
Send = Callable[[MemoryBroker, Client, int, list[bytes]], None]


@WAYS
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("clean", [False, True])
def test_no_more_bytes_are_in_flight_than_allowed(
    broker: MemoryBroker, send: Send, qos: int, version: int, clean: bool
) -> None:
    client = broker.client(
        "c", version, clean=clean, properties=LASTING if version == 5 and not clean else Properties()
    )
    send(broker, client, qos, [PAYLOAD] * 10)
    came = client.got(p.Publish)
    blocks = broker.registry._sessions["c"].inflight.blocks  # a message takes less there, since nothing of it is kept
    assert len(came) == ((7 if send is replayed else 6) if blocks.count else 3)
    assert broker.registry._sessions["c"].window.bytes <= MOST
    assert 0 < kept(broker) <= MOST if not clean else kept(broker) == 0
    first = came[0].packet_identifier
    client.send(p.Puback(first) if qos == 1 else p.Pubrec(first))  # the Client has it: its bytes are free
    assert len(client.got(p.Publish)) == 1
    assert broker.registry._sessions["c"].window.bytes <= MOST
    assert kept(broker) <= MOST


@WAYS
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_longer_than_the_window_is_sent_alone(broker: MemoryBroker, send: Send, qos: int) -> None:
    client = broker.client("c")
    send(broker, client, qos, [bytes(5 * MOST), b"x", bytes(2 * MOST), b"y", b"z"])
    sizes = []
    for _ in range(20):
        came = client.got(p.Publish)
        sizes.append([len(packet.payload) for packet in came])
        for packet in came:
            client.send(p.Puback(packet.packet_identifier) if qos == 1 else p.Pubrec(packet.packet_identifier))
    assert [size for size in sizes if size] == [[5 * MOST], [1], [2 * MOST], [1, 1]]


@WAYS
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("size", [10, 300, 1000, 3000])
def test_everything_arrives_in_its_order(broker: MemoryBroker, send: Send, qos: int, size: int) -> None:
    client = broker.client("c")
    send(broker, client, qos, [bytes(size)] * 30)
    assert [topic for topic, *_ in client.messages()] == [f"t/{number:02}" for number in range(30)]
    session = broker.registry._sessions["c"]
    assert (session.window.bytes, session.window.replayed_bytes, session.window.replayed) == (0, 0, 0)


@pytest.mark.parametrize("size", [10, 300, 1000, 3000])
def test_live_messages_and_a_replay_both_go_on(broker: MemoryBroker, size: int) -> None:
    """Also if every message is longer than half of the window, and live messages never stop."""
    publisher = broker.client("p")
    for number in range(10):
        publisher.publish(f"r/{number}", bytes(size), qos=1, retain=True)
    client = broker.client("c")
    client.subscribe("live", qos=1)
    client.send(p.Subscribe(9, (p.SubscriptionRequest("r/#", 1),)))
    seen: list[str] = []
    most = 0
    for number in range(60):
        publisher.publish("live", b"%d".ljust(size) % number, qos=1)
        came = client.got(p.Publish)
        most = max(most, broker.registry._sessions["c"].window.bytes)
        seen += [packet.topic for packet in came]
        if came:
            client.send(*(p.Puback(packet.packet_identifier) for packet in came))
    assert [topic for topic in seen if topic != "live"] == [f"r/{number}" for number in range(10)]
    assert seen.count("live") >= 30
    held = size + HELD_ENTRY + 20
    assert most <= max(MOST, held) + held


def test_an_acknowledgement_of_one_message_does_not_cost_a_read_of_its_own() -> None:
    """A replay reads some messages ahead, and never more than it may hold."""
    broker = MemoryBroker(limits=Limits(max_inflight_bytes=100_000))
    publisher = broker.client("p")
    for number in range(1000):
        publisher.publish(f"r/{number:03}", bytes(1000), qos=1, retain=True)
    reads: list[int] = []
    read = broker.store.read

    def counting(selection: object, after: str, rows: int, slice_rows: int, max_bytes: int, detailed: bool) -> object:
        reads.append(max_bytes)
        return read(selection, after, rows, slice_rows, max_bytes, detailed)

    broker.store.read = counting
    client = broker.client("c")
    client.send(p.Subscribe(9, (p.SubscriptionRequest("r/#", 1),)))
    seen = 0
    while came := client.got(p.Publish):
        for packet in came:
            seen += 1
            client.send(p.Puback(packet.packet_identifier))
    assert seen == 1000
    assert len(reads) < 30
    assert max(reads) <= 100_000


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
@WAYS
def test_a_session_that_ends_with_its_connection_keeps_no_packet_that_was_sent(
    broker: MemoryBroker, version: int, qos: int, send: Send
) -> None:
    """Nothing is ever sent again there."""
    client = broker.client("c", version)
    send(broker, client, qos, [PAYLOAD] * 3)
    assert len(client.got(p.Publish)) == 3
    assert broker.registry._sessions["c"].inflight.count == 3
    assert kept(broker) == 0


def test_nor_one_that_was_sent_after_the_commit_of_its_publisher(tmp_path: Path) -> None:
    """A QoS 2 message waits for that commit."""
    broker = RestartableBroker(fresh_file(tmp_path), manual=True)
    client = broker.client("c")
    client.subscribe("t", qos=2)
    publisher = broker.client("p", clean=False)
    broker.commit()
    publisher.publish("t", PAYLOAD, qos=2)
    assert client.got(p.Publish) == []
    assert kept(broker) > len(PAYLOAD)
    broker.commit()
    assert len(client.got(p.Publish)) == 1
    assert kept(broker) == 0


def test_a_stored_session_that_is_to_end_with_its_connection_keeps_no_packet_either(broker: MemoryBroker) -> None:
    """It repeats what its former connection left unacknowledged, once."""
    client = broker.client("c", 5, clean=False, properties=LASTING)
    live(broker, client, 1, [PAYLOAD] * 2)
    client.drop()
    assert kept(broker) > 0
    client = broker.client("c", 5, clean=False)
    assert [packet.dup for packet in client.backlog if isinstance(packet, p.Publish)] == [True, True]
    assert kept(broker) == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_repeated_messages_stay_within_the_window(qos: int) -> None:
    """A Session may come back with more in flight than is allowed now."""
    broker = MemoryBroker(limits=Limits(max_inflight_bytes=100 * MOST))
    client = broker.client("c", clean=False)
    live(broker, client, qos, [PAYLOAD] * 10)
    client.drop()
    broker.limits = Limits(max_inflight_bytes=MOST)
    client = broker.client("c", clean=False)
    seen = [packet for packet in client.backlog if isinstance(packet, p.Publish)]
    assert len(seen) == 3
    for number in range(10):
        identifier = seen[number].packet_identifier
        client.send(p.Puback(identifier) if qos == 1 else p.Pubrec(identifier))
        seen += client.got(p.Publish)
    assert [packet.topic for packet in seen] == [f"t/{number:02}" for number in range(10)]
    assert all(packet.dup for packet in seen)


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_in_flight_count_after_a_restart(tmp_path: Path, qos: int) -> None:
    broker = RestartableBroker(fresh_file(tmp_path), limits=Limits(max_inflight_bytes=MOST))
    client = broker.client("c", clean=False)
    live(broker, client, qos, [PAYLOAD] * 10)
    broker = broker.restart()
    assert MOST / 2 < broker.registry._sessions["c"].window.bytes <= MOST
    client = broker.client("c", clean=False)
    backlog = [packet for packet in client.backlog if isinstance(packet, p.Publish)]
    assert [packet.dup for packet in backlog] == [True] * 3
    client.send(*(p.Puback(one.packet_identifier) if qos == 1 else p.Pubrec(one.packet_identifier) for one in backlog))
    assert len(client.got(p.Publish)) == 3
