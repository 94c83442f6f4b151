"""What is told of replayed messages: to whom, what, and that it outlasts disconnects and kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties
from holdfast.wire import packets as p
from tests.authorizers import Filtering, Permissions
from tests.doubles import Client, MemoryBroker
from tests.sessions.replays.test_markers import KEPT, TAKES_PART, publishes, retaining, subscribe
from tests.sessions.restartable import RestartableBroker

TELLS = Limits(tell_publishers=True)
AT = "2027-01-15T08:00:00.000Z"


def asking(facts: str) -> Properties:
    """Return the properties of a SUBSCRIBE that asks for facts."""
    return Properties(user_properties=(("holdfast-replay-info", facts),))


def told(packet: p.Publish) -> dict[str, str]:
    """Return the facts that a message tells."""
    return {name: value for name, value in packet.properties.user_properties if name.startswith("holdfast-")}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_replayed_message_tells_what_was_asked_for(qos: int) -> None:
    """The facts come last, in each replayed message and in no live one."""
    broker = MemoryBroker(limits=TELLS)
    publisher = broker.client("p", 5)
    publisher.publish("t/0", b"x", 2, True, properties=Properties(user_properties=(("unit", "C"),)))
    client = broker.client("c", 5, properties=TAKES_PART)
    (replayed,) = publishes(subscribe(client, "t/#", properties=asking("stored-at,revision,publisher"), qos=qos))
    (own, stored_at, (name, revision), publisher_of) = replayed.properties.user_properties
    assert own == ("unit", "C")
    assert stored_at == ("holdfast-stored-at", AT)
    assert (name, revision.isdigit()) == ("holdfast-revision", True)
    assert publisher_of == ("holdfast-publisher", "p")
    broker.client("live").publish("t/1", b"x", 0, True)
    assert [told(packet) for packet in publishes(client.packets()) if packet.topic == "t/1"] == [{}]


def test_only_participants_are_told() -> None:
    """The request of a client that does not take part is a User Property like any other."""
    broker = MemoryBroker()
    retaining(broker, 1)
    client = broker.client("c", 5)
    (replayed,) = publishes(subscribe(client, "t/#", properties=asking("revision")))
    assert told(replayed) == {}


def test_publishers_are_not_told_by_default() -> None:
    """Without the option, the rest is told, and the Reason String says what is missing."""
    broker = MemoryBroker()
    retaining(broker, 1)
    client = broker.client("c", 5, properties=TAKES_PART)
    suback, replayed = subscribe(client, "t/#", properties=asking("stored-at,publisher"))
    assert isinstance(suback, p.Suback)
    assert suback.properties.reason_string == "publishers are not told: not permitted"
    suback, *_ = subscribe(client, "$history/at/-1h/t", "t/0", properties=asking("publisher"))
    assert isinstance(suback, p.Suback)
    assert suback.properties.reason_string is not None
    assert "no history is kept; publishers are not told" in suback.properties.reason_string
    assert isinstance(replayed, p.Publish)
    assert told(replayed) == {"holdfast-stored-at": AT}


def test_rules_decide_whose_publishers_are_told() -> None:
    """With the option, the rules have to allow the Topic Filter behind $replay/publisher."""
    rules = Permissions()
    rules.deny("receive", "$replay/publisher/t/#")
    broker = MemoryBroker(limits=TELLS, authorizer=rules)
    retaining(broker, 1)
    broker.client("publisher").publish("open/0", b"x", 0, True)
    client = broker.client("c", 5, properties=TAKES_PART)
    found = publishes(subscribe(client, "t/+", "open/+", properties=asking("publisher")))
    assert {packet.topic: told(packet) for packet in found} == {
        "t/0": {}, "open/0": {"holdfast-publisher": "publisher"},
    }  # fmt: skip


def test_lost_permission_counts_for_the_rest_of_a_replay() -> None:
    """When the rules change in the midst of a replay, the rest of it tells no publishers."""
    rules = Permissions()
    broker = MemoryBroker(limits=Limits(tell_publishers=True, max_inflight=1), authorizer=rules)
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    (first,) = publishes(subscribe(client, "t/#", properties=asking("publisher"), qos=1))
    assert told(first)
    rules.deny("receive", "$replay/publisher/#")
    client.send(p.Puback(first.packet_identifier))
    (second,) = publishes(client.packets())
    assert (second.topic, told(second)) == ("t/1", {})


def test_facts_count_in_the_maximum_packet_size() -> None:
    """A message that is too large with its facts is left out, as if it had been published so [MQTT5-3.1.2-25]."""
    broker = MemoryBroker()
    broker.client("p").publish("t/0", bytes(380), 0, True)
    limit = Properties(user_properties=(("holdfast", "?"),), maximum_packet_size=400)
    client = broker.client("c", 5, properties=limit)
    assert publishes(subscribe(client, "t/#", properties=asking("stored-at"))) == []
    assert broker.counters.messages_dropped_too_large == 1
    assert len(publishes(subscribe(client, "t/#"))) == 1


def test_facts_are_told_where_each_delivery_is_judged() -> None:
    """Also a replay whose messages are judged one by one tells them."""
    broker = MemoryBroker(authorizer=Filtering())
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    found = publishes(subscribe(client, "t/#", properties=asking("stored-at")))
    assert [told(packet) for packet in found] == 3 * [{"holdfast-stored-at": AT}]


def test_repeated_subscribe_changes_what_the_rest_tells() -> None:
    """A SUBSCRIBE that begins no replay of its own changes what the present one tells, from the next message on."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    retaining(broker)
    client = broker.client("c", 5, properties=TAKES_PART)
    (first,) = publishes(subscribe(client, "t/#", properties=asking("stored-at"), qos=1))
    subscribe(client, p.SubscriptionRequest("t/#", 1, retain_handling=2), properties=asking("revision"))
    client.send(p.Puback(first.packet_identifier))
    (second,) = publishes(client.packets())
    assert told(second).keys() == {"holdfast-revision"}


