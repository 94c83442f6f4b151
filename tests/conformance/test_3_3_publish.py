"""PUBLISH without the RETAIN flag: section 3.3 of both standards, and the acknowledgements, 3.4 to 3.7."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from holdfast.retained.limits import RetainerLimits
from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.conformance.expect import (
    TERSE,
    VERSIONS,
    Forbidding,
    block,
    lasting,
    packet,
    payloads,
    refused,
    resent,
    string,
)
from tests.doubles import Client, MemoryBroker
from tests.retained.store.delayed_store import DelayedStore
from tests.sessions.restartable import RestartableBroker


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_1_only_for_repeated_messages(version: int, qos: int) -> None:
    """DUP is 0 the first time, and 1 after a reconnection.

    [MQTT5-3.3.1-1], [MQTT5-4.3.2-2], [MQTT5-4.3.3-2], [MQTT311-3.3.1-1].
    """
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=2)
    broker.client("p").publish("t", qos=qos)
    assert [(one.qos, one.dup) for one in client.got(p.Publish)] == [(qos, False)]
    client.drop()
    assert [(one.qos, one.dup) for one in resent(lasting(broker, "c", version))] == [(qos, True)]


@VERSIONS
def test_dup_is_0_at_qos_0(version: int) -> None:
    """The broker never sets it, and refuses a Client that does.

    [MQTT5-3.3.1-2], [MQTT5-4.3.1-1], [MQTT311-3.3.1-2], [MQTT311-4.3.1-1].
    """
    client = MemoryBroker().client("c", version)
    client.subscribe("t", qos=2)
    client.publish("t")
    assert [(one.qos, one.dup) for one in client.got(p.Publish)] == [(0, False)]
    client.raw(packet(0x38, string(b"t") + block(version)))
    refused(client, ReasonCode.MALFORMED_PACKET)


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_of_an_incoming_message_is_not_forwarded(version: int, qos: int) -> None:
    """The subscriber gets a repeated PUBLISH with DUP 0 [MQTT5-3.3.1-3], [MQTT311-3.3.1-3]."""
    broker = MemoryBroker()
    client = broker.client("c", version)
    client.subscribe("t", qos=2)
    broker.client("p", version).send(p.Publish("t", b"", qos, False, True, 9))
    assert [one.dup for one in client.got(p.Publish)] == [False]


@VERSIONS
def test_there_is_no_qos_3(version: int) -> None:
    """Both QoS bits set are malformed [MQTT5-3.3.1-4], [MQTT311-3.3.1-4]."""
    client = MemoryBroker().client("c", version)
    client.raw(packet(0x36, string(b"t") + b"\0\1" + block(version)))
    refused(client, ReasonCode.MALFORMED_PACKET)


@VERSIONS
@pytest.mark.parametrize("topic", ["a/+", "+", "#", "a/#", "a+b", "a#"])
def test_a_topic_name_has_no_wildcards(version: int, topic: str) -> None:
    """This is true of PUBLISH and Wills [MQTT5-3.3.2-2], [MQTT5-4.7.0-1], [MQTT311-3.3.2-2], [MQTT311-4.7.1-1]."""
    broker = MemoryBroker()
    client = broker.client("c", version)
    client.publish(topic)
    refused(client, ReasonCode.TOPIC_NAME_INVALID)
    client = broker.client("w", version, will=p.Will(topic, b""))
    assert client.network.closed
    assert client.connack is None or client.connack.reason_code == ReasonCode.TOPIC_NAME_INVALID


@VERSIONS
def test_a_message_arrives_under_its_own_topic_name(version: int) -> None:
    """This is true of any matching Topic Filter, live or retained [MQTT5-3.3.2-3], [MQTT311-3.3.2-3]."""
    broker = MemoryBroker()
    client = broker.client("c", version)
    client.subscribe("a/+/c", "d/#", "e")
    sent = ["a/b/c", "a//c", "d", "d/x/y", "e"]
    for topic in [*sent, "a/b", "e/f"]:
        client.publish(topic, retain=True)
    assert [topic for topic, _, _, _ in client.messages()] == sent
    client.send(p.Subscribe(9, tuple(map(p.SubscriptionRequest, ("a/+/c", "d/#", "e")))))
    assert sorted(topic for topic, _, _, _ in client.messages()) == sorted(sent)


@pytest.mark.parametrize("how", ["live", "queued", "retained"])
def test_properties_arrive_unaltered(how: str) -> None:
    """This includes queued and retained messages.

    [MQTT5-3.3.2-4], [MQTT5-3.3.2-15], [MQTT5-3.3.2-16], [MQTT5-3.3.2-17], [MQTT5-3.3.2-18], [MQTT5-3.3.2-20].
    """
    sent = Properties(
        payload_format_indicator=1,
        response_topic="answers/é",
        correlation_data=bytes(range(256)),
        content_type="text/plain",
        user_properties=(("b", "2"), ("a", "1"), ("b", "3"), ("b", "2")),
    )
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    publisher = broker.client("p", 5)
    if how == "retained":
        publisher.publish("t", b"text", 1, True, sent)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t", 1),)))
    if how == "live":
        publisher.publish("t", b"text", 1, properties=sent)
    elif how == "queued":
        client.drop()
        publisher.publish("t", b"text", 1, properties=sent)
        client = lasting(broker, "c", 5)
    came = resent(client) if how == "queued" else client.got(p.Publish)
    assert [(one.payload, one.properties) for one in came] == [(b"text", sent)]


@pytest.mark.parametrize("how", ["queued", "retained", "will"])
def test_messages_arrive_unaltered_after_a_restart(how: str, tmp_path: Path) -> None:
    """The store keeps every property, and the order of User Properties.

    [MQTT5-3.3.2-4], [MQTT5-3.3.2-15], [MQTT5-3.3.2-16], [MQTT5-3.3.2-17], [MQTT5-3.3.2-18], [MQTT5-3.3.2-20],
    [MQTT5-3.1.3-10].
    """
    sent = Properties(
        payload_format_indicator=1,
        response_topic="answers/é",
        correlation_data=bytes(range(256)),
        content_type="text/plain",
        user_properties=(("b", "2"), ("a", "1"), ("b", "3"), ("b", "2"), ("", "\ufeff")),
    )
    broker = RestartableBroker(tmp_path / "h.db")
    client = lasting(broker, "c", 5)
    request = p.SubscriptionRequest("t", 2, retain_as_published=True)
    if how != "retained":
        client.send(p.Subscribe(1, (request,), Properties(subscription_identifiers=(7,))))
    client.drop()
    if how == "will":
        broker.client("w", 5, will=p.Will("t", b"text", 2, True, sent)).send(p.Disconnect(4))
    else:
        broker.client("p", 5).publish("t", b"text", 2, True, sent)
    broker = broker.restart()
    client = lasting(broker, "c", 5)
    if how == "retained":
        client.send(p.Subscribe(1, (request,), Properties(subscription_identifiers=(7,))))
    (came,) = client.got(p.Publish) if how == "retained" else resent(client)
    assert (came.payload, came.qos, came.retain) == (b"text", 2, True)
    assert came.properties == attrs.evolve(sent, subscription_identifiers=(7,))


def _publish_expiring(publisher: Client, qos: int = 1, retain: bool = False) -> None:
    for topic, interval in (("long", 100), ("short", 30)):
        publisher.publish(topic, b"x", qos, retain, Properties(message_expiry_interval=interval))


def _left(came: list[p.Publish]) -> list[tuple[str, int | None]]:
    return [(one.topic, one.properties.message_expiry_interval) for one in came]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_messages_expire_in_the_queue_of_a_session(qos: int, restart: bool, tmp_path: Path) -> None:
    """The subscriber gets the remaining Message Expiry Interval. An expired message is not sent.

    [MQTT5-3.3.2-5], [MQTT5-3.3.2-6].
    """
    broker = RestartableBroker(tmp_path / "h.db")
    client = lasting(broker, "c", 5)
    client.subscribe("#", qos=qos)
    client.drop()
    _publish_expiring(broker.client("p", 5), qos)
    if restart:
        broker = broker.restart(after=40)
    else:
        broker.advance(40)
    assert _left(resent(lasting(broker, "c", 5))) == [("long", 60)]


@pytest.mark.parametrize(("waited", "left"), [(0.001, 100), (0.999, 100), (1, 99), (1.001, 99), (98.5, 2), (99.999, 1)])
@pytest.mark.parametrize("how", ["queued", "sent again", "retained"])
def test_whole_seconds_are_taken_off_the_expiry_interval(waited: float, left: int, how: str) -> None:
    """A message that is sent at once keeps its interval, and no interval is ever 0 [MQTT5-3.3.2-6]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    if how != "retained":
        client.subscribe("t", qos=1)
    if how == "queued":
        client.drop()
    broker.client("p", 5).publish("t", b"x", 1, True, Properties(message_expiry_interval=100))
    if how == "sent again":
        assert _left(client.got(p.Publish)) == [("t", 100)]
        client.drop()
    broker.advance(waited)
    if how == "retained":
        came = [one for one in client.subscribe("t", qos=1) if isinstance(one, p.Publish)]
    else:
        came = resent(lasting(broker, "c", 5))
    assert _left(came) == [("t", left)]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_messages_expire(qos: int, restart: bool, tmp_path: Path) -> None:
    """This is true of every QoS of the subscription [MQTT5-3.3.2-5], [MQTT5-3.3.2-6]."""
    broker = RestartableBroker(tmp_path / "h.db")
    _publish_expiring(broker.client("p", 5), 2, True)
    if restart:
        broker = broker.restart(after=40)
    else:
        broker.advance(40)
    came = broker.client("c", 5).subscribe("#", qos=qos)
    assert _left([one for one in came if isinstance(one, p.Publish)]) == [("long", 60)]


