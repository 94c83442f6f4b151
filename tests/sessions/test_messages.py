"""QoS 0, 1 and 2 both ways, persistent Sessions, subscription options, shared subscriptions."""

from __future__ import annotations

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker

SESSION = Properties(session_expiry_interval=1000)
TERSE = Properties(request_problem_information=0)  #: no Reason Strings


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("sent", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_arrives_with_the_lesser_qos(broker: MemoryBroker, version: int, sent: int, granted: int) -> None:
    """QoS of delivery = min(publish, subscription) [MQTT5-3.8.4-8]; each exchange completes."""
    client = broker.client("s", version)
    client.subscribe("t", qos=granted)
    publisher = broker.client("p", version)
    publisher.publish("t", b"hello", qos=sent)
    answers = publisher.packets()
    if sent == 1:
        assert answers == [p.Puback(1)]
    elif sent == 2:
        assert answers == [p.Pubrec(1)]
        publisher.send(p.Pubrel(1))
        assert publisher.packets() == [p.Pubcomp(1)]
    assert client.messages() == [("t", b"hello", min(sent, granted), False)]
    assert broker.registry._sessions["s"].inflight.count == 0


def test_a_repeated_qos_2_publish_is_not_delivered_again(broker: MemoryBroker) -> None:
    """Exactly once: the second PUBLISH with the same Packet Identifier is only acknowledged [MQTT5-4.3.3-10]."""
    client = broker.client("s")
    client.subscribe("t", qos=2)
    publisher = broker.client("p", clean=False)
    publisher.publish("t", b"once", qos=2, identifier=5)
    publisher.drop()
    publisher = broker.client("p", clean=False)
    assert publisher.connack is not None
    assert publisher.connack.session_present
    publisher.send(p.Publish("t", b"once", 2, False, True, 5))
    assert publisher.packets() == [p.Pubrec(5)]
    publisher.send(p.Pubrel(5))
    publisher.send(p.Pubrel(5))
    assert publisher.packets() == [p.Pubcomp(5), p.Pubcomp(5)]
    assert client.messages() == [("t", b"once", 2, False)]


def test_an_unknown_pubrel_gets_a_reason_code_in_mqtt_5() -> None:
    """PUBCOMP 0x92, Packet Identifier not found."""
    client = MemoryBroker().client("c", 5, properties=TERSE)
    client.send(p.Pubrel(9))
    assert client.packets() == [p.Pubcomp(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


def test_the_window_holds_and_the_queue_keeps_order() -> None:
    """No more than max_inflight messages are unacknowledged. The others follow in order [MQTT5-4.9.0-1]."""
    broker = MemoryBroker(limits=Limits(max_inflight=3))
    client = broker.client("s")
    client.subscribe("t", qos=1)
    publisher = broker.client("p")
    for number in range(10):
        publisher.publish("t", b"%d" % number, qos=number % 2 + 1)
    first = client.got(p.Publish)
    assert [packet.payload for packet in first] == [b"0", b"1", b"2"]
    client.send(*(p.Puback(packet.packet_identifier) for packet in first))
    assert [payload for _, payload, _, _ in client.messages()] == [b"%d" % n for n in range(3, 10)]


def test_the_clients_receive_maximum_is_kept(broker: MemoryBroker, publisher: Client) -> None:
    """Receive Maximum of CONNECT [MQTT5-3.3.4-9]."""
    client = broker.client("s", 5, properties=Properties(receive_maximum=2))
    client.subscribe("t", qos=2)
    for _ in range(5):
        publisher.publish("t", qos=2)
    assert len(client.got(p.Publish)) == 2


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_resumed_session_gets_the_missed_messages(broker: MemoryBroker, publisher: Client, version: int) -> None:
    """Messages in flight come first, with DUP, then queued messages, in order [MQTT5-4.4.0-1]."""
    properties = SESSION if version == 5 else Properties()
    client = broker.client("s", version, clean=False, properties=properties)
    client.subscribe("t", qos=2)
    publisher.publish("t", b"1", qos=1)
    publisher.publish("t", b"2", qos=2)
    publisher.publish("t", b"3", qos=2)
    _first, second, _third = client.got(p.Publish)
    client.send(p.Pubrec(second.packet_identifier))
    client.drop()
    publisher.publish("t", b"4", qos=1)
    publisher.publish("t", b"lost", qos=0)
    client = broker.client("s", version, clean=False, properties=properties)
    assert client.connack is not None
    assert client.connack.session_present is (version != 3)
    shown = [(type(k).__name__, getattr(k, "payload", b""), getattr(k, "dup", False)) for k in client.backlog]
    assert shown == [
        ("Publish", b"1", True),
        ("Pubrel", b"", False),
        ("Publish", b"3", True),
        ("Publish", b"4", False),
    ]


def test_a_session_resumed_in_another_version_keeps_its_messages(broker: MemoryBroker) -> None:
    """Messages in flight are encoded again when the Client comes back with MQTT 5."""
    client = broker.client("s", 4, clean=False)
    client.subscribe("t", qos=1)
    broker.client("p", 5).publish("t", b"1", qos=1, properties=Properties(message_expiry_interval=100))
    client.drop()
    broker.advance(40)
    client = broker.client("s", 5, clean=False)
    (publish,) = client.backlog
    assert isinstance(publish, p.Publish)
    assert (publish.payload, publish.dup, publish.properties.message_expiry_interval) == (b"1", True, 60)


def test_a_clean_start_discards_the_session(broker: MemoryBroker) -> None:
    """Clean Start ends the old Session [MQTT5-3.1.2-4]."""
    client = broker.client("s", clean=False)
    client.subscribe("t", qos=1)
    client.drop()
    client = broker.client("s", clean=True)
    assert client.connack is not None
    assert not client.connack.session_present
    broker.client("p").publish("t", qos=1)
    assert client.messages() == []


def test_a_session_expires() -> None:
    """mqtt.session_expiry_interval for MQTT 3, the Client's own (capped) for MQTT 5."""
    broker = MemoryBroker(limits=Limits(session_expiry_interval=60))
    broker.client("old", 4, clean=False).drop()
    broker.client("new", 5, properties=Properties(session_expiry_interval=10)).drop()
    capped = broker.client("capped", 5, properties=Properties(session_expiry_interval=0xFFFFFFFF))
    assert capped.connack is not None
    assert capped.connack.properties.session_expiry_interval == 60
    capped.drop()
    broker.advance(11)
    assert broker.registry.session_count == 2
    broker.advance(50)
    assert broker.registry.session_count == 0


def test_the_offline_queue_is_bounded_and_counted() -> None:
    """mqtt.max_mqueue_len: the oldest message is dropped first, and counted."""
    broker = MemoryBroker(limits=Limits(max_mqueue_len=3))
    client = broker.client("s", clean=False)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = broker.client("p")
    for number in range(5):
        publisher.publish("t", b"%d" % number, qos=1)
    assert broker.counters.messages_dropped_queue_full == 2
    client = broker.client("s", clean=False)
    assert [packet.payload for packet in client.backlog if isinstance(packet, p.Publish)] == [b"2", b"3", b"4"]


def test_expired_messages_are_not_delivered_from_the_queue(broker: MemoryBroker) -> None:
    """An expired message is dropped; for others the interval counts down [MQTT5-3.3.2-5], [MQTT5-3.3.2-6]."""
    client = broker.client("s", 5, clean=False, properties=SESSION)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = broker.client("p", 5)
    publisher.publish("t", b"short", qos=1, properties=Properties(message_expiry_interval=10))
    publisher.publish("t", b"long", qos=1, properties=Properties(message_expiry_interval=100))
    broker.advance(30)
    client = broker.client("s", 5, clean=False, properties=SESSION)
    (publish,) = client.backlog
    assert isinstance(publish, p.Publish)
    assert (publish.payload, publish.properties.message_expiry_interval) == (b"long", 70)
    assert broker.counters.messages_dropped_expired == 1


def test_overlapping_subscriptions_give_one_copy(broker: MemoryBroker) -> None:
    """One merged copy: the highest QoS and every Subscription Identifier [MQTT5-3.3.4-2], [MQTT5-3.3.4-4]."""
    client = broker.client("s", 5)
    client.subscribe("a/+", qos=0, identifier=1)
    client.subscribe("a/#", qos=1, identifier=2)
    client.subscribe("a/b", qos=0)
    broker.client("p").publish("a/b", qos=1)
    (publish,) = client.got(p.Publish)
    assert publish.qos == 1
    assert sorted(publish.properties.subscription_identifiers) == [1, 2]


def test_properties_are_forwarded_in_order(broker: MemoryBroker) -> None:
    """User Properties and other properties are forwarded unchanged [MQTT5-3.3.2-17]."""
    client = broker.client("s", 5)
    client.subscribe("t")
    sent = Properties(
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"\0\1",
        payload_format_indicator=1,
        user_properties=(("b", "2"), ("a", "1"), ("b", "3")),
    )
    broker.client("p", 5).publish("t", properties=sent)
    assert client.got(p.Publish)[0].properties == sent


def test_topic_aliases(broker: MemoryBroker) -> None:
    """A Topic Alias stands for its Topic Name afterwards; an unknown one is an error [MQTT5-3.3.2-12]."""
    client = broker.client("s")
    client.subscribe("#")
    publisher = broker.client("p", 5)
    publisher.publish("long/topic", b"1", properties=Properties(topic_alias=3))
    publisher.publish("", b"2", properties=Properties(topic_alias=3))
    assert client.messages() == [("long/topic", b"1", 0, False), ("long/topic", b"2", 0, False)]
    publisher.publish("", b"3", properties=Properties(topic_alias=4))
    assert publisher.got(p.Disconnect)[0].reason_code == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("version", [4, 5])
def test_no_local(broker: MemoryBroker, version: int) -> None:
    """No Local keeps a Client's own messages from it [MQTT5-3.8.3-3]; MQTT 3 has no such option."""
    client = broker.client("s", version)
    client.subscribe(p.SubscriptionRequest("t", 0, no_local=True))
    client.publish("t", b"own")
    broker.client("p").publish("t", b"other")
    expected = [b"other"] if version == 5 else [b"own", b"other"]
    assert [payload for _, payload, _, _ in client.messages()] == expected


def test_retain_as_published(broker: MemoryBroker) -> None:
    """Live messages keep RETAIN only with Retain As Published [MQTT5-3.3.1-12], [MQTT5-3.3.1-13]."""
    plain, keeping = broker.client("a", 5), broker.client("b", 5)
    plain.subscribe("t")
    keeping.subscribe(p.SubscriptionRequest("t", 0, retain_as_published=True))
    bridge = broker.client("bridge", 4, bridge=True)
    bridge.subscribe("t")
    broker.client("p").publish("t", b"x", retain=True)
    assert plain.messages() == [("t", b"x", 0, False)]
    assert keeping.messages() == [("t", b"x", 0, True)]
    assert bridge.messages() == [("t", b"x", 0, True)]


def test_shared_subscriptions_serve_members_in_turn(broker: MemoryBroker, publisher: Client) -> None:
    """One member gets each message. A member that is away gets one only if all are away [MQTT5-4.8.2]."""
    members = [broker.client(name, 5) for name in "abc"]
    for member in members:
        member.subscribe("$share/g/t/+", qos=1)
    for number in range(6):
        publisher.publish("t/x", b"%d" % number, qos=1)
    counts = [len(member.messages()) for member in members]
    assert counts == [2, 2, 2]
    members[0].send(p.Unsubscribe(9, ("$share/g/t/+",)))
    assert members[0].packets() == [p.Unsuback(9, (0,))]
    members[1].drop()
    publisher.publish("t/x", b"last", qos=1)
    assert members[2].messages() == [("t/x", b"last", 1, False)]


def test_refused_filters_get_their_reason() -> None:
    """0x8F and 0x97 in MQTT 5; 0x80 in MQTT 3.1.1."""
    limits = Limits(max_topic_levels=2, max_subscriptions=1)
    broker = MemoryBroker(limits=limits)
    filters = ("a/b/#", "$share/g/a/b/c", "ok", "more")
    (suback,) = broker.client("c", 5).subscribe(*filters)
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0x8F, 0x8F, 0, 0x97)
    (suback,) = broker.client("d", 4).subscribe(*filters)
    assert isinstance(suback, p.Suback)
    assert suback.reason_codes == (0x80, 0x80, 0, 0x80)


def test_unsubscribe_reports_filters_without_a_subscription(broker: MemoryBroker) -> None:
    """UNSUBACK 0x11; nothing is delivered afterwards [MQTT5-3.10.4-1]."""
    client = broker.client("c", 5)
    client.subscribe("t")
    client.send(p.Unsubscribe(5, ("t", "u")))
    assert client.packets() == [p.Unsuback(5, (0, ReasonCode.NO_SUBSCRIPTION_EXISTED))]
    broker.client("p").publish("t")
    assert client.messages() == []


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (p.Publish("t", b"", 2, packet_identifier=1), ReasonCode.QOS_NOT_SUPPORTED),
        (p.Publish("t", b"", 0, True), ReasonCode.RETAIN_NOT_SUPPORTED),
        (p.Publish("a/" * 200, b""), ReasonCode.TOPIC_NAME_INVALID),
        (p.Publish("t", b"", properties=Properties(topic_alias=9)), ReasonCode.TOPIC_ALIAS_INVALID),
        (p.Publish("t", b"", properties=Properties(subscription_identifiers=(1,))), ReasonCode.PROTOCOL_ERROR),
    ],
)
def test_a_publish_beyond_the_limits_ends_with_its_reason(packet: p.Publish, reason: ReasonCode) -> None:
    """DISCONNECT carries the Reason Code."""
    limits = Limits(max_qos_allowed=1, retain_available=False, max_topic_alias=5)
    client = MemoryBroker(limits=limits).client("c", 5)
    client.send(packet)
    assert client.got(p.Disconnect)[0].reason_code == reason
    assert client.network.closed


