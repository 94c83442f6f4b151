"""Conflation: at most one message per topic and interval, the newest last and always; everything else untouched."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.sessions.directory import client_view
from holdfast.sessions.durable import DurableSessionStates
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.authorizers import Permissions
from tests.doubles import Client, MemoryBroker
from tests.sessions.places import place
from tests.sessions.restartable import RestartableBroker

TAKES_PART = Properties(user_properties=(("holdfast", "?"),))
KEPT = Properties(session_expiry_interval=1000, user_properties=(("holdfast", "?"),))


def reader(broker: MemoryBroker, *filters: str, ms: int = 1000, qos: int = 0, kept: bool = False) -> Client:
    """Return the connected client ``c`` with conflated subscriptions."""
    client = broker.client("c", 5, properties=KEPT if kept else TAKES_PART)
    subscribe(client, *filters, ms=ms, qos=qos)
    return client


def subscribe(client: Client, *filters: str, ms: int = 1000, qos: int = 0, **more: str) -> list[p.Packet]:
    """Subscribe with conflation, and return all that comes."""
    asked = (("holdfast-conflate", str(ms)), *more.items())
    requests = tuple(p.SubscriptionRequest(f, qos) for f in filters)
    client.send(p.Subscribe(client.identifier(), requests, Properties(user_properties=asked)))
    return client.packets()


def came(client: Client) -> list[tuple[str, bytes]]:
    """Return topic and payload of each message that has come, and acknowledge them."""
    return [(topic, payload) for topic, payload, _, _ in client.messages()]


def unacknowledged(client: Client) -> list[p.Publish]:
    """Return the messages that have come, without acknowledging them."""
    return [packet for packet in client.packets() if isinstance(packet, p.Publish)]


def conflated(broker: MemoryBroker) -> int:
    """Return how many messages for ``c`` newer ones have replaced, as operators see it."""
    session = broker.registry.session_of("c")
    assert session is not None
    return client_view(session, None).conflated


def again(broker: MemoryBroker) -> Client:
    """Return ``c`` after it has connected again to its Session; what came with CONNACK is still there."""
    client = Client(broker, 5)
    client.send(p.Connect("c", 5, False, properties=KEPT))
    return client


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_message_per_topic_and_interval(qos: int) -> None:
    """The first message comes at once, then the newest of each interval; topics do not wait for each other."""
    broker = MemoryBroker()
    client, publisher = reader(broker, "t/#", qos=qos), broker.client("p")
    for number in range(5):
        publisher.publish("t/a", b"%d" % number, qos, True)
    publisher.publish("t/b", b"b", qos, True)
    assert came(client) == [("t/a", b"0"), ("t/b", b"b")]
    broker.advance(0.9)
    assert came(client) == []
    broker.advance(0.2)
    assert came(client) == [("t/a", b"4")]
    publisher.publish("t/a", b"5", qos, True)
    assert came(client) == []
    broker.advance(1)
    assert came(client) == [("t/a", b"5")]
    assert broker.counters.messages_conflated == 3
    assert conflated(broker) == 3
    broker.advance(2)
    publisher.publish("t/a", b"6", qos, True)
    assert came(client) == [("t/a", b"6")]


def test_messages_without_retain_are_untouched_and_keep_the_order() -> None:
    """RETAIN 0 is never held, and a held message of its topic goes first: never stale after fresh."""
    broker = MemoryBroker()
    client, publisher = reader(broker, "t/#"), broker.client("p")
    for number in range(3):
        publisher.publish("t/a", b"%d" % number)
    assert came(client) == [("t/a", b"0"), ("t/a", b"1"), ("t/a", b"2")]
    publisher.publish("t/a", b"3", 0, True)
    publisher.publish("t/a", b"4", 0, True)
    publisher.publish("t/b", b"other")
    assert came(client) == [("t/a", b"3"), ("t/b", b"other")]
    publisher.publish("t/a", b"5")
    assert came(client) == [("t/a", b"4"), ("t/a", b"5")]
    assert not broker.counters.messages_conflated


def test_a_clear_is_the_newest_message() -> None:
    """An empty message that clears a topic is conflated like any other: it comes last."""
    broker = MemoryBroker()
    client, publisher = reader(broker, "t"), broker.client("p")
    for payload in (b"1", b"2", b""):
        publisher.publish("t", payload, 0, True)
    broker.advance(1.1)
    assert came(client) == [("t", b"1"), ("t", b"")]


def test_a_subscription_without_conflation_gets_everything() -> None:
    """A client without a request, and a topic that another subscription of the client matches, are not conflated."""
    broker = MemoryBroker()
    client, other, publisher = reader(broker, "t/#"), broker.client("o", 5), broker.client("p")
    other.subscribe("t/#")
    client.subscribe("t/b")
    for topic in ("t/a", "t/b"):
        for payload in (b"1", b"2"):
            publisher.publish(topic, payload, 0, True)
    assert came(other) == [("t/a", b"1"), ("t/a", b"2"), ("t/b", b"1"), ("t/b", b"2")]
    assert came(client) == [("t/a", b"1"), ("t/b", b"1"), ("t/b", b"2")]
    subscribe(client, "t/b", ms=500)
    client.messages()
    broker.advance(1.1)
    client.messages()
    publisher.publish("t/b", b"3", 0, True)
    publisher.publish("t/b", b"4", 0, True)
    broker.advance(0.6)  # of two intervals the shorter one holds
    assert came(client) == [("t/b", b"3"), ("t/b", b"4")]


def test_shared_subscriptions_are_not_conflated() -> None:
    """The messages of a shared subscription are for the group, so none is left out; SUBACK says so."""
    broker = MemoryBroker()
    client, publisher = broker.client("c", 5, properties=TAKES_PART), broker.client("p")
    (suback,) = subscribe(client, "$share/g/t")
    assert isinstance(suback, p.Suback)
    assert suback.properties.reason_string == "holdfast-conflate does not hold for shared subscriptions"
    publisher.publish("t", b"1", 0, True)
    publisher.publish("t", b"2", 0, True)
    assert came(client) == [("t", b"1"), ("t", b"2")]


def test_a_bad_interval_refuses_every_filter() -> None:
    """The SUBSCRIBE is refused with 0x83 and the reason."""
    broker = MemoryBroker()
    client = broker.client("c", 5, properties=TAKES_PART)
    (suback,) = subscribe(client, "a", "b", ms=0)
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,) * 2
    assert "holdfast-conflate is a number of milliseconds from 1 to 3600000" in str(suback.properties.reason_string)


def test_queued_messages_are_replaced_in_their_places() -> None:
    """For a client that is away, the newest message takes the place of the older one; RETAIN 0 seals the place."""
    broker = MemoryBroker()
    client, publisher = reader(broker, "t/#", qos=1, kept=True), broker.client("p")
    client.drop()
    for number in range(3):
        publisher.publish("t/a", b"%d" % number, 1, True)
        publisher.publish("t/b", b"%d" % number, 1, True)
    publisher.publish("t/a", b"event", 1)
    publisher.publish("t/a", b"3", 1, True)
    publisher.publish("t/a", b"4", 1, True)
    client = again(broker)
    assert came(client) == [("t/a", b"2"), ("t/b", b"2"), ("t/a", b"event"), ("t/a", b"4")]
    assert conflated(broker) == 5


def test_messages_in_flight_are_not_replaced() -> None:
    """With a full window, the newest one waits behind the message in flight, and comes an interval after it."""
    broker = MemoryBroker()
    client = broker.client("c", 5, properties=Properties(receive_maximum=1, user_properties=(("holdfast", "?"),)))
    subscribe(client, "t/#", qos=1)
    publisher = broker.client("p")
    publisher.publish("t/x", b"x", 1, True)
    for number in range(4):
        publisher.publish("t/a", b"%d" % number, 1, True)
    (first,) = unacknowledged(client)
    client.send(p.Puback(first.packet_identifier))
    assert came(client) == [("t/a", b"3")]
    publisher.publish("t/a", b"4", 1, True)
    publisher.publish("t/a", b"5", 1, True)
    assert came(client) == []
    broker.advance(1.1)
    assert came(client) == [("t/a", b"5")]


def test_held_messages_outlast_the_connection() -> None:
    """A held message with QoS 1 comes after the client is back; one with QoS 0 is dropped like any other."""
    broker = MemoryBroker()
    client, publisher = reader(broker, "t/#", qos=1, kept=True, ms=60_000), broker.client("p")
    for qos, topic in ((0, "t/zero"), (1, "t/one")):
        publisher.publish(topic, b"1", qos, True)
        publisher.publish(topic, b"2", qos, True)
    assert len(client.messages()) == 2
    client.drop()
    broker.advance(61)
    assert came(again(broker)) == [("t/one", b"2")]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    """An empty database."""
    with place(request.param, tmp_path) as found:
        assert found is not None
        yield found


def deliveries(broker: RestartableBroker) -> int:
    """Return the number of stored deliveries."""
    broker.commit()
    loaded, _ = DurableSessionStates(broker.durable, broker.clock).load()
    return sum(len(session.deliveries) for session in loaded)


def test_held_messages_outlast_the_process(database: Path | str) -> None:
    """After a kill, the newest message comes once, the interval still holds, and no delivery is left behind."""
    broker = RestartableBroker(database)
    client, publisher = reader(broker, "t/#", qos=1, kept=True), broker.client("p")
    for number in range(5):
        publisher.publish("t/a", b"%d" % number, 1, True)
    assert came(client) == [("t/a", b"0")]
    assert deliveries(broker) == 1
    broker = broker.restart()
    publisher = broker.client("p")
    publisher.publish("t/a", b"5", 1, True)  # takes the place of the stored one
    client = again(broker)
    assert came(client) == [("t/a", b"5")]
    publisher.publish("t/a", b"6", 1, True)
    publisher.publish("t/a", b"7", 1, True)
    assert came(client) == []
    broker.advance(1.1)
    assert came(client) == [("t/a", b"7")]
    assert deliveries(broker) == 0
    broker.stop()


def test_the_end_of_a_session_leaves_no_cycle() -> None:
    """A Session with a held message is freed when it has ended, without the garbage collector."""
    broker = MemoryBroker()
    client, publisher = reader(broker, "t"), broker.client("p")
    publisher.publish("t", b"1", 0, True)
    publisher.publish("t", b"2", 0, True)
    known = broker.registry.session_of("c")
    assert known is not None
    session = weakref.ref(known)
    del known
    gc.collect()
    gc.disable()
    try:
        client.drop()
        del client
        broker.advance(5)
        assert session() is None
    finally:
        gc.enable()


def test_the_end_of_a_session_discards_what_is_held(tmp_path: Path) -> None:
    """No row, no byte and no timer of a held message outlasts its Session."""
    broker = RestartableBroker(tmp_path / "db")
    client, publisher = reader(broker, "t/#", qos=1, kept=True, ms=3_600_000), broker.client("p")
    for number in range(50):
        for payload in (b"1", b"2"):
            publisher.publish(f"t/{number}", payload, 1, True)
    assert len(client.messages()) == 50
    assert broker.counters.holdings.queued_bytes > 50 * 900
    client.send(p.Disconnect(0, Properties(session_expiry_interval=0)))
    broker.commit()
    assert broker.rows("session_deliveries") == 0
    assert broker.counters.holdings.queued_bytes == 0
    assert broker.counters.holdings.queued_messages == 0
    broker.stop()


def test_what_is_held_is_bounded_and_forgotten() -> None:
    """Above a quarter of the limits messages leave at once, and after the interval nothing is left of the topics."""
    broker = MemoryBroker(limits=Limits(max_buffered_bytes=40_000))
    client, publisher = reader(broker, "t/#"), broker.client("p")
    for number in range(100):
        for payload in (b"1", b"2"):
            publisher.publish(f"t/{number}", payload, 0, True)
        assert broker.counters.holdings.queued_bytes <= 10_000
    at_once = came(client)
    assert ("t/99", b"2") in at_once
    broker.advance(1.1)
    later = came(client)
    assert len(later) > 5
    assert len(at_once) + len(later) == 200
    broker.advance(2)
    assert broker.counters.holdings.queued_bytes == 0


def test_many_due_messages_share_turns() -> None:
    """Messages that are due at one moment leave in parts: 25 in each turn for all clients, who take turns."""
    broker = MemoryBroker()
    clients = [broker.client(f"c{number}", 5, properties=TAKES_PART) for number in range(3)]
    for client in clients:
        subscribe(client, "t/#")
    publisher = broker.client("p")
    for number in range(60):
        for payload in (b"1", b"2"):
            publisher.connection.receive(p_encode(f"t/{number}", payload))
    broker.settle()
    for client in clients:
        client.packets()
    broker.clock.rightNow += 1.001
    turns = []
    for _ in range(20):
        broker.clock.turn()
        turns.append([len(unacknowledged(client)) for client in clients])
    assert [sum(turn[number] for turn in turns) for number in range(3)] == [60, 60, 60]
    assert max(sum(turn) for turn in turns) <= 50  # a part at once, and one in its turn
    done = [max(number for number, turn in enumerate(turns) if turn[client]) for client in range(3)]
    assert max(done) - min(done) <= 3


def p_encode(topic: str, payload: bytes) -> bytes:
    """Return a PUBLISH with RETAIN 1 and QoS 0 for MQTT 3.1.1."""
    return encode(p.Publish(topic, payload, 0, True, False, 0), 4)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_marker_comes_after_held_messages(qos: int) -> None:
    """A replay and its marker wait for the messages that are held: a mirror is complete at the marker."""
    broker = MemoryBroker()
    client, publisher = reader(broker, "t/#", "my/end", qos=qos, ms=60_000), broker.client("p")
    for payload in (b"1", b"2", b"3"):
        publisher.publish("t/a", payload, 1, True)
    client.messages()
    answers = subscribe(client, "t/#", ms=60_000, qos=qos, **{"holdfast-replay-end": "my/end"})
    found = [packet for packet in answers if isinstance(packet, p.Publish)]
    for _ in range(4):
        client.send(*(p.Puback(packet.packet_identifier) for packet in found if packet.qos))
        broker.advance(0.01)
        found += unacknowledged(client)
    *values, marker = found
    assert {packet.payload for packet in values} == {b"3"}
    assert not values[0].retain  # the held message comes before the replay
    assert marker.topic == "my/end"
    assert json.loads(marker.payload)["filter"] == "t/#"


def test_a_change_of_permissions_concerns_held_messages() -> None:
    """A held message that its client may not have any more is not sent."""
    authorizer = Permissions()
    broker = MemoryBroker(authorizer=authorizer)
    client, publisher = reader(broker, "t/#"), broker.client("p")
    for topic in ("t/a", "t/b"):
        publisher.publish(topic, b"1", 0, True)
        publisher.publish(topic, b"2", 0, True)
    assert came(client) == [("t/a", b"1"), ("t/b", b"1")]
    authorizer.deny("receive", "t/a")
    broker.advance(1.1)
    assert came(client) == [("t/b", b"2")]
    assert broker.counters.deliveries_not_authorized == 1


def test_zone_rule_conflates_all_clients() -> None:
    """``mqtt.conflate_interval``: clients of any version, for the topics of the filter; the longer interval holds."""
    limits = Limits(conflate_interval=2, conflate_filter="t/#")
    broker = MemoryBroker(limits=limits)
    client, publisher = broker.client("c"), broker.client("p")
    client.subscribe("#")
    asking = broker.client("d", 5, properties=TAKES_PART)
    subscribe(asking, "#", ms=3000)
    for topic in ("t/a", "u"):
        for payload in (b"1", b"2"):
            publisher.publish(topic, payload, 0, True)
    assert came(client) == [("t/a", b"1"), ("u", b"1"), ("u", b"2")]
    assert came(asking) == [("t/a", b"1"), ("u", b"1")]
    broker.advance(2.1)
    assert came(client) == [("t/a", b"2")]
    assert came(asking) == []
    broker.advance(1)
    assert came(asking) == [("t/a", b"2"), ("u", b"2")]


@pytest.mark.parametrize("qos", [0, 1])
def test_force_shutdown_can_conflate(qos: int) -> None:
    """With the policy a slow client stays connected through a flood, and gets the newest value of each topic."""
    broker = MemoryBroker(limits=Limits(conflate_slow=True, max_buffered_bytes=400_000, max_inflight=5))
    client, publisher = broker.client("c", 5), broker.client("p")
    client.subscribe("t/#", qos=qos)
    client.network.blocked = True
    for number in range(300):
        for topic in range(10):
            publisher.publish(f"t/{topic}", b"%d" % number + 500 * b".", qos, True)
    assert not client.network.closed
    client.network.blocked = False
    client.connection.drained()
    broker.settle()
    found = client.messages()
    newest = {topic: payload for topic, payload, _, _ in found}
    assert newest == {f"t/{topic}": b"299" + 500 * b"." for topic in range(10)}
    assert broker.counters.messages_conflated == 3000 - len(found)
    for topic in range(10):
        numbers = [int(payload.rstrip(b".")) for name, payload, _, _ in found if name == f"t/{topic}"]
        assert numbers == sorted(numbers)


def test_the_policy_does_not_touch_events() -> None:
    """Messages with RETAIN 0 count for the limits as before: their flood ends the connection."""
    broker = MemoryBroker(limits=Limits(conflate_slow=True, max_buffered_messages=10))
    slow = broker.client("slow", 5)
    slow.subscribe("t")
    slow.network.blocked = True
    publisher = broker.client("p")
    for _ in range(12):
        publisher.publish("t", b"x")
    assert slow.network.closed
    assert broker.counters.connections_shut_down == 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans()),
            st.sampled_from([0.05, 0.3, 1.1]),
            st.sampled_from(["drop", "block", "unblock"]),
        ),
        max_size=40,
    ),
    st.integers(0, 2),
)
def test_never_stale_after_fresh(steps: list[Any], qos: int) -> None:
    """Whatever happens, the messages of a topic come in order, and in the end the newest with QoS 1 or 2 has come."""
    broker = MemoryBroker()
    client, publisher = reader(broker, "t/#", qos=qos, kept=True, ms=400), broker.client("p")
    found: list[tuple[str, bytes]] = []
    number = 0
    newest: dict[str, int] = {}
    blocked = False
    for step in steps:
        match step:
            case (topic, level, retain):
                number += 1
                publisher.publish(f"t/{topic}", b"%d" % number, level, retain)
                if min(level, qos):
                    newest[f"t/{topic}"] = number
            case float():
                broker.advance(step)
            case "drop":
                client.drop()
                client, blocked = again(broker), False
            case _:
                blocked = step == "block"
        if not blocked:
            found += came(client)
    found += came(client)
    broker.advance(2)
    found += came(client)
    broker.advance(2)
    found += came(client)
    for topic in ("t/a", "t/b"):
        numbers = [int(payload) for name, payload in found if name == topic]
        assert numbers == sorted(numbers)
        if topic in newest:
            assert max(numbers) >= newest[topic]
