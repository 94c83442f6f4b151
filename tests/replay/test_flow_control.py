"""Flow control through the broker: rates, fair shares, the limit on concurrent replays, and their status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from holdfast.config import load
from holdfast.core.units import Rate
from holdfast.replay.interfaces import ReplayState
from holdfast.replay.pace import FlowControl
from holdfast.retained.limits import FlowSettings, flow_of
from holdfast.sessions.limits import Limits
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker

PAIRS = FlowSettings(batch_read_number=4, batch_deliver_number=2)


def filled(count: int, flow: FlowSettings, prefix: str = "t", **options: Any) -> MemoryBroker:
    """Return a broker with retained messages t/000, t/001, ..."""
    broker = MemoryBroker(flow=flow, **options)
    filler = broker.client("filler")
    for number in range(count):
        filler.publish(f"{prefix}/{number:03}", b"%d" % number, qos=2, retain=True)
    return broker


def limited(key: str, rate: Rate | None) -> FlowSettings:
    """Return the settings with this rate."""
    changes: dict[str, Any] = {key: rate}
    return attrs.evolve(PAIRS, **changes)


def ask(client: Client, *filters: str, qos: int = 0) -> None:
    """Subscribe, and read nothing yet."""
    client.send(p.Subscribe(1, tuple(p.SubscriptionRequest(topic_filter, qos) for topic_filter in filters)))


def count(client: Client) -> int:
    """Return how many messages have come, acknowledging them."""
    return len(client.messages())


# --- rates


@pytest.mark.parametrize("key", ["delivery_rate", "client_rate"])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_rate_delays_messages_and_drops_none(key: str, version: int, qos: int) -> None:
    """One message a second: three messages take two seconds after the first."""
    broker = filled(3, limited(key, Rate(1, 1)))
    client = broker.client("c", version)
    ask(client, "t/#", qos=qos)
    came = [count(client)]
    for _ in range(4):
        broker.advance(0.5)
        came.append(count(client))
    assert came == [1, 0, 1, 0, 1]
    assert broker.replays.running == {}


def test_all_replays_share_the_rate_of_all() -> None:
    """After the saved tokens, 10 a second for all clients together."""
    broker = filled(30, attrs.evolve(PAIRS, delivery_rate=Rate(10, 1)))
    clients = [broker.client(name) for name in "abc"]
    for client in clients:
        ask(client, "t/#")
    totals = [sum(map(count, clients))]
    for _ in range(8):
        broker.advance(1)
        totals.append(sum(map(count, clients)))
    assert totals == [10] * 9
    assert broker.replays.flow.waiting == 0


def test_the_replays_of_a_client_share_its_rate() -> None:
    """Another client has as much again. The rate of all replays bounds both."""
    broker = filled(20, attrs.evolve(PAIRS, client_rate=Rate(4, 1), delivery_rate=Rate(100, 1)))
    one, two = broker.client("one"), broker.client("two")
    ask(one, "t/+", "t/#")
    ask(two, "t/+")
    assert (count(one), count(two)) == (4, 4)
    for _ in range(4):
        broker.advance(1)
        assert (count(one), count(two)) == (4, 4)
    broker.advance(1)
    assert (count(one), count(two)) == (4, 0)


def test_a_new_subscribe_or_connection_gives_a_client_no_tokens() -> None:
    broker = filled(10, attrs.evolve(PAIRS, client_rate=Rate(2, 1)))
    client = broker.client("c")
    ask(client, "t/#")
    assert count(client) == 2
    ask(client, "t/#")
    assert count(client) == 0
    client.drop()
    client = broker.client("c")
    ask(client, "t/#")
    assert count(client) == 0
    broker.advance(1)
    assert count(client) == 2


@pytest.mark.parametrize("key", ["delivery_rate", "client_rate"])
def test_rates_change_at_once_for_running_replays(key: str) -> None:
    """Slower, faster, none, and one again."""
    broker = filled(60, PAIRS)
    client = broker.client("c")
    change = broker.replays.flow.change

    def rate(amount: int | None) -> FlowSettings:
        return limited(key, None if amount is None else Rate(amount, 1))

    change(rate(10))
    ask(client, "t/#")
    assert count(client) == 10
    change(rate(2))
    broker.advance(1)
    assert count(client) == 2
    change(rate(20))
    broker.advance(1)
    assert 18 <= count(client) <= 20
    change(rate(None))
    assert broker.replays.flow.settings == rate(None)
    broker.settle()
    assert broker.replays.running == {}
    assert count(client) >= 28
    change(rate(4))
    ask(client, "t/#")
    assert count(client) == 4


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_while_settings_change_all_messages_are_stored_and_no_replay_begins_again(qos: int) -> None:
    """The retainer is there all the time: messages before, between and after the changes are retained."""
    broker = filled(30, limited("client_rate", Rate(5, 1)))
    client, publisher = broker.client("c"), broker.client("p")
    ask(client, "t/#")
    came = client.messages()
    (number,) = broker.replays.running
    for step in range(20):
        publisher.publish(f"u/{step}", b"before", qos, True)
        broker.replays.flow.change(FlowSettings(1 + step, 1 + step, client_rate=Rate(1 + step % 7, 1)))
        publisher.publish(f"v/{step}", b"after", qos, True)
        assert list(broker.replays.running) in ([number], [])
        broker.advance(1)
        came += client.messages()
    assert [topic for topic, _, _, _ in came] == [f"t/{number:03}" for number in range(30)]
    reader = broker.client("r")
    broker.replays.flow.change(PAIRS)
    ask(reader, "u/#", "v/#")
    assert count(reader) == 40


def test_batch_sizes_change_with_the_next_read(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = filled(10, FlowSettings(2, 2, client_rate=Rate(2, 1)))
    sizes: list[int] = []
    read = broker.store.read

    def noted(selection: object, after: str, rows: int, *rest: object) -> object:
        sizes.append(rows)
        return read(selection, after, rows, *rest)

    monkeypatch.setattr(broker.store, "read", noted)
    client = broker.client("c")
    ask(client, "t/#")
    broker.replays.flow.change(FlowSettings(5, 5, client_rate=Rate(5, 1)))
    came = 0
    for _ in range(5):
        came += count(client)
        broker.advance(1)
    assert sizes[0] == 2
    assert sizes[-1] == 5
    assert came == 10


def test_without_rates_no_limiter_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice costs nothing for limiters that are not set."""
    monkeypatch.setattr(FlowControl, "grant", None)
    broker = filled(20, PAIRS)
    client = broker.client("c")
    ask(client, "t/#")
    assert count(client) == 20