def test_messages_expire_behind_a_full_window() -> None:
    """They wait because the connected Client is slow [MQTT5-3.3.2-5], [MQTT5-3.3.2-6]."""
    broker = MemoryBroker()
    client = broker.client("c", 5, properties=Properties(receive_maximum=1))
    client.subscribe("#", qos=1)
    publisher = broker.client("p", 5)
    publisher.publish("first", qos=1)
    (first,) = client.got(p.Publish)
    _publish_expiring(publisher)
    broker.advance(40)
    client.send(p.Puback(first.packet_identifier))
    (second,) = client.got(p.Publish)
    assert _left([second]) == [("long", 60)]
    client.send(p.Puback(second.packet_identifier))
    assert client.packets() == []


def test_the_expiry_interval_of_a_will_begins_with_its_publication() -> None:
    """It begins neither with CONNECT nor with the end of the connection [MQTT5-3.3.2-6]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.subscribe("gone", qos=1)
    client.drop()
    will = p.Will("gone", b"", 1, properties=Properties(message_expiry_interval=100, will_delay_interval=200))
    mourned = lasting(broker, "w", 5, will=will)
    broker.advance(300)
    mourned.drop()
    broker.advance(200)
    broker.advance(40)
    assert _left(resent(lasting(broker, "c", 5))) == [("gone", 60)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_repeated_message_has_the_remaining_expiry_interval(restart: bool, tmp_path: Path) -> None:
    """[MQTT5-3.3.2-6]: a message that was sent once no longer expires."""
    broker = RestartableBroker(tmp_path / "h.db")
    client = lasting(broker, "c", 5)
    client.subscribe("#", qos=1)
    _publish_expiring(broker.client("p", 5))
    assert _left(client.got(p.Publish)) == [("long", 100), ("short", 30)]
    client.drop()
    if restart:
        broker = broker.restart(after=40)
    else:
        broker.advance(40)
    assert _left(resent(lasting(broker, "c", 5))) == [("long", 60), ("short", 1)]


def test_topic_aliases_end_with_the_connection() -> None:
    """A resumed Session begins without aliases [MQTT5-3.3.2-7]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.publish("t", properties=Properties(topic_alias=1))
    client.publish("", properties=Properties(topic_alias=1))
    assert not client.network.closed
    client.drop()
    client = lasting(broker, "c", 5)
    client.publish("", properties=Properties(topic_alias=1))
    refused(client, ReasonCode.PROTOCOL_ERROR)


