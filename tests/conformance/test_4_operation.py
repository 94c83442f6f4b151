"""Sessions, delivery, order, topics, shared subscriptions and flow control: section 4 of both standards."""

from __future__ import annotations

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.conformance.expect import (
    TERSE,
    VERSIONS,
    Forbidding,
    block,
    codes,
    lasting,
    packet,
    payloads,
    refused,
    resent,
    string,
)
from tests.doubles import Client, MemoryBroker

Request = p.SubscriptionRequest


# --- Sessions


@VERSIONS
def test_a_session_lasts_as_long_as_its_connection(version: int) -> None:
    """This is true of every Session Expiry Interval [MQTT5-4.1.0-1], [MQTT311-4.1.0-1], [MQTT311-4.1.0-2]."""
    broker = MemoryBroker(limits=Limits(session_expiry_interval=1))
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=1)
    broker.advance(10_000)
    client.publish("t", b"1", qos=1)
    assert payloads(client) == [b"1"]


def test_a_session_is_discarded_when_its_expiry_interval_has_passed() -> None:
    """It is not discarded earlier. A Session without expiry stays [MQTT5-4.1.0-2], [MQTT5-3.1.2-23]."""
    broker = MemoryBroker(limits=Limits(session_expiry_interval=None))
    for name, interval in (("ten", 10), ("never", 0xFFFFFFFF)):
        broker.client(name, 5, properties=Properties(session_expiry_interval=interval)).drop()

    def present(name: str) -> bool:
        client = Client(broker, 5)
        connack = client.connect(name, False, properties=Properties(session_expiry_interval=10))
        client.drop()
        assert connack is not None
        return connack.session_present

    broker.advance(9)
    assert present("ten")
    broker.advance(9)  # counted from the last disconnection
    assert present("ten")
    broker.advance(11)
    assert not present("ten")
    broker.advance(1_000_000_000)
    assert present("never")


# --- QoS 1


@VERSIONS
@pytest.mark.parametrize("dup", [False, True])
def test_the_identifier_of_an_acknowledged_message_begins_a_new_one(version: int, dup: bool) -> None:
    """This is true of QoS 1 after PUBACK, with any value of DUP [MQTT5-4.3.2-5], [MQTT311-4.3.2-2]."""
    client = MemoryBroker().client("c", version)
    client.subscribe("t")
    for number in (b"1", b"2"):
        client.send(p.Publish("t", number, 1, False, dup, 9))
    came = client.packets()
    assert [one.payload for one in came if isinstance(one, p.Publish)] == [b"1", b"2"]
    assert [one for one in came if isinstance(one, p.Puback)] == [p.Puback(9), p.Puback(9)]