def test_a_replay_without_room_delays_no_other_replay() -> None:
    broker = filled(10, attrs.evolve(PAIRS, delivery_rate=Rate(2, 1)))
    stuck, other = broker.client("stuck"), broker.client("other")
    ask(stuck, "t/#")
    ask(other, "t/#")
    stuck.network.blocked = True
    broker.client("p").publish("big", b"x")
    stuck.connection.send(bytes(1 << 20))  # from now on it has no room
    broker.settle()
    for _ in range(5):
        broker.advance(1)
    assert count(other) == 10


def test_a_replay_that_waits_for_its_clients_rate_delays_no_other_client() -> None:
    """Two replays of one client come to the queue of all while the client's rate allows only one of them."""
    broker = filled(10, attrs.evolve(PAIRS, delivery_rate=Rate(2, 1), client_rate=Rate(2, 100)))
    first, slow, last = (broker.client(name) for name in ("first", "slow", "last"))
    ask(first, "t/000", "t/001")
    ask(slow, "t/+", "t/#")
    ask(last, "t/#")
    broker.advance(1)
    broker.advance(1)
    assert (count(slow), count(last)) == (2, 2)


@pytest.mark.parametrize("rate", [None, Rate(20, 1), Rate(3, 1)])
@pytest.mark.parametrize("qos", [0, 1])
def test_ten_replays_have_fair_shares(rate: Rate | None, qos: int) -> None:
    """Each client ends within twice the steps of the quickest, and none stops while others continue."""
    broker = filled(60, attrs.evolve(PAIRS, delivery_rate=rate))
    clients = [broker.client(f"c{number}", 5) for number in range(10)]
    for client in clients:
        client.connection.receive(b"\x82\x09\x00\x01\x00\x00\x03t/#%c" % qos)
    got = [0] * 10
    ended: dict[int, int] = {}
    for step in range(10_000):
        broker.clock.turn()
        if rate is not None:
            broker.clock.advance(0.05)
        for number, client in enumerate(clients):
            came = [packet for packet in client.got(p.Publish) if packet.retain]
            got[number] += len(came)
            if qos and came:
                client.connection.receive(
                    b"".join(b"\x40\x02%b" % c.packet_identifier.to_bytes(2, "big") for c in came)
                )
            if got[number] == 60:
                ended.setdefault(number, step)
        assert max(got) - min(got) <= 3 * PAIRS.batch_deliver_number
        if len(ended) == 10:
            break
    assert max(ended.values()) <= 2 * min(ended.values())
    assert got == [60] * 10