def test_the_topic_alias_0_ends_the_connection() -> None:
    """The lowest is 1 [MQTT5-3.3.2-8]."""
    client = MemoryBroker().client("c", 5)
    client.raw(packet(0x30, string(b"t") + bytes.fromhex("03 23 0000")))
    refused(client, ReasonCode.TOPIC_ALIAS_INVALID)


def test_every_topic_alias_up_to_the_maximum_is_taken() -> None:
    """Each can also get another Topic Name [MQTT5-3.3.2-12]."""
    client = MemoryBroker(limits=Limits(max_topic_alias=10)).client("c", 5)
    client.subscribe("#")
    for alias in range(1, 11):
        client.publish(f"first/{alias}", properties=Properties(topic_alias=alias))
        client.publish(f"t/{alias}", properties=Properties(topic_alias=alias))
    client.messages()
    for alias in range(1, 11):
        client.publish("", properties=Properties(topic_alias=alias))
    assert [topic for topic, _, _, _ in client.messages()] == [f"t/{alias}" for alias in range(1, 11)]


def test_a_message_that_is_not_forwarded_sets_its_topic_alias() -> None:
    """This message was denied, or is a repetition [MQTT5-3.3.2-12]."""
    broker = MemoryBroker(authorizer=Forbidding("secret"))
    client = broker.client("c", 5)
    client.subscribe("t")
    client.publish("secret", properties=Properties(topic_alias=1))
    client.publish("", properties=Properties(topic_alias=1))
    assert broker.counters.messages_dropped_not_authorized == 2
    client.publish("t", b"1", 2, identifier=9)
    client.send(p.Publish("t", b"1", 2, False, True, 9, Properties(topic_alias=1)))
    client.publish("", b"2", properties=Properties(topic_alias=1))
    assert payloads(client) == [b"1", b"2"]


