"""The replays of one Session: a few run at a time, the others wait in the order of their Topic Filters."""

from __future__ import annotations

from holdfast.core.messages import ApplicationMessage, ChangeOrigin
from holdfast.core.units import Rate
from holdfast.retained.limits import REPLAYS_OF_SESSION, FlowSettings
from holdfast.retained.store.bounded_read import SLICE_BYTES
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker

MANY = 100


def scene(most: int = REPLAYS_OF_SESSION) -> tuple[MemoryBroker, Client]:
    """Return a broker with a retained message for each of many filters, and a client that can take one at a time."""
    broker = MemoryBroker(flow=FlowSettings(max_replays_per_client=most), limits=Limits(max_inflight=1))
    publisher = broker.client("publisher")
    for number in range(MANY):
        publisher.publish(f"t/{number:03}/x", b"old", 1, True)
    return broker, connect(broker)


def connect(broker: MemoryBroker) -> Client:
    return broker.client("c", 5, clean=False, properties=Properties(session_expiry_interval=1000))


def subscribe(client: Client) -> None:
    client.send(p.Subscribe(1, tuple(p.SubscriptionRequest(f"t/{number:03}/#", 1) for number in range(MANY))))


def test_at_most_so_many_replays_of_a_session_run_and_all_are_finished_in_order() -> None:
    broker, client = scene(4)
    subscribe(client)
    counts = broker.replays.counts()
    assert (counts["running"], counts["waiting"]) == (4, MANY - 4)
    assert [status.topic_filter for status in broker.replays.statuses()] == [f"t/00{n}/#" for n in range(4)]
    came = client.messages()
    assert [topic for topic, _, _, _ in came] == [f"t/{number:03}/x" for number in range(MANY)]
    counts = broker.replays.counts()
    assert (counts["running"], counts["waiting"]) == (0, 0)


def test_other_clients_have_their_own_places() -> None:
    broker, client = scene(4)
    subscribe(client)
    other = broker.client("other")
    other.send(p.Subscribe(1, (p.SubscriptionRequest("t/000/x"),)))
    assert [payload for _, payload, _, _ in other.messages()] == [b"old"]


def test_a_waiting_replay_hears_no_change_and_repeats_no_live_message() -> None:
    """A message that comes live while the replay waits does not come again with the replay."""
    broker, client = scene(1)
    subscribe(client)
    assert len(broker.retained.feed) == 1
    broker.client("p").publish("t/050/x", b"new", 1, True)
    came = [(topic, payload) for topic, payload, _, _ in client.messages()]
    assert [payload for topic, payload in came if topic == "t/050/x"] == [b"new"]
    assert len(came) == MANY


def test_an_operators_change_comes_with_the_waiting_replay() -> None:
    broker, client = scene(1)
    subscribe(client)
    broker.retained.retain(ApplicationMessage("t/050/x", b"set", 1, True), ChangeOrigin.API, live=False)
    broker.settle()
    assert ("t/050/x", b"set") in [(topic, payload) for topic, payload, _, _ in client.messages()]


def test_waiting_replays_outlive_the_connection() -> None:
    broker, client = scene(4)
    subscribe(client)
    client.drop()
    assert broker.replays.counts()["waiting"] == 0
    broker.client("p").publish("t/050/x", b"new", 1, True)
    client = connect(broker)
    came = [packet for packet in client.backlog if isinstance(packet, p.Publish)]
    client.send(*(p.Puback(packet.packet_identifier) for packet in came))
    found = [packet.topic for packet in came] + [topic for topic, _, _, _ in client.messages()]
    assert sorted(found) == [f"t/{number:03}/x" for number in range(MANY)]


def test_unsubscribing_gives_the_place_to_the_next() -> None:
    broker, client = scene(2)
    subscribe(client)
    client.send(p.Unsubscribe(2, ("t/000/#", "t/002/#")))
    assert [status.topic_filter for status in broker.replays.statuses()] == ["t/001/#", "t/003/#"]
    assert broker.replays.counts()["waiting"] == MANY - 4


def test_a_higher_limit_counts_from_the_next_end_of_a_replay() -> None:
    broker, client = scene(1)
    subscribe(client)
    broker.replays.flow.change(FlowSettings(max_replays_per_client=8, client_rate=Rate(1, 10)))
    client.send(*(p.Puback(packet.packet_identifier) for packet in client.got(p.Publish)))
    broker.advance(20)
    assert broker.replays.counts()["running"] == 8


def test_a_short_subscribe_with_overlapping_filters_holds_one_batch_not_one_for_each() -> None:
    """However much its replays deliver in all."""
    broker = MemoryBroker()
    publisher = broker.client("publisher")
    for number in range(16):
        publisher.publish("/".join("t" * (number + 1)), b"x" * 60_000, 1, True)
    client = broker.client("c")
    client.network.blocked = True
    client.send(p.Subscribe(1, tuple(p.SubscriptionRequest("/".join(["+"] * n) + "/#") for n in range(1, 13))))
    held = sum(status.held for status in broker.replays.statuses())
    assert held <= 16
    assert client.connection.unsent < 512 << 10


def large() -> tuple[MemoryBroker, Client, int]:
    """Return a broker with retained messages of 5 KB that is read slice by slice, a client, and their number."""
    broker = MemoryBroker()
    broker.store.reads_slices = True
    publisher = broker.client("publisher")
    for number in range(600):
        publisher.publish(f"t/{number:04}", b"x" * 5000, 1, True)
    return broker, broker.client("c"), 600


def subscribe_to_all(client: Client) -> None:
    client.network.written.clear()
    client.connection.receive(encode(p.Subscribe(1, (p.SubscriptionRequest("#"),)), 4))


def test_a_client_that_takes_all_at_once_gets_longer_slices() -> None:
    broker, client, count = large()
    subscribe_to_all(client)
    broker.settle()
    sizes = [len(piece) for piece in client.network.written]
    assert max(sizes) <= SLICE_BYTES
    assert sizes[-2] > SLICE_BYTES * 3 / 4
    assert len(client.got(p.Publish)) == count


def test_a_client_whose_bytes_have_to_wait_gets_short_slices() -> None:
    """So what waits for it in this process is short too."""
    broker, client, count = large()
    client.network.blocked = True
    subscribe_to_all(client)
    broker.settle()
    seen = 0
    while client.connection.unsent:
        assert client.connection.unsent <= SLICE_BYTES / 2
        seen += len(client.got(p.Publish))
        client.connection.drained()
        broker.settle()
    assert seen == count


def test_a_client_that_stops_reading_gets_shorter_slices_again() -> None:
    broker, client, _ = large()
    subscribe_to_all(client)
    while len(client.network.take()) < SLICE_BYTES * 3 / 4:
        broker.clock.turn()
    client.network.blocked = True
    broker.settle()
    waiting = []
    while client.connection.unsent:
        waiting.append(client.connection.unsent)
        client.connection.drained()
        broker.settle()
    assert SLICE_BYTES * 3 / 4 < waiting[0] <= SLICE_BYTES
    assert max(waiting[2:]) <= SLICE_BYTES / 2