@VERSIONS
def test_a_qos_1_message_is_unacknowledged_until_puback(version: int) -> None:
    """Until then, each reconnection repeats it; afterwards none does [MQTT5-4.3.2-3], [MQTT311-4.3.2-1]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=1)
    broker.client("p").publish("t", b"1", qos=1)
    (publish,) = client.got(p.Publish)
    assert (publish.qos, publish.dup) == (1, False)
    client.send(p.Puback(publish.packet_identifier % 65535 + 1), p.Pubcomp(publish.packet_identifier))
    for _ in range(2):
        client.drop()
        client = lasting(broker, "c", version)
        assert [(one.payload, one.packet_identifier) for one in resent(client)] == [(b"1", publish.packet_identifier)]
    client.send(p.Puback(publish.packet_identifier))
    client.drop()
    assert resent(lasting(broker, "c", version)) == []


# --- QoS 2


@VERSIONS
def test_the_sending_side_of_qos_2(version: int) -> None:
    """It repeats PUBLISH until PUBREC, then PUBREL until PUBCOMP, and never PUBLISH again.

    [MQTT5-4.3.3-4], [MQTT5-4.3.3-5], [MQTT5-4.3.3-6], [MQTT5-4.4.0-1], [MQTT311-4.3.3-1], [MQTT311-4.4.0-1].
    """
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=2)
    broker.client("p").publish("t", b"1", qos=2)
    (publish,) = client.got(p.Publish)
    identifier = publish.packet_identifier
    client.send(p.Puback(identifier))  # no answer to QoS 2
    client.drop()
    client = lasting(broker, "c", version)
    assert [one.packet_identifier for one in resent(client)] == [identifier]
    client.send(p.Pubrec(identifier))
    assert client.packets() == [p.Pubrel(identifier)]
    for _ in range(2):
        client.drop()
        client = lasting(broker, "c", version)
        assert client.backlog == [p.Pubrel(identifier)]
    client.send(p.Pubcomp(identifier))
    client.drop()
    assert lasting(broker, "c", version).backlog == []


@VERSIONS
def test_pubcomp_does_not_stand_for_pubrec(version: int) -> None:
    """A QoS 2 PUBLISH is unacknowledged until PUBREC [MQTT5-4.3.3-3], [MQTT311-4.3.3-1]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=2)
    broker.client("p").publish("t", b"1", qos=2)
    (publish,) = client.got(p.Publish)
    client.send(p.Pubcomp(publish.packet_identifier))
    client.drop()
    assert [one.payload for one in resent(lasting(broker, "c", version))] == [b"1"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_was_sent_does_not_expire(qos: int) -> None:
    """The exchange is completed although the message expires meanwhile [MQTT5-4.3.3-7]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.subscribe("t", qos=2)
    broker.client("p", 5).publish("t", b"1", qos, properties=Properties(message_expiry_interval=5))
    assert len(client.got(p.Publish)) == 1
    client.drop()
    broker.advance(20)
    assert [one.payload for one in resent(lasting(broker, "c", 5))] == [b"1"]


@VERSIONS
def test_the_receiving_side_of_qos_2(version: int) -> None:
    """Each PUBLISH gets PUBREC, each PUBREL gets PUBCOMP, and the message is forwarded once.

    [MQTT5-4.3.3-10], [MQTT5-4.3.3-11], [MQTT311-4.3.3-2].
    """
    broker = MemoryBroker()
    watcher = broker.client("w")
    watcher.subscribe("t", qos=2)
    client = lasting(broker, "c", version)
    client.publish("t", b"1", qos=2, identifier=9)
    assert client.got(p.Pubrec) == [p.Pubrec(9)]
    client.send(p.Publish("t", b"1", 2, False, True, 9))
    assert client.got(p.Pubrec) == [p.Pubrec(9)]
    client.drop()
    client = lasting(broker, "c", version)
    client.send(p.Publish("t", b"1", 2, False, True, 9))
    assert client.got(p.Pubrec) == [p.Pubrec(9)]
    client.send(p.Pubrel(9))
    assert client.packets() == [p.Pubcomp(9)]
    assert payloads(watcher) == [b"1"]


@VERSIONS
@pytest.mark.parametrize("dup", [False, True])
def test_after_pubcomp_the_identifier_begins_a_new_message(version: int, dup: bool) -> None:
    """This is true of any value of DUP [MQTT5-4.3.3-12], [MQTT311-4.3.3-2]."""
    broker = MemoryBroker()
    watcher = broker.client("w")
    watcher.subscribe("t", qos=2)
    client = broker.client("c", version)
    for number in (b"1", b"2"):
        client.send(p.Publish("t", number, 2, False, dup, 9), p.Pubrel(9))
    assert client.packets() == [p.Pubrec(9), p.Pubcomp(9)] * 2
    assert payloads(watcher) == [b"1", b"2"]


def test_after_a_failing_pubrec_the_identifier_begins_a_new_message() -> None:
    """A message that was refused is not remembered [MQTT5-4.3.3-9]."""
    broker = MemoryBroker(authorizer=Forbidding("secret"))
    watcher = broker.client("w")
    watcher.subscribe("t", qos=2)
    client = broker.client("c", 5, properties=TERSE)
    client.publish("secret", b"x", qos=2, identifier=9)
    assert client.packets() == [p.Pubrec(9, ReasonCode.NOT_AUTHORIZED)]
    client.publish("t", b"new", qos=2, identifier=9)
    assert client.packets() == [p.Pubrec(9)]
    assert payloads(watcher) == [b"new"]


def test_an_exchange_goes_on_when_its_message_has_expired() -> None:
    """PUBREL is answered. The expired message is not sent [MQTT5-4.3.3-13]."""
    broker = MemoryBroker()
    away = lasting(broker, "away", 5)
    away.subscribe("t", qos=2)
    away.drop()
    client = broker.client("c", 5)
    client.publish("t", b"1", 2, properties=Properties(message_expiry_interval=1), identifier=9)
    assert client.packets() == [p.Pubrec(9)]
    broker.advance(10)
    client.send(p.Pubrel(9))
    assert client.packets() == [p.Pubcomp(9)]
    assert resent(lasting(broker, "away", 5)) == []


# --- sending again, and order


@VERSIONS
def test_nothing_is_sent_again_on_the_same_connection(version: int) -> None:
    """This is true however long the Client takes [MQTT5-4.4.0-1]. MQTT 3 Clients need no repetition either."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    publisher.publish("t", qos=1)
    publisher.publish("t", qos=2)
    assert len(client.got(p.Publish)) == 2
    broker.advance(100_000)
    assert client.packets() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_is_not_sent_again(qos: int) -> None:
    """PUBACK or PUBREC with 0x80 or more acknowledges it finally [MQTT5-4.4.0-2]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.subscribe("t", qos=2)
    broker.client("p").publish("t", qos=qos)
    (publish,) = client.got(p.Publish)
    answer = p.Puback if qos == 1 else p.Pubrec
    client.send(answer(publish.packet_identifier, ReasonCode.QUOTA_EXCEEDED))
    assert client.packets() == []
    client.drop()
    assert lasting(broker, "c", 5).backlog == []


@VERSIONS
def test_a_message_is_kept_for_every_session_that_matches(version: int) -> None:
    """Connected and offline Clients get it, each when it can [MQTT5-4.5.0-1], [MQTT311-4.5.0-1]."""
    broker = MemoryBroker()
    names = [f"c{number}" for number in range(4)]
    clients = {name: lasting(broker, name, version) for name in names}
    for client in clients.values():
        client.subscribe("t", qos=1)
    clients["c0"].drop()
    clients["c1"].drop()
    broker.client("p", version).publish("t", b"1", qos=1)
    assert payloads(clients["c2"]) == payloads(clients["c3"]) == [b"1"]
    for name in ("c0", "c1"):
        assert [one.payload for one in resent(lasting(broker, name, version))] == [b"1"]


@VERSIONS
def test_messages_are_sent_again_in_their_order(version: int) -> None:
    """This is true of QoS 1 and 2. Later messages follow [MQTT311-4.6.0-1], [MQTT311-4.6.0-6]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    for number in range(6):
        publisher.publish("t", b"%d" % number, qos=number % 2 + 1)
    client.drop()
    for number in range(6, 9):
        publisher.publish("t", b"%d" % number, qos=number % 2 + 1)
    assert [one.payload for one in resent(lasting(broker, "c", version))] == [b"%d" % number for number in range(9)]


@VERSIONS
def test_acknowledgements_have_the_order_of_their_packets(version: int) -> None:
    """PUBACK and PUBREC follow the order of PUBLISH; PUBREL follows the order of PUBREC.

    [MQTT311-4.6.0-2], [MQTT311-4.6.0-3], [MQTT311-4.6.0-4].
    """
    broker = MemoryBroker()
    client = broker.client("c", version)
    client.subscribe("t", qos=2)
    client.send(*(p.Publish("t", b"", number % 2 + 1, packet_identifier=100 - number) for number in range(10)))
    came = client.packets()
    answers = [one.packet_identifier for one in came if isinstance(one, p.Puback | p.Pubrec)]
    assert answers == list(range(100, 90, -1))
    released = [one.packet_identifier for one in came if isinstance(one, p.Publish) and one.qos == 2][::-1]
    client.send(*map(p.Pubrec, released))
    assert client.packets() == [p.Pubrel(identifier) for identifier in released]


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_keep_the_order_of_their_publisher(version: int, qos: int) -> None:
    """This is true of each topic and QoS, with a small window and a queue.

    [MQTT5-4.6.0-5], [MQTT5-4.6.0-6], [MQTT311-4.6.0-5], [MQTT311-4.6.0-6].
    """
    broker = MemoryBroker(limits=Limits(max_inflight=3))
    clients = [broker.client(name, version) for name in "ab"]
    for client in clients:
        client.subscribe("+/x", "a/#", qos=qos)
    publisher = broker.client("p", version)
    for number in range(20):
        publisher.publish("a/x", b"%d" % number, qos=qos)
    for client in clients:
        assert payloads(client) == [b"%d" % number for number in range(20)]


# --- topics


def _is_a_topic_filter(version: int, topic_filter: str, well_formed: bool) -> None:
    """Subscribing and unsubscribing succeed, or each is a Protocol Error that changes nothing."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("other")
    if well_formed:
        assert codes(client, Request(topic_filter)) == (0,)
        client.send(p.Unsubscribe(2, (topic_filter,)))
        assert client.packets() == [p.Unsuback(2, (0,) if version == 5 else ())]
        return
    for request in (p.Subscribe(1, (Request("new"), Request(topic_filter))), p.Unsubscribe(2, ("other", topic_filter))):
        client.send(request)
        refused(client, ReasonCode.PROTOCOL_ERROR)
        client = lasting(broker, "c", version)
    client.publish("new")
    client.publish("other")
    assert [topic for topic, _, _, _ in client.messages()] == ["other"]


@VERSIONS
@pytest.mark.parametrize(
    ("topic_filter", "granted"),
    [
        ("#", True),
        ("a/#", True),
        ("/#", True),
        ("+/#", True),
        ("a#", False),
        ("#/a", False),
        ("a/#/b", False),
        ("a/b#", False),
    ],
)
def test_a_multi_level_wildcard_stands_last_and_alone(version: int, topic_filter: str, granted: bool) -> None:
    """Else the connection ends [MQTT5-4.7.1-1], [MQTT311-4.7.1-2]."""
    _is_a_topic_filter(version, topic_filter, granted)


@VERSIONS
@pytest.mark.parametrize(
    ("topic_filter", "granted"),
    [
        ("+", True),
        ("a/+/b", True),
        ("+/a", True),
        ("/+", True),
        ("a+", False),
        ("+a/b", False),
        ("a/b+/c", False),
        ("++", False),
    ],
)
def test_a_single_level_wildcard_fills_its_level(version: int, topic_filter: str, granted: bool) -> None:
    """Else the connection ends [MQTT5-4.7.1-2], [MQTT311-4.7.1-3]."""
    _is_a_topic_filter(version, topic_filter, granted)


@VERSIONS
@pytest.mark.parametrize("kind", ["publish", "subscribe", "unsubscribe"])
def test_topics_have_at_least_one_character(version: int, kind: str) -> None:
    """An empty one ends the connection [MQTT5-4.7.3-1], [MQTT311-4.7.3-1]."""
    client = MemoryBroker().client("c", version)
    data = {
        "publish": packet(0x30, string(b"") + block(version)),
        "subscribe": packet(0x82, b"\0\1" + block(version) + string(b"") + b"\0"),
        "unsubscribe": packet(0xA2, b"\0\1" + block(version) + string(b"")),
    }[kind]
    client.raw(data)
    refused(client, ReasonCode.PROTOCOL_ERROR)


@VERSIONS
def test_topics_have_up_to_65535_bytes(version: int) -> None:
    """Topics that differ in the last byte are different [MQTT5-4.7.3-3], [MQTT311-4.7.3-3]."""
    client = MemoryBroker().client("c", version)
    longest = "é" * 32_767 + "x"
    client.subscribe(longest)
    client.publish(longest[:-1] + "y")
    client.publish(longest)
    assert [topic for topic, _, _, _ in client.messages()] == [longest]


@VERSIONS
@pytest.mark.parametrize(
    ("topic_filter", "other"),
    [
        ("é", "e\u0301"),
        ("A", "a"),
        ("a/b", "a//b"),
        ("a", "a/"),
        ("a", "/a"),
        ("a b", "a  b"),
        ("a/.", "a"),
        ("*", "x"),
        ("å", "\u212b"),
        ("a%20b", "a b"),
    ],
)
def test_topics_are_compared_without_normalization(version: int, topic_filter: str, other: str) -> None:
    """There is no normalization [MQTT5-4.7.3-4], [MQTT311-4.7.3-4]."""
    client = MemoryBroker().client("c", version)
    client.subscribe(topic_filter)
    client.publish(other)
    client.publish(topic_filter)
    assert [topic for topic, _, _, _ in client.messages()] == [topic_filter]


@VERSIONS
@pytest.mark.parametrize("topic", ["$SYSTEM/a", "$x", "$"])
def test_leading_wildcards_leave_dollar_topics_alone(version: int, topic: str) -> None:
    """This is true of live and retained messages [MQTT5-4.7.2-1], [MQTT311-4.7.2-1]."""
    client = MemoryBroker().client("c", version)
    client.subscribe("#", "+/a", "+", "+/#")
    client.publish(topic, retain=True)
    assert client.messages() == []
    client.send(p.Subscribe(9, tuple(map(Request, ("#", "+", "+/a")))))
    assert client.messages() == []
    client.send(p.Subscribe(10, (Request(topic),)))
    assert [name for name, _, _, _ in client.messages()] == [topic]


# --- shared subscriptions


@pytest.mark.parametrize(
    "topic_filter",
    [
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//t",
        "$share//",
        "$share/+/t",
        "$share/#/t",
        "$share/a+b/t",
        "$share/g/t#",
    ],
)
def test_a_shared_subscription_has_a_share_name_and_a_topic_filter(topic_filter: str) -> None:
    """Else the connection ends [MQTT5-4.8.2-1], [MQTT5-4.8.2-2]."""
    _is_a_topic_filter(5, topic_filter, False)


@pytest.mark.parametrize("topic_filter", ["$share/g/t", "$share/g//", "$share/$/#", "$share/é/+", "$share/$share/a/b"])
def test_a_share_name_holds_any_other_characters(topic_filter: str) -> None:
    """Only / + and # are not allowed [MQTT5-4.8.2-1], [MQTT5-4.8.2-2]."""
    _is_a_topic_filter(5, topic_filter, True)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("topic_filter", ["$share/", "$share/g", "$share//t", "$share/+/t"])
def test_an_invalid_shared_subscription_is_refused_in_mqtt_3(version: int, topic_filter: str) -> None:
    """SUBACK has 0x80. The connection stays, since MQTT 3 does not forbid such a filter [MQTT311-3.9.3-2]."""
    client = MemoryBroker().client("c", version)
    assert codes(client, Request(topic_filter)) == (0x80,)
    client.send(p.Unsubscribe(2, (topic_filter,)))
    assert client.packets() == [p.Unsuback(2)]


def test_each_member_gets_its_own_granted_qos() -> None:
    """The granted QoS of another member does not count [MQTT5-4.8.2-3]."""
    broker = MemoryBroker()
    members = [broker.client(f"c{qos}", 5) for qos in (0, 1, 2)]
    for qos, member in enumerate(members):
        member.subscribe("$share/g/t", qos=qos)
    publisher = broker.client("p")
    for _ in range(6):
        publisher.publish("t", qos=2)
    assert [{one[2] for one in member.messages()} for member in members] == [{0}, {1}, {2}]


def shared(qos: int) -> tuple[MemoryBroker, dict[str, Client], str, p.Publish]:
    """Return two members of a group, the name of the member with a message, and the message."""
    broker = MemoryBroker()
    members = {name: lasting(broker, name, 5) for name in ("one", "two")}
    for member in members.values():
        member.subscribe("$share/g/t", qos=2)
    broker.client("p").publish("t", b"1", qos=qos)
    for name, member in members.items():
        for publish in member.got(p.Publish):
            return broker, members, name, publish
    raise AssertionError("nobody got the message")


@pytest.mark.parametrize("released", [False, True])
def test_a_qos_2_message_of_a_group_stays_with_its_member(released: bool) -> None:
    """Delivery is completed when that Client comes back [MQTT5-4.8.2-4]."""
    broker, members, chosen, publish = shared(2)
    other = next(name for name in members if name != chosen)
    if released:
        members[chosen].send(p.Pubrec(publish.packet_identifier))
    members[chosen].drop()
    assert members[other].packets() == []
    back = lasting(broker, chosen, 5)
    expected = (
        p.Pubrel(publish.packet_identifier)
        if released
        else p.Publish("t", b"1", 2, False, True, publish.packet_identifier)
    )
    assert back.backlog == [expected]
    assert members[other].packets() == []


def test_a_qos_2_message_of_a_group_ends_with_its_members_session() -> None:
    """No other member gets it, since the first may have received it [MQTT5-4.8.2-5]."""
    broker, members, chosen, _ = shared(2)
    other = next(name for name in members if name != chosen)
    members[chosen].drop()
    broker.advance(2000)
    assert members[other].packets() == []
    assert lasting(broker, chosen, 5).backlog == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_refused_by_a_member_goes_to_no_other_member(qos: int) -> None:
    """PUBACK or PUBREC with 0x80 or more discards the message [MQTT5-4.8.2-6]."""
    broker, members, chosen, publish = shared(qos)
    answer = p.Puback if qos == 1 else p.Pubrec
    members[chosen].send(answer(publish.packet_identifier, ReasonCode.UNSPECIFIED_ERROR))
    members[chosen].drop()
    broker.advance(2000)
    for name in members:
        assert members[name].packets() == []
    assert lasting(broker, chosen, 5).backlog == []