@pytest.mark.parametrize("topic", ["a/+", "#", "a+"])
def test_a_response_topic_has_no_wildcards(topic: str) -> None:
    """This is true of PUBLISH and Wills [MQTT5-3.3.2-14]."""
    properties = Properties(response_topic=topic)
    client = MemoryBroker().client("c", 5)
    client.publish("t", properties=properties)
    refused(client, ReasonCode.PROTOCOL_ERROR)
    client = MemoryBroker().client("w", 5, will=p.Will("w", b"", properties=properties))
    assert client.connack is not None
    assert client.connack.reason_code == ReasonCode.PROTOCOL_ERROR


@VERSIONS
def test_the_answer_follows_the_qos(version: int) -> None:
    """QoS 1 gets PUBACK, QoS 2 PUBREC [MQTT5-3.3.4-1], [MQTT5-4.3.2-4], [MQTT5-4.3.3-8], [MQTT311-3.3.4-1]."""
    broker = MemoryBroker()
    broker.client("s").subscribe("t")
    client = broker.client("c", version)
    for qos, answers in ((0, []), (1, [p.Puback(5)]), (2, [p.Pubrec(5)])):
        client.publish("t", qos=qos, identifier=5)
        assert client.packets() == answers


@VERSIONS
@pytest.mark.parametrize("filters", [("a/b", "a/+", "#"), ("#", "a/+", "a/b"), ("a/+", "a/b", "#")])
def test_overlapping_subscriptions_give_the_highest_qos(version: int, filters: tuple[str, ...]) -> None:
    """The message comes once, for any order of the subscriptions [MQTT5-3.3.4-2], [MQTT311-3.3.5-1]."""
    client = MemoryBroker().client("c", version)
    for topic_filter, qos in zip(filters, (1, 2, 0), strict=True):
        client.subscribe(topic_filter, qos=qos)
    client.publish("a/b", b"x", qos=2)
    assert client.messages() == [("a/b", b"x", 2, False)]


def test_subscription_identifiers_tell_which_subscriptions_matched() -> None:
    """A live message has all identifiers. A retained message has only that of its subscription.

    [MQTT5-3.3.4-3], [MQTT5-3.3.4-4].
    """
    client = MemoryBroker().client("c", 5)
    for topic_filter, identifier in (("a/b", 268_435_455), ("a/+", 2), ("a/#", None), ("x", 4)):
        client.subscribe(topic_filter, identifier=identifier)
    client.publish("a/b", retain=True)
    assert [sorted(one.properties.subscription_identifiers) for one in client.got(p.Publish)] == [[2, 268_435_455]]
    came = client.subscribe("a/+", identifier=7)
    assert [one.properties.subscription_identifiers for one in came if isinstance(one, p.Publish)] == [(7,)]


