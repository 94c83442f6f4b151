"""SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK: sections 3.8 to 3.11 of both standards."""

from __future__ import annotations

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from tests.conformance.expect import (
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
from tests.doubles import MemoryBroker

Request = p.SubscriptionRequest


@VERSIONS
@pytest.mark.parametrize("first", [0x82, 0xA2])
def test_a_request_names_at_least_one_topic_filter(version: int, first: int) -> None:
    """A request without a Topic Filter is a Protocol Error.

    [MQTT5-3.8.3-2], [MQTT5-3.10.3-2], [MQTT311-3.8.3-3], [MQTT311-3.10.3-2].
    """
    client = MemoryBroker().client("c", version)
    client.raw(packet(first, b"\0\1" + block(version)))
    refused(client, ReasonCode.PROTOCOL_ERROR)


def test_no_local_keeps_a_clients_own_messages_from_it() -> None:
    """The Client Identifier counts, also after a reconnection. Messages of other Clients arrive [MQTT5-3.8.3-3]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.subscribe(Request("t", 1, no_local=True))
    other = broker.client("o", 5)
    client.publish("t", b"own", qos=1)
    other.publish("t", b"other", qos=1)
    assert payloads(client) == [b"other"]
    client.drop()
    client = lasting(broker, "c", 5)
    client.publish("t", b"own again", qos=1)
    assert payloads(client) == []


@pytest.mark.parametrize("qos", [0, 1])
def test_no_local_keeps_a_clients_own_retained_messages_from_it(qos: int) -> None:
    """Retained messages are Application Messages, too [MQTT5-3.8.3-3]; another subscription may ask for them."""
    broker = MemoryBroker()
    client = broker.client("c", 5)
    client.publish("t/own", b"own", qos, True)
    broker.client("o", 5).publish("t/other", b"other", qos, True)
    client.packets()
    client.send(p.Subscribe(1, (Request("t/+", qos, no_local=True),)))
    assert payloads(client) == [b"other"]
    client.send(p.Subscribe(2, (Request("t/#", qos),)))
    assert sorted(payloads(client)) == [b"other", b"own"]
    client.publish("t/own", b"live", qos)
    assert payloads(client) == [b"live"]


def test_retain_handling_1_in_a_resumed_session() -> None:
    """A subscription of the resumed Session is not new. An unsubscribed one is new again.

    [MQTT5-3.3.1-10].
    """
    broker = MemoryBroker()
    broker.client("p").publish("t", b"kept", retain=True)
    request = Request("t", 1, retain_handling=1)
    client = lasting(broker, "c", 5)
    client.send(p.Subscribe(1, (request,)))
    assert payloads(client) == [b"kept"]
    client.drop()
    client = lasting(broker, "c", 5)
    client.send(p.Subscribe(2, (request,)))
    assert payloads(client) == []
    client.send(p.Unsubscribe(3, ("t",)), p.Subscribe(4, (request, request)))
    assert payloads(client) == [b"kept"]


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("how", ["live", "queued", "sent again", "shared"])
def test_retain_as_published_is_kept_while_a_message_waits(how: str, asked: bool) -> None:
    """This includes messages that are queued and sent again [MQTT5-3.3.1-12], [MQTT5-3.3.1-13]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    topic_filter = "$share/g/t" if how == "shared" else "t"
    client.subscribe(Request(topic_filter, 1, retain_as_published=asked))
    if how == "queued":
        client.drop()
    publisher = broker.client("p")
    publisher.publish("t", b"1", 1, True)
    publisher.publish("t", b"2", 1, False)
    if how in ("queued", "sent again"):
        client.drop()
        came = resent(lasting(broker, "c", 5))
    else:
        came = client.got(p.Publish)
    assert [(one.payload, one.retain) for one in came] == [(b"1", asked), (b"2", False)]


def test_no_local_on_a_shared_subscription_is_a_protocol_error() -> None:
    """It ends the connection [MQTT5-3.8.3-4]."""
    client = MemoryBroker().client("c", 5)
    client.send(p.Subscribe(1, (Request("$share/g/t", 1, no_local=True),)))
    refused(client, ReasonCode.PROTOCOL_ERROR)


@VERSIONS
def test_reserved_subscription_options_are_malformed(version: int) -> None:
    """Every reserved bit by itself, and QoS 3 [MQTT5-3.8.3-5], [MQTT311-3.8.3-4]."""
    for options in (0x40, 0x80) if version == 5 else (0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 3):
        client = MemoryBroker().client("c", version)
        client.raw(packet(0x82, b"\0\1" + block(version) + string(b"t") + bytes((options,))))
        refused(client, ReasonCode.MALFORMED_PACKET)


@pytest.mark.parametrize("options", [0x03, 0x30])
def test_subscription_options_without_a_meaning_are_a_protocol_error(options: int) -> None:
    """QoS 3 and Retain Handling 3 in MQTT 5 [MQTT5-3.8.3.1]."""
    client = MemoryBroker().client("c", 5)
    client.raw(packet(0x82, b"\0\1\0" + string(b"t") + bytes((options,))))
    refused(client, ReasonCode.PROTOCOL_ERROR)


@VERSIONS
def test_the_same_topic_filter_again_replaces_the_subscription(version: int) -> None:
    """The message comes once, with the new QoS, which may be higher or lower [MQTT5-3.8.4-3], [MQTT311-3.8.4-3]."""
    client = MemoryBroker().client("c", version)
    for qos in (1, 2, 0):
        assert codes(client, Request("t", qos)) == (qos,)
        client.publish("t", b"x", qos=2)
        assert client.messages() == [("t", b"x", qos, False)]
    client.send(p.Unsubscribe(1, ("t",)))
    client.packets()
    client.publish("t")
    assert client.messages() == []


@VERSIONS
def test_replacing_a_subscription_sends_retained_messages_again_and_loses_none(version: int) -> None:
    """A message published at the same moment arrives once [MQTT5-3.8.4-4], [MQTT311-3.8.4-3]."""
    client = MemoryBroker().client("c", version)
    client.publish("t", b"kept", retain=True)
    client.subscribe("t", qos=1)
    numbers = iter(range(100, 200))
    for round_ in (b"1", b"2", b"3"):
        client.send(
            p.Publish("t", b"before " + round_, 1, packet_identifier=next(numbers)),
            p.Subscribe(next(numbers), (Request("t", 1),)),
            p.Publish("t", b"after " + round_, 1, packet_identifier=next(numbers)),
        )
        assert sorted(payloads(client)) == sorted([b"kept", b"before " + round_, b"after " + round_])


@VERSIONS
def test_many_topic_filters_are_separate_requests_with_one_answer(version: int) -> None:
    """Each filter gets its own result, in order. The last request for a filter counts.

    [MQTT5-3.8.4-5], [MQTT5-3.8.4-6], [MQTT5-3.8.4-7], [MQTT5-3.9.3-1], [MQTT311-3.8.4-4], [MQTT311-3.8.4-5],
    [MQTT311-3.9.3-1].
    """
    client = MemoryBroker(authorizer=Forbidding("secret"), limits=Limits(max_topic_levels=2)).client("c", version)
    failed = (0x8F, 0x87) if version == 5 else (0x80, 0x80)
    requests = (
        Request("a", 2),
        Request("b/b/b", 1),
        Request("c", 1),
        Request("secret", 0),
        Request("d"),
        Request("a", 1),
    )
    assert codes(client, *requests) == (2, failed[0], 1, failed[1], 0, 1)
    for topic in "acd":
        client.publish(topic, b"x", qos=2)
    assert [(topic, qos) for topic, _, qos, _ in client.messages()] == [("a", 1), ("c", 1), ("d", 0)]


@pytest.mark.parametrize("version", [3, 4])
def test_suback_of_mqtt_3_has_four_return_codes(version: int) -> None:
    """0, 1, 2, or 0x80 for every refusal [MQTT311-3.9.3-2], [MQTT311-3.8.3-2]."""
    limits = Limits(wildcard_subscription=False, shared_subscription=False, max_topic_levels=3)
    client = MemoryBroker(authorizer=Forbidding("secret"), limits=limits).client("c", version)
    filters = ("a", "b", "c", "a/#", "+", "$share/g/a", "$share/g", "$share/+/a", "secret", "x/x/x/x")
    found = codes(client, *(Request(topic_filter, number % 3) for number, topic_filter in enumerate(filters)))
    assert found == (0, 1, 2, *[0x80] * 7)
    client.publish("a/b")
    assert client.messages() == []


def test_suback_and_unsuback_have_reason_codes_of_their_own_table() -> None:
    """Every outcome of a request is tried [MQTT5-3.9.3-2], [MQTT5-3.11.3-2]."""
    limits = Limits(max_subscriptions=3, max_topic_levels=3)
    client = MemoryBroker(authorizer=Forbidding("secret"), limits=limits).client("c", 5)
    filters = ("a", "b", "c", "secret", "x/x/x/x", "$share/g/x/x/x/x")
    found = codes(client, *(Request(topic_filter, number % 3) for number, topic_filter in enumerate(filters)))
    assert found == (0, 1, 2, 0x97, 0x8F, 0x8F)
    found = codes(client, Request("a"), Request("secret"), Request("d"))
    assert found == (0, 0x97, 0x97)
    client.send(p.Unsubscribe(4, ("b",)))
    assert client.packets() == [p.Unsuback(4, (0x00,))]
    assert codes(client, Request("secret")) == (0x87,)
    assert codes(client, Request("b", 1)) == (1,)
    client.send(p.Unsubscribe(5, ("a", "none", "x/x/x/x")))
    assert client.packets() == [p.Unsuback(5, (0x00, 0x11, 0x11))]


@pytest.mark.parametrize(
    ("limits", "topic_filter", "identifiers", "reason"),
    [
        (Limits(wildcard_subscription=False), "a/#", (), ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (Limits(wildcard_subscription=False), "+", (), ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (Limits(wildcard_subscription=False), "$share/g/+", (), ReasonCode.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED),
        (Limits(shared_subscription=False), "$share/g/a", (), ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED),
        (Limits(subscription_identifiers=False), "a", (1,), ReasonCode.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED),
    ],
)
def test_an_unavailable_feature_is_a_protocol_error(
    limits: Limits, topic_filter: str, identifiers: tuple[int, ...], reason: ReasonCode
) -> None:
    """Nothing of the SUBSCRIBE is granted [MQTT5-3.2.2.3.11], [MQTT5-3.2.2.3.12], [MQTT5-3.2.2.3.13]."""
    broker = MemoryBroker(limits=limits)
    client = lasting(broker, "c", 5)
    assert client.connack is not None
    told = client.connack.properties
    available = (
        told.wildcard_subscription_available,
        told.shared_subscription_available,
        told.subscription_identifier_available,
    )
    assert sorted(map(str, available)) == ["0", "None", "None"]
    properties = Properties(subscription_identifiers=identifiers)
    client.send(p.Subscribe(1, (Request("fine", 1), Request(topic_filter, 1)), properties))
    assert client.got(p.Suback) == []
    assert client.network.closed
    broker.client("p").publish("fine", qos=1)
    assert resent(lasting(broker, "c", 5)) == []


@pytest.mark.parametrize("size", [30, 1000])
def test_suback_and_unsuback_fit_the_clients_maximum_packet_size(size: int) -> None:
    """A Reason String that does not fit is left out [MQTT5-3.9.2-1], [MQTT5-3.11.2-1]."""
    broker = MemoryBroker(authorizer=Forbidding("secret"))
    client = broker.client("c", 5, properties=Properties(maximum_packet_size=size))
    client.send(p.Subscribe(1, (Request("secret"),)))
    assert 6 <= len(client.network.take()) <= size
    client.send(p.Unsubscribe(2, ("none",)))
    assert 6 <= len(client.network.take()) <= size


@VERSIONS
def test_unsubscribing_removes_exactly_the_named_topic_filter(version: int) -> None:
    """Filters are compared character by character, and not matched [MQTT5-3.10.4-1], [MQTT311-3.10.4-1]."""
    client = MemoryBroker().client("c", version)
    client.subscribe("a/b", "a/+")
    client.send(p.Unsubscribe(1, ("#", "a/#", "+/+", "A/b", "a/b/", "a/c")))
    client.packets()
    client.publish("a/b", b"1")
    assert payloads(client) == [b"1"]
    client.send(p.Unsubscribe(2, ("a/+",)))
    client.packets()
    client.publish("a/c", b"2")
    client.publish("a/b", b"3")
    assert payloads(client) == [b"3"]
    client.send(p.Unsubscribe(3, ("a/b",)))
    client.packets()
    client.publish("a/b", b"4")
    assert payloads(client) == []


@VERSIONS
def test_nothing_new_is_added_after_unsubscribing(version: int) -> None:
    """No message is kept for the Client while it is away, either [MQTT5-3.10.4-2], [MQTT311-3.10.4-2]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=2)
    client.send(p.Unsubscribe(5, ("t",)), p.Publish("t", b"", 2, packet_identifier=6))
    assert client.got(p.Publish) == []
    client.drop()
    broker.client("p").publish("t", qos=1)
    assert resent(lasting(broker, "c", version)) == []


@VERSIONS
def test_deliveries_that_have_begun_are_completed_after_unsubscribing(version: int) -> None:
    """This is true of QoS 1 and 2, also after a reconnection [MQTT5-3.10.4-3], [MQTT311-3.10.4-3]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    publisher.publish("t", b"1", qos=1)
    publisher.publish("t", b"2", qos=2)
    one, two = client.got(p.Publish)
    client.send(p.Unsubscribe(5, ("t",)))
    client.drop()
    client = lasting(broker, "c", version)
    assert [again.payload for again in resent(client)] == [b"1", b"2"]
    client.send(p.Puback(one.packet_identifier), p.Pubrec(two.packet_identifier))
    assert client.packets() == [p.Pubrel(two.packet_identifier)]
    client.send(p.Pubcomp(two.packet_identifier))
    client.drop()
    assert resent(lasting(broker, "c", version)) == []


@VERSIONS
def test_many_topic_filters_are_unsubscribed_with_one_answer(version: int) -> None:
    """The Reason Codes have the order of the filters [MQTT5-3.10.4-6], [MQTT5-3.11.3-1], [MQTT311-3.10.4-6]."""
    client = MemoryBroker().client("c", version)
    client.subscribe("a", "b", "c")
    client.send(p.Unsubscribe(9, ("a", "none", "c", "a")))
    expected = (0x00, 0x11, 0x00, 0x11) if version == 5 else ()
    assert client.packets() == [p.Unsuback(9, expected)]
    for topic in "abc":
        client.publish(topic, topic.encode())
    assert payloads(client) == [b"b"]


@VERSIONS
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_answer_shows_the_qos_granted(version: int, granted: int) -> None:
    """It is the requested QoS, up to the broker's maximum.

    [MQTT5-3.8.4-7], [MQTT5-3.8.4-8], [MQTT311-3.8.4-5], [MQTT311-3.8.4-6].
    """
    client = MemoryBroker(limits=Limits(max_qos_allowed=granted)).client("c", version)
    assert codes(client, Request("t", 2)) == (granted,)
    client.raw(encode(p.Publish("t", b"x", granted, packet_identifier=3), version))
    assert client.messages() == [("t", b"x", granted, False)]