def test_more_unacknowledged_than_allowed_ends_with_its_reason() -> None:
    """Receive Maximum exceeded, 0x93 [MQTT5-3.3.4-7]."""
    client = MemoryBroker(limits=Limits(max_awaiting_rel=2)).client("c", 5)
    for number in (1, 2, 3):
        client.send(p.Publish("t", b"", 2, packet_identifier=number))
    assert client.got(p.Disconnect)[0].reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_a_message_above_the_clients_maximum_packet_size_is_dropped(broker: MemoryBroker, publisher: Client) -> None:
    """It is dropped for that Client only, and counted, also in a replay [MQTT5-3.1.2-25]."""
    small = broker.client("small", 5, properties=Properties(maximum_packet_size=100))
    small.subscribe("#", qos=1)
    publisher.publish("t", b"x" * 200, qos=1, retain=True)
    publisher.publish("t", b"y", qos=1)
    assert small.messages() == [("t", b"y", 1, False)]
    small.subscribe("#", qos=1)
    assert small.messages() == []
    assert broker.counters.messages_dropped_too_large == 2  # the live message, and its replay


def test_a_message_without_subscribers_gets_a_reason_code_in_mqtt_5() -> None:
    """PUBACK and PUBREC 0x10, No matching subscribers."""
    client = MemoryBroker().client("c", 5)
    client.publish("t", qos=1)
    client.publish("t", qos=2)
    assert client.packets() == [p.Puback(1, 0x10), p.Pubrec(2, 0x10)]


def test_a_refused_qos_2_message_ends_the_exchange() -> None:
    """PUBREC >= 0x80 from the Client frees the window [MQTT5-4.4.0-2]."""
    broker = MemoryBroker(limits=Limits(max_inflight=1))
    client = broker.client("c", 5)
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    publisher.publish("t", b"1", qos=2)
    publisher.publish("t", b"2", qos=2)
    (first,) = client.got(p.Publish)
    client.send(p.Pubrec(first.packet_identifier, ReasonCode.QUOTA_EXCEEDED))
    (second,) = client.got(p.Publish)
    assert second.payload == b"2"


def test_an_unknown_pubrec_is_answered(broker: MemoryBroker) -> None:
    """PUBREL 0x92 in MQTT 5, a plain PUBREL in MQTT 3."""
    new, old = broker.client("n", 5, properties=TERSE), broker.client("o", 4)
    for client in (new, old):
        client.send(p.Pubrec(77))
    assert new.packets() == [p.Pubrel(77, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    assert old.packets() == [p.Pubrel(77)]