# --- queues that drop


@pytest.mark.parametrize("qos", [1, 2])
def test_replayed_messages_never_wait_in_a_queue_that_drops(qos: int) -> None:
    """With the shortest queues, a client that takes one message at a time gets all, and is not shut down."""
    limits = Limits(max_inflight=1, max_mqueue_len=0, max_buffered_messages=2, max_buffered_bytes=100_000)
    broker = filled(100, FlowSettings(50, 50), limits=limits)
    client = broker.client("c", 4, clean=False)
    (session,) = [session for session in broker.registry if session.client_id == "c"]
    ask(client, "t/#", qos=qos)
    assert len(session.queue) == 0
    assert count(client) == 100
    ask(client, "t/#", qos=qos)
    client.drop()
    assert len(session.queue) == 0
    client = broker.client("c", 4, clean=False)
    first = [packet for packet in client.backlog if isinstance(packet, p.Publish)]
    assert [packet.dup for packet in first] == [True]
    client.send(p.Puback(first[0].packet_identifier) if qos == 1 else p.Pubrec(first[0].packet_identifier))
    assert count(client) == 99
    assert broker.counters.messages_dropped_queue_full == broker.counters.connections_shut_down == 0


# --- status


def test_the_status_of_replays() -> None:
    """Client, Topic Filter, delivered messages, state and age."""
    broker = filled(10, attrs.evolve(PAIRS, client_rate=Rate(2, 60)))
    stalled, throttled = broker.client("stalled"), broker.client("throttled")
    stalled.network.blocked = True
    stalled.connection.send(bytes(1 << 20))
    ask(stalled, "t/#")
    broker.advance(2)
    ask(throttled, "t/+")
    broker.advance(1.5)
    told = [attrs.astuple(status)[1:] for status in broker.replays.statuses()]
    assert told == [
        ("stalled", "t/#", 0, 0, "", ReplayState.RESTING, 3.5),
        ("throttled", "t/+", 2, 2, "t/001", ReplayState.THROTTLED, 1.5),
    ]
    assert len({status.number for status in broker.replays.statuses()}) == 2
    assert broker.replays.counts() == {"running": 2, "throttled": 1, "waiting": 0}


# --- subscriptions that get retained messages


@pytest.mark.parametrize("version", [4, 5])
def test_filters_with_too_few_levels_get_live_messages_only(version: int) -> None:
    """They are granted, and counted. Deeper filters and filters without wildcards get retained messages."""
    broker = filled(1, PAIRS, "a/b", limits=Limits(min_replay_levels=2))
    client = broker.client("c", version)
    came = client.subscribe("#", "a/#", "a/+/000", "+/b/000", qos=1)
    assert came == [p.Suback(1, (1, 1, 1, 1))]
    assert broker.replays.running == {}
    assert broker.counters.replays_denied == 4
    broker.client("p").publish("a/b/001", b"live", qos=1, retain=True)
    assert {(topic, retain) for topic, _, _, retain in client.messages()} == {("a/b/001", False)}
    for topic_filter, expected in (("a/b/#", 2), ("a/b/+", 2), ("a/b/000", 1), ("a/b/+/#", 2)):
        came = client.subscribe(topic_filter)
        assert len([packet for packet in came if isinstance(packet, p.Publish)]) == expected
    assert broker.counters.replays_denied == 4


def test_only_a_replay_that_would_begin_counts_as_denied() -> None:
    """Shared subscriptions and Retain Handling 2 do not count. The broker's own topics are always sent."""
    broker = filled(1, PAIRS, limits=Limits(min_replay_levels=2), sys_msg_interval=10)
    client = broker.client("c", 5)
    client.subscribe("$share/g/#", p.SubscriptionRequest("#", 0, retain_handling=2))
    told = client.subscribe("$SYS/broker/version", "$SYS/#")
    assert len([packet for packet in told if isinstance(packet, p.Publish)]) > 10
    assert broker.counters.replays_denied == 0


# --- configured


def test_every_setting_comes_from_the_file(tmp_path: Path) -> None:
    """EMQX's keys and our own."""
    path = tmp_path / "holdfast.toml"
    path.write_text(
        """
        [retainer]
        delivery_rate = "100/2s"
        [retainer.flow_control]
        batch_read_number = 20
        batch_deliver_number = 10
        client_rate = "7/s"
        """
    )
    assert flow_of(load(path).retainer) == FlowSettings(20, 10, delivery_rate=Rate(100, 2), client_rate=Rate(7, 1))
    path.write_text("")
    assert flow_of(load(path).retainer) == FlowSettings()