def test_a_client_sends_no_subscription_identifiers() -> None:
    """A PUBLISH of a Client with one ends the connection [MQTT5-3.3.4-6]."""
    client = MemoryBroker().client("c", 5)
    client.publish("t", properties=Properties(subscription_identifiers=(1,)))
    refused(client, ReasonCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("qos", [1, 2])
def test_more_than_the_servers_receive_maximum_ends_the_connection(qos: int) -> None:
    """Up to that number, every message is accepted [MQTT5-3.3.4-7]."""
    client = MemoryBroker(DelayedStore, limits=Limits(max_awaiting_rel=3)).client("c", 5)
    assert client.connack is not None
    assert client.connack.properties.receive_maximum == 3
    for number in range(1, 4):  # none of them is acknowledged before it is stored
        client.publish(f"t/{number}", b"x", qos, True)
    assert not client.network.closed
    client.publish("t/4", b"x", qos, True)
    refused(client, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


def test_the_servers_receive_maximum_counts_anew_on_each_connection() -> None:
    """QoS 2 messages of an earlier connection do not count, and can be released [MQTT5-3.3.4-7]."""
    broker = MemoryBroker(limits=Limits(max_awaiting_rel=2))
    for round_ in range(3):
        client = lasting(broker, "c", 5, TERSE)
        for number in (1, 2):
            client.publish("t", qos=2, identifier=2 * round_ + number)
        assert client.got(p.Pubrec) == [p.Pubrec(2 * round_ + number, 0x10) for number in (1, 2)]
        client.drop()
    client = lasting(broker, "c", 5, TERSE)
    client.send(p.Publish("t", b"", 2, False, True, 1), p.Pubrel(1), *map(p.Pubrel, range(2, 7)))
    assert [one.reason_code for one in client.got(p.Pubcomp)] == [0] * 6
    for number in (1, 2):
        client.publish("t", qos=2, identifier=number)
    assert not client.network.closed
    client.publish("t", qos=2, identifier=3)
    refused(client, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


@pytest.mark.parametrize("how", ["live", "queued", "retained"])
def test_no_more_than_the_clients_receive_maximum_is_unacknowledged(how: str) -> None:
    """The next message follows a PUBACK, a PUBCOMP, or a PUBREC with a failure.

    [MQTT5-3.3.4-9], [MQTT5-4.9.0-1], [MQTT5-4.9.0-2].
    """
    broker = MemoryBroker()
    few = Properties(receive_maximum=2)
    client = lasting(broker, "c", 5, few)
    publisher = broker.client("p")
    if how != "retained":
        client.subscribe("t/#", qos=2)
    if how == "queued":
        client.drop()
    for number in range(6):
        publisher.publish(f"t/{number}", qos=2 if number != 1 else 1, retain=how == "retained")
    if how == "queued":
        client = lasting(broker, "c", 5, few)
        came = resent(client)
    else:
        if how == "retained":
            client.send(p.Subscribe(1, (p.SubscriptionRequest("t/#", 2),)))
        came = client.got(p.Publish)
    assert len(came) == 2
    client.send(p.Puback(came[1].packet_identifier))
    assert len(client.got(p.Publish)) == 1
    client.send(p.Pubrec(came[0].packet_identifier))
    assert client.got(p.Publish) == []
    client.send(p.Pubcomp(came[0].packet_identifier))
    (last,) = client.got(p.Publish)
    client.send(p.Pubrec(last.packet_identifier, ReasonCode.UNSPECIFIED_ERROR))
    assert len(client.got(p.Publish)) == 1


def test_a_lower_receive_maximum_limits_repeated_messages() -> None:
    """A Client may reconnect with a smaller window [MQTT5-3.3.4-9], [MQTT5-4.9.0-2]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.subscribe("t", qos=1)
    publisher = broker.client("p")
    for number in range(5):
        publisher.publish("t", b"%d" % number, qos=1)
    client.drop()
    client = lasting(broker, "c", 5, Properties(receive_maximum=2))
    first = resent(client)
    assert [one.payload for one in first] == [b"0", b"1"]
    client.send(*(p.Puback(one.packet_identifier) for one in first))
    assert [one.payload for one in client.got(p.Publish)] == [b"2", b"3"]


def test_an_exhausted_window_delays_only_publish() -> None:
    """The broker still answers and handles packets [MQTT5-3.3.4-10], [MQTT5-4.9.0-3]."""
    broker = MemoryBroker()
    client = broker.client("c", 5, properties=Properties(receive_maximum=1))
    client.subscribe("t", qos=2)
    for _ in range(3):
        client.publish("t", qos=2)
    client.packets()
    client.send(
        p.Pingreq(),
        p.Subscribe(50, (p.SubscriptionRequest("zero"),)),
        p.Publish("zero", b"0"),
        p.Publish("t", b"", 1, packet_identifier=51),
        p.Publish("t", b"", 2, packet_identifier=52),
        p.Pubrel(52),
        p.Unsubscribe(53, ("zero",)),
    )
    kinds = [type(one) for one in client.packets()]
    assert kinds == [p.Pingresp, p.Suback, p.Publish, p.Puback, p.Pubrec, p.Pubcomp, p.Unsuback]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_lower_receive_maximum_delays_no_pubrel(most: int) -> None:
    """A resumed Session repeats all PUBREL packets in order, even if the window for PUBLISH is smaller.

    [MQTT5-3.3.4-10], [MQTT5-4.9.0-3], [MQTT5-4.4.0-1].
    """
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    for _ in range(6):
        publisher.publish("t", qos=2)
    sent = [one.packet_identifier for one in client.got(p.Publish)]
    released = [sent[number] for number in (1, 3, 5)]
    client.send(*map(p.Pubrec, released))
    client.drop()
    client = lasting(broker, "c", 5, Properties(receive_maximum=most))
    assert [one.packet_identifier for one in client.backlog if isinstance(one, p.Pubrel)] == released
    assert len(resent(client)) <= most
    again = len(resent(client))
    client.send(*map(p.Pubcomp, released))
    assert again + len(client.packets()) == most


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_is_not_allowed_is_acknowledged_and_dropped(version: int, qos: int) -> None:
    """MQTT 3 has only positive acknowledgements; MQTT 5 Clients get the Reason Code [MQTT311-3.3.5-2]."""
    broker = MemoryBroker(authorizer=Forbidding("secret"))
    client = broker.client("c", version, properties=TERSE)
    client.subscribe("#")
    client.publish("secret", b"x", qos, True)
    code = ReasonCode.NOT_AUTHORIZED if version == 5 else 0
    assert client.packets() == [[], [p.Puback(2, code)], [p.Pubrec(2, code)]][qos]
    if qos == 2 and version != 5:
        client.send(p.Pubrel(2))
        assert client.packets() == [p.Pubcomp(2)]
    assert broker.retained.totals.refreshed().count == 0


#: the Reason Codes of acknowledgements: PUBACK and PUBREC, PUBREL and PUBCOMP
ACKNOWLEDGED = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
RELEASED = {0x00, 0x92}


def test_acknowledgements_have_reason_codes_of_their_own_table() -> None:
    """Every outcome of a message is tried [MQTT5-3.4.2-1], [MQTT5-3.5.2-1], [MQTT5-3.6.2-1], [MQTT5-3.7.2-1]."""
    broker = MemoryBroker(authorizer=Forbidding("secret"), retainer=RetainerLimits(max_payload_size=10))
    broker.client("s").subscribe("ok")
    client = broker.client("c", 5)
    found: dict[type[object], set[int]] = {}
    for qos in (1, 2):
        client.publish("ok", qos=qos)
        client.publish("nobody", qos=qos)
        client.publish("secret", qos=qos)
        client.publish("ok", b"x" * 11, qos=qos, retain=True)
    client.send(p.Pubrel(5), p.Pubrel(99), p.Pubrec(99))
    for one in client.packets():
        assert isinstance(one, p.Puback | p.Pubrec | p.Pubrel | p.Pubcomp)
        found.setdefault(type(one), set()).add(one.reason_code)
    assert found[p.Puback] == found[p.Pubrec] == {0x00, 0x10, 0x87, 0x97}
    assert found[p.Puback] <= ACKNOWLEDGED
    assert found[p.Pubrel] == {0x92}
    assert found[p.Pubcomp] == RELEASED


def test_acknowledgements_fit_the_clients_maximum_packet_size() -> None:
    """A Reason String that does not fit is left out.

    [MQTT5-3.4.2-2], [MQTT5-3.5.2-2], [MQTT5-3.6.2-2], [MQTT5-3.7.2-2].
    """
    broker = MemoryBroker(authorizer=Forbidding("secret"))
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=20))
    for sent in (
        p.Publish("secret", b"", 1, packet_identifier=1),
        p.Publish("secret", b"", 2, packet_identifier=2),
        p.Pubrec(99),
        p.Pubrel(99),
    ):
        client.send(sent)
        answer = client.network.take()
        assert 5 <= len(answer) <= 20


@VERSIONS
@pytest.mark.parametrize("kind", ["live", "persistent"])
def test_an_empty_message_is_delivered_as_any_other(version: int, kind: str) -> None:
    """A payload of no bytes is a message [MQTT5-3.3.4-1], [MQTT311-3.3.4-1]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=1)
    if kind == "persistent":
        client.drop()
    broker.client("p").publish("t", b"", qos=1)
    if kind == "persistent":
        client = lasting(broker, "c", version)
        assert [one.payload for one in resent(client)] == [b""]
    else:
        assert payloads(client) == [b""]
