"""Packets with too many User Properties, or properties of too many bytes."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode
from holdfast.wire import packets as p
from holdfast.wire.datatypes import Cursor
from tests.conformance.expect import lasting, packet, refused, string
from tests.doubles import MemoryBroker

QUOTA = ReasonCode.QUOTA_EXCEEDED
PAIR = (("k", "v"),)
#: just within and just beyond each limit
WITHIN = [Properties(user_properties=PAIR * 64), Properties(user_properties=(("k", "v" * 996),))]
BEYOND = [Properties(user_properties=PAIR * 65), Properties(user_properties=(("k", "v" * 997),))]
IDS = ["number", "bytes"]
both = pytest.mark.parametrize(("within", "beyond"), list(zip(WITHIN, BEYOND, strict=True)), ids=IDS)


@pytest.fixture
def broker() -> MemoryBroker:
    """Return a broker that allows 64 User Properties and 1002 bytes of properties."""
    return MemoryBroker(limits=Limits(max_user_properties=64, max_properties_bytes=1002))


@both
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_is_refused_in_its_acknowledgement(
    broker: MemoryBroker, within: Properties, beyond: Properties, qos: int
) -> None:
    """The connection stays. The message is neither delivered nor retained, and is counted."""
    reader, client = broker.client("r", 5), broker.client("c", 5)
    reader.subscribe("#")
    client.publish("a", b"1", qos, True, beyond, identifier=1)
    (answer,) = client.packets()
    assert isinstance(answer, p.Puback if qos == 1 else p.Pubrec)
    assert (answer.packet_identifier, answer.reason_code) == (1, QUOTA)
    assert answer.properties.reason_string
    assert broker.counters.messages_rejected_properties == 1
    assert broker.retained.totals.refreshed().count == 0
    client.publish("a", b"2", qos, True, within, identifier=1)
    assert client.packets() == [p.Puback(1) if qos == 1 else p.Pubrec(1)]
    assert [payload for _, payload, _, _ in reader.messages()] == [b"2"]
    assert broker.retained.totals.refreshed().count == 1


@both
def test_packets_without_a_code_in_their_answer_end_the_connection(
    broker: MemoryBroker, within: Properties, beyond: Properties
) -> None:
    """PUBLISH with QoS 0, UNSUBSCRIBE, whose UNSUBACK has no such code, acknowledgements and DISCONNECT."""

    def packets(properties: Properties) -> list[p.Packet]:
        return [
            p.Publish("t", b"x", properties=properties),
            p.Unsubscribe(1, ("t",), properties),
            p.Puback(1, 0x10, properties),
            p.Pubrec(1, 0x80, properties),
            p.Pubrel(1, 0x92, properties),
            p.Pubcomp(1, 0x92, properties),
            p.Disconnect(0x04, properties),
        ]

    for allowed, excessive in zip(packets(within), packets(beyond), strict=True):
        client = broker.client("c", 5)
        client.send(allowed)
        assert client.got(p.Disconnect) == []
        client = broker.client("c", 5)
        client.send(excessive)
        refused(client, QUOTA)


@both
def test_a_subscribe_is_refused_for_each_topic_filter(
    broker: MemoryBroker, within: Properties, beyond: Properties
) -> None:
    """SUBACK has one code for each; the connection stays."""
    client = broker.client("c", 5)
    requests = (p.SubscriptionRequest("a"), p.SubscriptionRequest("b/#", 1))
    client.send(p.Subscribe(1, requests, beyond), p.Subscribe(2, requests, within))
    first, second = client.got(p.Suback)
    assert (first.packet_identifier, first.reason_codes) == (1, (QUOTA, QUOTA))
    assert second == p.Suback(2, (0, 1))


@both
def test_connect_and_its_will_are_refused_in_connack(
    broker: MemoryBroker, within: Properties, beyond: Properties
) -> None:
    """The Will Message has limits of its own: those of any PUBLISH."""
    for allowed, excessive in (
        ({"properties": within}, {"properties": beyond}),
        ({"will": p.Will("w", b"", properties=within)}, {"will": p.Will("w", b"", properties=beyond)}),
    ):
        cases: list[tuple[dict[str, Any], ReasonCode]] = [(allowed, ReasonCode.SUCCESS), (excessive, QUOTA)]
        for arguments, code in cases:
            client = broker.client("c", 5, **arguments)
            assert client.connack is not None
            assert client.connack.reason_code == code
            assert client.network.closed == (code is QUOTA)


def test_authentication_data_does_not_count(broker: MemoryBroker) -> None:
    """It is of CONNECT and AUTH only, and has the limit of its type. What is beside it counts."""
    for pair, code in ((WITHIN[1], ReasonCode.BAD_AUTHENTICATION_METHOD), (BEYOND[1], QUOTA)):
        method = Properties(
            authentication_method="m",
            authentication_data=b"d" * 60_000,
            user_properties=((pair.user_properties[0][0], pair.user_properties[0][1][4:]),),
        )
        client = broker.client("c", 5, properties=method)
        assert client.connack is not None
        assert client.connack.reason_code == code


def test_a_refused_publish_sets_its_topic_alias(broker: MemoryBroker) -> None:
    """Otherwise a later message with the alias went to the topic that it named before."""
    reader, client = broker.client("r", 5), broker.client("c", 5)
    reader.subscribe("#")
    client.publish("old", b"1", 1, properties=Properties(topic_alias=7))
    client.publish("new", b"2", 1, properties=Properties(topic_alias=7, user_properties=PAIR * 65))
    client.publish("", b"3", 1, properties=Properties(topic_alias=7))
    client.publish("", b"4", 1, properties=Properties(topic_alias=7, user_properties=PAIR * 65))
    assert [answer.reason_code for answer in client.got(p.Puback)] == [0, QUOTA, 0, QUOTA]
    assert [(topic, payload) for topic, payload, _, _ in reader.messages()] == [("old", b"1"), ("new", b"3")]


def test_a_refused_publish_with_very_many_properties_ends_all_topic_aliases(broker: MemoryBroker) -> None:
    """Any of them may have been set in the part that is not looked at: no message goes to a wrong topic."""
    client = broker.client("c", 5)
    client.publish("old", b"1", 1, properties=Properties(topic_alias=7))
    client.publish("new", b"2", 1, properties=Properties(user_properties=(("", ""),) * 5000))
    assert [answer.reason_code for answer in client.got(p.Puback)] == [0x10, QUOTA]
    client.publish("", b"3", 1, properties=Properties(topic_alias=7))
    refused(client, ReasonCode.PROTOCOL_ERROR)


def test_a_repeated_qos_2_publish_is_answered_as_before() -> None:
    """It was accepted before the limits changed: its message is not refused after it was delivered."""
    broker = MemoryBroker()
    client = lasting(broker, "c", 5)
    client.publish("t", b"x", 2, properties=WITHIN[0], identifier=9)
    client.drop()
    broker.limits = Limits(max_user_properties=1)
    client = lasting(broker, "c", 5)
    client.publish("t", b"x", 2, properties=WITHIN[0], identifier=9)
    assert client.packets() == [p.Pubrec(9)]


def test_a_refused_publish_counts_against_the_receive_maximum() -> None:
    """A PUBLISH is one, whatever becomes of it [MQTT5-3.3.4-9]."""
    broker = MemoryBroker(limits=Limits(max_awaiting_rel=1, max_user_properties=1))
    client = broker.client("c", 5)
    client.publish("t", b"x", 2, identifier=1)
    client.publish("t", b"x", 2, properties=WITHIN[0], identifier=2)
    refused(client, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)


def test_no_more_properties_are_decoded_than_the_limits_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of them costs 64 steps if their number is the limit, and none if it is their size."""
    read: list[int] = []
    string_of = Cursor.string

    def counting(cursor: Cursor) -> str:
        read.append(1)
        return string_of(cursor)

    monkeypatch.setattr(Cursor, "string", counting)
    data = encode(p.Publish("t", b"", 1, False, False, 1, Properties(user_properties=(("", ""),) * 190_000)), 5)
    for limits, strings in ((Limits(max_properties_bytes=1 << 20), 128), (Limits(), 0)):
        client = MemoryBroker(limits=limits).client("c", 5)
        read.clear()
        client.connection.receive(data)
        assert len(read) == strings
        assert client.got(p.Puback)[0].reason_code == QUOTA


def test_subscription_identifiers_of_a_client_are_refused_at_the_first(broker: MemoryBroker) -> None:
    """They are a Protocol Error in its PUBLISH [MQTT5-3.3.4-6], however many follow: the next one is not even read."""
    client = broker.client("c", 5)
    block = b"\x0b\x01\x0b\xff\xff\xff\xff"
    client.raw(packet(0x30, string(b"t") + bytes((len(block),)) + block))
    refused(client, ReasonCode.PROTOCOL_ERROR)


def test_stored_messages_with_more_properties_are_still_delivered() -> None:
    """The limits are for packets that come in."""
    broker = MemoryBroker(limits=Limits(max_user_properties=1000))
    broker.client("p", 5).publish("t", b"x", retain=True, properties=Properties(user_properties=PAIR * 1000))
    broker.limits = Limits()
    client = broker.client("c", 5)
    _, publish = client.subscribe("t", qos=1)
    assert isinstance(publish, p.Publish)
    assert publish.properties.user_properties == PAIR * 1000