def rest_of(client: Client, came: list[p.Publish]) -> list[p.Publish]:
    """Acknowledge all that comes, and return it."""
    found = []
    while came:
        found += came
        client.send(*((p.Puback if one.qos == 1 else p.Pubrec)(one.packet_identifier) for one in came))
        client.broker.advance(1)
        packets = client.packets()
        for packet in packets:
            if isinstance(packet, p.Pubrel):
                client.send(p.Pubcomp(packet.packet_identifier))
        came = publishes(packets) or publishes(client.packets())
    return found


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_facts_survive(tmp_path: Path, qos: int, killed: bool) -> None:
    """The rest of a replay that was interrupted, also by kill -9, tells the same of each message."""
    broker = RestartableBroker(tmp_path / "db", limits=Limits(max_inflight=1))
    publisher = broker.client("publisher", 5)
    for number in range(4):
        publisher.send(p.Publish(f"t/{number}", b"x", 2, True, packet_identifier=number + 1))
        publisher.send(p.Pubrel(number + 1))
    broker.settle()
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, "t/#", properties=asking("stored-at,revision"), qos=qos)
    if killed:
        broker.commit()
        broker = broker.restart()
    else:
        client.drop()
    client = broker.client("c", 5, clean=False, properties=KEPT)
    found = rest_of(client, publishes(client.backlog))
    assert {packet.topic for packet in found} == {"t/0", "t/1", "t/2", "t/3"}
    assert all(told(packet).keys() == {"holdfast-stored-at", "holdfast-revision"} for packet in found)


def test_session_taken_over_by_mqtt_3_is_told_nothing(tmp_path: Path) -> None:
    """The rest of a replay goes on without facts where its client comes back with MQTT 3.1.1."""
    broker = RestartableBroker(tmp_path / "db", limits=Limits(max_inflight=1))
    retaining(broker)
    client = broker.client("c", 5, clean=False, properties=KEPT)
    subscribe(client, "t/#", properties=asking("revision"), qos=1)
    client.drop()
    client = broker.client("c", 4, clean=False)
    found = rest_of(client, publishes(client.backlog))
    assert [packet.topic for packet in found] == ["t/0", "t/1", "t/2"]
