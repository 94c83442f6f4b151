"""Data representation and packet format: sections 1.5 and 2 of MQTT 5.0, 1.4 and 2 of MQTT 3.1.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.sessions.limits import Limits
from holdfast.wire import Properties, ReasonCode, encode, encode_variable_byte_integer
from holdfast.wire import packets as p
from tests.conformance.expect import (
    VERSIONS,
    Forbidding,
    block,
    connect,
    lasting,
    packet,
    payloads,
    refused,
    resent,
    string,
)
from tests.doubles import Client, MemoryBroker


def _publish_with(identifier: int) -> Callable[[int, bytes], bytes]:
    """Return a PUBLISH that carries the string in a property (an MQTT 5 one)."""
    return lambda _version, text: packet(0x30, string(b"t") + string_block(bytes((identifier,)) + string(text)))


def string_block(content: bytes) -> bytes:
    return bytes((len(content),)) + content


Place = Callable[[int, bytes], bytes]
IN_CONNECT: dict[str, Place] = {
    "client identifier": lambda v, text: connect(v, payload=string(text)),
    "will topic": lambda v, text: connect(v, 6, string(b"c") + block(v) + string(text) + string(b"")),
    "user name": lambda v, text: connect(v, 0x82, string(b"c") + string(text)),
}
AFTERWARDS: dict[str, Place] = {
    "topic name": lambda v, text: packet(0x30, string(text) + block(v)),
    "topic filter": lambda v, text: packet(0x82, b"\0\1" + block(v) + string(text) + b"\0"),
    "topic filter to unsubscribe": lambda v, text: packet(0xA2, b"\0\1" + block(v) + string(text)),
}
IN_CONNECT_5: dict[str, Place] = {
    "user property of connect": lambda _, text: _with_properties(1, b"\x26" + string(b"name") + string(text)),
    "content type of the will": lambda _, text: _with_properties(0, b"\x03" + string(text)),
    "response topic of the will": lambda _, text: _with_properties(0, b"\x08" + string(text)),
    "user property of the will": lambda _, text: _with_properties(0, b"\x26" + string(text) + string(b"value")),
}
IN_PROPERTIES: dict[str, Place] = {
    "user property of subscribe": lambda _, text: _with_properties(8, b"\x26" + string(text) + string(text)),
    "user property of unsubscribe": lambda _, text: _with_properties(10, b"\x26" + string(text) + string(text)),
    "reason string of puback": lambda _, text: _with_properties(4, b"\x1f" + string(text)),
    "reason string of pubrec": lambda _, text: _with_properties(5, b"\x1f" + string(text)),
    "reason string of pubrel": lambda _, text: _with_properties(6, b"\x1f" + string(text)),
    "reason string of pubcomp": lambda _, text: _with_properties(7, b"\x1f" + string(text)),
    "response topic": _publish_with(0x08),
    "content type": _publish_with(0x03),
    "user property name": lambda _, text: packet(
        0x30, string(b"t") + string_block(b"\x26" + string(text) + string(b"value"))
    ),
    "user property value": lambda _, text: packet(
        0x30, string(b"t") + string_block(b"\x26" + string(b"name") + string(text))
    ),
}


def _everywhere() -> list[pytest.param]:  # type: ignore[valid-type]
    found = []
    for version in (3, 4, 5):
        firsts = IN_CONNECT | (IN_CONNECT_5 if version == 5 else {})
        places = firsts | AFTERWARDS | (IN_PROPERTIES if version == 5 else {})
        found += [
            pytest.param(version, place in firsts, make, id=f"{version} {place}") for place, make in places.items()
        ]
    return found


EVERYWHERE = pytest.mark.parametrize(("version", "first", "make"), _everywhere())


def _send(version: int, first: bool, data: bytes) -> Client:
    broker = MemoryBroker()
    client = Client(broker, version) if first else broker.client("c", version)
    client.raw(data)
    return client


@EVERYWHERE
@pytest.mark.parametrize(
    "text", [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc1\x81", b"a\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"]
)
def test_strings_that_are_not_utf_8_end_the_connection(version: int, first: bool, make: Place, text: bytes) -> None:
    """This is true of every field. A surrogate is no character.

    [MQTT5-1.5.4-1], [MQTT5-1.5.7-1], [MQTT5-3.1.3-4], [MQTT5-3.1.3-11], [MQTT5-3.1.3-12], [MQTT5-3.3.2-1],
    [MQTT5-3.3.2-13], [MQTT5-3.3.2-19], [MQTT5-3.8.3-1], [MQTT5-3.10.3-1], [MQTT311-1.4.0-1], [MQTT311-3.1.3-4],
    [MQTT311-3.1.3-10], [MQTT311-3.1.3-11], [MQTT311-3.3.2-1], [MQTT311-3.8.3-1], [MQTT311-3.10.3-1].
    """
    assert not _send(version, first, make(version, b"fine")).network.closed
    refused(_send(version, first, make(version, text)), ReasonCode.MALFORMED_PACKET)


@EVERYWHERE
def test_strings_with_the_null_character_end_the_connection(version: int, first: bool, make: Place) -> None:
    """This is true of every field [MQTT5-1.5.4-2], [MQTT5-4.7.3-2], [MQTT311-1.4.0-2], [MQTT311-4.7.3-2]."""
    refused(_send(version, first, make(version, b"a\0b")), ReasonCode.MALFORMED_PACKET)


@VERSIONS
def test_a_byte_order_mark_is_a_character(version: int) -> None:
    """EF BB BF stays part of a Topic Name [MQTT5-1.5.4-3], [MQTT311-1.4.0-3]."""
    broker = MemoryBroker()
    client = broker.client("c", version)
    client.subscribe("\ufefft")
    client.publish("t", b"without")
    client.publish("\ufefft", b"with")
    assert client.messages() == [("\ufefft", b"with", 0, False)]


@pytest.mark.parametrize(
    ("size", "length"), [(127, 1), (128, 2), (16_383, 2), (16_384, 3), (2_097_151, 3), (2_097_152, 4)]
)
def test_lengths_are_sent_in_the_fewest_bytes(size: int, length: int) -> None:
    """Forwarded messages with a length at every boundary [MQTT5-1.5.5-1]."""
    broker = MemoryBroker(limits=Limits(max_packet_size=1 << 22))
    client = broker.client("c", 5)
    client.subscribe("t")
    client.publish("t", b"x" * (size - 4))  # topic and an empty property block make up the rest
    sent = client.network.take()[-(1 + length + size) :]
    assert sent[:1] == b"\x30"
    assert sent[1 : 1 + length] == encode_variable_byte_integer(size)


@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384, 65_540])
def test_property_lengths_are_sent_in_the_fewest_bytes(size: int) -> None:
    """Live and retained messages with a length at every boundary [MQTT5-1.5.5-1]."""
    client = MemoryBroker(limits=Limits(max_properties_bytes=1 << 20)).client("c", 5)
    client.subscribe("t")
    half = (size - 5) // 2  # of one User Property, or its value has the greatest possible length
    name, value = ("n" * half, "v" * (size - 5 - half)) if size < 65_540 else ("", "v" * 65_535)
    client.publish("t", b"x", 0, True, Properties(user_properties=((name, value),)))
    expected = encode_variable_byte_integer(size) + b"\x26" + string(name.encode()) + string(value.encode()) + b"x"
    for _ in range(2):
        assert client.network.take().endswith(expected)
        client.send(p.Subscribe(1, (p.SubscriptionRequest("t"),)))


def test_a_length_in_more_bytes_than_needed_is_malformed() -> None:
    """The length is a Remaining Length or a Property Length [MQTT5-1.5.5-1]."""
    for data in (b"\xc0\x80\x00", packet(0x30, string(b"t") + b"\x80\x00")):
        client = MemoryBroker().client("c", 5)
        client.raw(data)
        refused(client, ReasonCode.MALFORMED_PACKET)


WITH_FLAGS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "puback": (0x40, lambda _: b"\0\1"),
    "pubrec": (0x50, lambda _: b"\0\1"),
    "pubrel": (0x62, lambda _: b"\0\1"),
    "pubcomp": (0x70, lambda _: b"\0\1"),
    "subscribe": (0x82, lambda v: b"\0\1" + block(v) + string(b"t") + b"\0"),
    "unsubscribe": (0xA2, lambda v: b"\0\1" + block(v) + string(b"t")),
    "pingreq": (0xC0, lambda _: b""),
    "disconnect": (0xE0, lambda _: b""),
}


@VERSIONS
@pytest.mark.parametrize("kind", list(WITH_FLAGS))
def test_reserved_flags_of_the_fixed_header_are_checked(version: int, kind: str) -> None:
    """Any value but the specified one is malformed, and ends the connection.

    [MQTT5-2.1.3-1], [MQTT5-3.6.1-1], [MQTT5-3.8.1-1], [MQTT5-3.10.1-1], [MQTT5-3.14.1-1], [MQTT311-2.2.2-1],
    [MQTT311-2.2.2-2], [MQTT311-3.6.1-1], [MQTT311-3.8.1-1], [MQTT311-3.10.1-1], [MQTT311-3.14.1-1].
    """
    right, body = WITH_FLAGS[kind]
    repeated = {10} if version == 3 and right & 2 else set()  # DUP, see the next test
    for flags in set(range(16)) - {right & 15} - repeated:
        client = MemoryBroker().client("c", version)
        client.raw(packet(right & 0xF0 | flags, body(version)))
        refused(client, ReasonCode.MALFORMED_PACKET)
    client = MemoryBroker().client("c", version)
    client.raw(packet(right, body(version)))
    assert client.got(p.Disconnect) == []


def test_mqtt_3_1_clients_may_repeat_pubrel_subscribe_and_unsubscribe_with_dup() -> None:
    """Section 2.1 of MQTT 3.1: DUP is set on a repeated PUBLISH, PUBREL, SUBSCRIBE or UNSUBSCRIBE."""
    client = MemoryBroker().client("c", 3)
    client.raw(packet(0x8A, b"\0\1" + string(b"t") + b"\0"))
    client.publish("u", qos=2, identifier=2)
    client.raw(packet(0x6A, b"\0\2"))
    client.raw(packet(0xAA, b"\0\3" + string(b"t")))
    assert client.packets() == [p.Suback(1, (0,)), p.Pubrec(2), p.Pubcomp(2), p.Unsuback(3)]


@pytest.mark.parametrize(
    ("version", "first", "reason"),
    [
        (4, 0x00, ReasonCode.MALFORMED_PACKET),
        (5, 0x00, ReasonCode.MALFORMED_PACKET),
        (5, 0x0F, ReasonCode.MALFORMED_PACKET),
        (4, 0xF0, ReasonCode.MALFORMED_PACKET),
        (5, 0x36, ReasonCode.MALFORMED_PACKET),
        (5, 0x38, ReasonCode.MALFORMED_PACKET),
        (5, 0x80, ReasonCode.MALFORMED_PACKET),
        (4, 0x6A, ReasonCode.MALFORMED_PACKET),
        (5, 0x10, ReasonCode.PROTOCOL_ERROR),
        (5, 0x20, ReasonCode.PROTOCOL_ERROR),
        (5, 0x90, ReasonCode.PROTOCOL_ERROR),
        (5, 0xB0, ReasonCode.PROTOCOL_ERROR),
        (5, 0xD0, ReasonCode.PROTOCOL_ERROR),
    ],
)
@pytest.mark.parametrize("rest", [b"", b"\x80", b"\x05", b"\x80\x08abc"])
def test_a_wrong_first_byte_ends_the_connection_before_more_is_awaited(
    version: int, first: int, reason: ReasonCode, rest: bytes
) -> None:
    """Type 0, wrong flags, a packet that only Servers send, and a second CONNECT [MQTT5-2.1.3-1], [MQTT5-3.1.0-2]."""
    client = MemoryBroker().client("c", version)
    client.raw(bytes((first,)) + rest)
    refused(client, reason)


@pytest.mark.parametrize("first", [0x00, 0x30, 0x11, 0xC0])
def test_a_wrong_first_byte_of_a_connection_ends_it(first: int) -> None:
    """The first packet is CONNECT [MQTT5-3.1.0-1]."""
    client = Client(MemoryBroker(), 5)
    client.raw(bytes((first,)))
    assert client.network.closed


CONTROL = [*range(1, 0x20), *range(0x7F, 0xA0), *range(0xFDD0, 0xFDF0)]
CONTROL += [plane << 16 | end for plane in range(17) for end in (0xFFFE, 0xFFFF)]
NAMES = ("client identifier", "will topic", "user name", "topic name", "topic filter", "topic filter to unsubscribe")
NAMES_5 = (*NAMES, "response topic of the will", "response topic")


def _names() -> list[pytest.param]:  # type: ignore[valid-type]
    places = IN_CONNECT | IN_CONNECT_5 | AFTERWARDS | IN_PROPERTIES
    return [
        pytest.param(version, name, name in IN_CONNECT | IN_CONNECT_5, places[name], id=f"{version} {name}")
        for version in (3, 4, 5)
        for name in (NAMES_5 if version == 5 else NAMES)
    ]


@pytest.mark.parametrize(("version", "name", "first", "make"), _names())
def test_names_with_control_characters_end_the_connection(version: int, name: str, first: bool, make: Place) -> None:
    """Topics, Client Identifiers and User Names [MQTT5-1.5.4], [MQTT311-1.4.0-1]; ``mqtt.control_characters``."""
    for character in CONTROL:
        client = _send(version, first, make(version, f"a{chr(character)}b".encode()))
        if name != "client identifier":
            refused(client, ReasonCode.MALFORMED_PACKET)
        elif version == 5:
            refused(client, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)  # [MQTT5-3.1.3-8]
        else:  # [MQTT311-3.1.3-9]
            assert client.packets() == [p.Connack(False, 2)]
            assert client.network.closed


@pytest.mark.parametrize(("version", "name", "first", "make"), _names())
def test_control_characters_can_be_accepted(version: int, name: str, first: bool, make: Place) -> None:
    """``mqtt.control_characters = "accept"``; other unusual characters are always accepted."""
    del name
    accepting = MemoryBroker(limits=Limits(control_characters=True))
    for broker, text in ((accepting, "a\x1b\ufdd0b"), (MemoryBroker(), "a \u00a0\u00ad\u200b\u2028\ue000\ufffdb")):
        client = Client(broker, version) if first else broker.client("c", version)
        client.raw(make(version, text.encode()))
        assert not client.network.closed


def test_other_text_may_contain_control_characters() -> None:
    """Content Type, User Properties and Reason Strings are not names."""
    for make in (IN_CONNECT_5["content type of the will"], IN_CONNECT_5["user property of connect"]):
        assert not _send(5, True, make(5, b"a\x1b")).network.closed
    for make in (IN_PROPERTIES["content type"], IN_PROPERTIES["user property value"]):
        assert not _send(5, False, make(5, b"a\x1b")).network.closed


@VERSIONS
def test_a_stored_subscription_with_a_control_character_can_be_ended(version: int) -> None:
    """A Session from a time when they were accepted: it resumes, and UNSUBSCRIBE is the Client's way out."""
    broker = MemoryBroker(limits=Limits(control_characters=True))
    client = lasting(broker, "c", version)
    client.subscribe("a\x1b", "b")
    client.drop()
    broker.limits = Limits()
    client = lasting(broker, "c", version)
    client.send(p.Unsubscribe(1, ("a\x1b",)))
    assert client.got(p.Unsuback) == [p.Unsuback(1, (0,) if version == 5 else ())]
    client.send(p.Unsubscribe(2, ("a\x1b",)))
    refused(client, ReasonCode.MALFORMED_PACKET)


def test_a_stored_message_with_a_control_character_is_matched_by_wildcards() -> None:
    """The refusal concerns packets, not what is stored already."""
    broker = MemoryBroker(limits=Limits(control_characters=True))
    broker.client("p", 5).publish("a/\x1b", b"old", retain=True)
    broker.limits = Limits()
    client = broker.client("c", 5)
    _, publish = client.subscribe("a/+")
    assert publish == p.Publish("a/\x1b", b"old", retain=True)


def test_a_response_topic_has_at_least_one_character() -> None:
    """In PUBLISH and in the Will Message alike [MQTT5-4.7.3-1]."""
    refused(_send(5, True, IN_CONNECT_5["response topic of the will"](5, b"")), ReasonCode.PROTOCOL_ERROR)
    refused(_send(5, False, IN_PROPERTIES["response topic"](5, b"")), ReasonCode.PROTOCOL_ERROR)


@VERSIONS
def test_reserved_flags_of_connect_are_checked(version: int) -> None:
    """All four are 0, else the connection is refused [MQTT5-2.1.3-1], [MQTT311-2.2.2-2]."""
    for flags in range(1, 16):
        client = Client(MemoryBroker(), version)
        client.raw(bytes((0x10 | flags,)) + connect(version)[1:])
        assert client.network.closed
        assert client.network.take() == b""


def test_reserved_flags_of_auth_are_checked() -> None:
    """All four are 0, else the packet is malformed [MQTT5-3.15.1-1]."""
    for flags in range(1, 16):
        client = MemoryBroker().client("c", 5)
        client.raw(packet(0xF0 | flags, b"\x18\x00"))
        refused(client, ReasonCode.MALFORMED_PACKET)


@VERSIONS
def test_packets_of_the_broker_have_the_specified_flags(version: int) -> None:
    """They are 0010 for PUBREL, and 0 for all other packets but PUBLISH [MQTT5-2.1.3-1], [MQTT311-2.2.2-1]."""
    broker = MemoryBroker()
    client = Client(broker, version)
    client.send(
        p.Connect("c", version),
        p.Subscribe(1, (p.SubscriptionRequest("t", 2),)),
        p.Publish("t", b"", 1, packet_identifier=2),
        p.Publish("t", b"", 2, packet_identifier=3),
        p.Pubrel(3),
        p.Pubrec(2),
        p.Unsubscribe(4, ("t",)),
        p.Pingreq(),
    )
    data = client.network.take()
    firsts = set()
    while data:
        firsts.add(data[0])
        data = data[2 + data[1] :]
    assert {first for first in firsts if first >> 4 != 3} == {0x20, 0x90, 0x40, 0x50, 0x70, 0x62, 0xB0, 0xD0}


@VERSIONS
def test_a_qos_0_message_has_no_packet_identifier(version: int) -> None:
    """Neither an incoming message nor an outgoing one has it [MQTT5-2.2.1-2], [MQTT311-2.3.1-5]."""
    client = MemoryBroker().client("c", version)
    client.subscribe("t", qos=2)
    data = packet(0x30, string(b"t") + block(version) + b"payload")
    client.raw(data)
    assert client.network.take() == data


@VERSIONS
@pytest.mark.parametrize("kind", ["publish 1", "publish 2", "subscribe", "unsubscribe"])
def test_a_packet_identifier_is_not_0(version: int, kind: str) -> None:
    """0 in a packet that needs one ends the connection [MQTT5-2.2.1-3], [MQTT311-2.3.1-1]."""
    data = {
        "publish 1": packet(0x32, string(b"t") + b"\0\0" + block(version)),
        "publish 2": packet(0x34, string(b"t") + b"\0\0" + block(version)),
        "subscribe": packet(0x82, b"\0\0" + block(version) + string(b"t") + b"\0"),
        "unsubscribe": packet(0xA2, b"\0\0" + block(version) + string(b"t")),
    }[kind]
    client = MemoryBroker().client("c", version)
    client.raw(data)
    refused(client, ReasonCode.PROTOCOL_ERROR)


@pytest.mark.parametrize("version", [4, 5])
def test_the_broker_uses_no_packet_identifier_twice(version: int) -> None:
    """All 65,535 identifiers in flight differ, and none is 0. The next identifier is the one that becomes free.

    [MQTT5-2.2.1-4], [MQTT5-4.3.2-1], [MQTT5-4.3.3-1], [MQTT311-2.3.1-4].
    """
    broker = MemoryBroker(limits=Limits(max_inflight=65_535, max_inflight_bytes=1 << 30))
    client = broker.client("c", version)
    client.subscribe("t", qos=2)
    publisher = broker.client("p")
    publisher.raw(encode(p.Publish("t", b"", 1, packet_identifier=1), 4) * 65_534)
    publisher.publish("t", qos=2)
    identifiers = [one.packet_identifier for one in client.got(p.Publish)]
    assert sorted(identifiers) == list(range(1, 65_536))
    publisher.publish("t", qos=1)
    assert client.got(p.Publish) == []
    client.send(p.Puback(identifiers[1234]))
    assert [one.packet_identifier for one in client.got(p.Publish)] == [identifiers[1234]]


@VERSIONS
def test_a_message_sent_again_keeps_its_packet_identifier(version: int) -> None:
    """Until then no other message uses the identifier [MQTT311-2.3.1-4]."""
    broker = MemoryBroker()
    client = lasting(broker, "c", version)
    client.subscribe("t", qos=1)
    publisher = broker.client("p")
    publisher.publish("t", b"1", qos=1)
    (first,) = client.got(p.Publish)
    client.drop()
    publisher.publish("t", b"2", qos=1)
    client = lasting(broker, "c", version)
    again, other = resent(client)
    assert (again.payload, again.packet_identifier) == (b"1", first.packet_identifier)
    assert other.packet_identifier != first.packet_identifier


@VERSIONS
def test_acknowledgements_carry_the_identifier_of_their_publish(version: int) -> None:
    """PUBACK, PUBREC, PUBCOMP and PUBREL, in both directions [MQTT5-2.2.1-5], [MQTT311-2.3.1-6]."""
    broker = MemoryBroker()
    publisher = broker.client("p", version)
    client = broker.client("c", version)
    client.subscribe("t", qos=2)
    publisher.publish("t", qos=1, identifier=1001)
    publisher.publish("t", qos=2, identifier=2002)
    publisher.send(p.Pubrel(2002))
    assert publisher.packets() == [p.Puback(1001), p.Pubrec(2002), p.Pubcomp(2002)]
    identifier = next(one.packet_identifier for one in client.got(p.Publish) if one.qos == 2)
    client.send(p.Pubrec(identifier))
    assert client.packets() == [p.Pubrel(identifier)]


@VERSIONS
def test_suback_and_unsuback_carry_the_identifier_of_their_request(version: int) -> None:
    """This is true even if nothing was granted or removed.

    [MQTT5-2.2.1-6], [MQTT5-3.8.4-1], [MQTT5-3.8.4-2], [MQTT5-3.10.4-4], [MQTT5-3.10.4-5], [MQTT311-2.3.1-7],
    [MQTT311-3.8.4-1], [MQTT311-3.8.4-2], [MQTT311-3.10.4-4], [MQTT311-3.10.4-5].
    """
    client = MemoryBroker(authorizer=Forbidding("secret")).client("c", version)
    client.send(p.Subscribe(300, (p.SubscriptionRequest("t"),)), p.Subscribe(301, (p.SubscriptionRequest("secret"),)))
    assert [suback.packet_identifier for suback in client.got(p.Suback)] == [300, 301]
    client.send(p.Unsubscribe(400, ("t",)), p.Unsubscribe(401, ("nothing",)))
    assert [unsuback.packet_identifier for unsuback in client.got(p.Unsuback)] == [400, 401]


def test_no_properties_are_a_length_of_0() -> None:
    """SUBACK, UNSUBACK and PUBLISH have it [MQTT5-2.2.2-1]; a Client that omits the length is refused."""
    client = MemoryBroker().client("c", 5)
    client.send(p.Subscribe(1, (p.SubscriptionRequest("t"),)))
    assert client.network.take() == bytes.fromhex("90 04 0001 00 00")
    client.publish("t", b"x")
    assert client.network.take() == bytes.fromhex("30 05 0001 74 00 78")
    client.send(p.Unsubscribe(2, ("t",)))
    assert client.network.take() == bytes.fromhex("b0 04 0002 00 00")
    client.raw(bytes.fromhex("30 03 0001 74"))
    refused(client, ReasonCode.MALFORMED_PACKET)


#: every property with a valid value, and the packets that may have it, by the standard's table 2-4 (0 is the Will)
PROPERTIES: dict[str, set[int]] = {
    "01 01": {0, 3},
    "02 00000009": {0, 3},
    "03 0001 78": {0, 3},
    "08 0001 78": {0, 3},
    "09 0001 78": {0, 3},
    "0b 01": {3, 8},
    "11 00000009": {1, 14},
    "12 0001 78": set(),
    "13 0009": set(),
    "15 0001 78": {1, 15},
    "16 0001 78": {1, 15},
    "17 01": {1},
    "18 00000009": {0},
    "19 01": {1},
    "1a 0001 78": set(),
    "1c 0001 78": {14},
    "1f 0001 78": {4, 5, 6, 7, 14, 15},
    "21 0009": {1},
    "22 0009": {1},
    "23 0009": {3},
    "24 01": set(),
    "25 01": set(),
    "26 0001 78 0001 78": {0, 1, 3, 4, 5, 6, 7, 8, 10, 14, 15},
    "27 00000999": {1},
    "28 01": set(),
    "29 01": set(),
    "2a 01": set(),
}


def _with_properties(kind: int, properties: bytes) -> bytes:
    """Return a packet of a Client with these properties."""
    inside = string_block(properties)
    if kind in (0, 1):
        will = string(b"c") + inside + string(b"w") + string(b"!")
        payload = will if kind == 0 else string(b"c")
        head = string(b"MQTT") + bytes((5, 2 if kind else 6)) + b"\0\0"
        return packet(0x10, head + (b"\0" if kind == 0 else inside) + payload)
    return {
        3: packet(0x30, string(b"t") + inside),
        4: packet(0x40, b"\0\1\0" + inside),
        5: packet(0x50, b"\0\1\0" + inside),
        6: packet(0x62, b"\0\1\0" + inside),
        7: packet(0x70, b"\0\1\0" + inside),
        8: packet(0x82, b"\0\1" + inside + string(b"t") + b"\0"),
        10: packet(0xA2, b"\0\1" + inside + string(b"t")),
        14: packet(0xE0, b"\0" + inside),
        15: packet(0xF0, b"\x18" + inside),
    }[kind]


@pytest.mark.parametrize("kind", [0, 1, 3, 4, 5, 6, 7, 8, 10, 14, 15])
@pytest.mark.parametrize("property_", list(PROPERTIES))
def test_properties_stand_where_they_belong_and_once(property_: str, kind: int) -> None:
    """An invalid property makes its packet malformed [MQTT5-2.2.2.2]; a repeated one is a Protocol Error."""
    one = bytes.fromhex(property_)
    if kind not in PROPERTIES[property_]:
        refused(_send(5, kind < 2, _with_properties(kind, one)), ReasonCode.MALFORMED_PACKET)
    elif one[0] != 0x26:
        refused(_send(5, kind < 2, _with_properties(kind, one * 2)), ReasonCode.PROTOCOL_ERROR)
    else:
        client = _send(5, kind < 2, _with_properties(kind, one * 2))
        assert client.network.closed is (kind in (14, 15))


def test_an_unknown_property_is_malformed() -> None:
    """All numbers without a meaning are tried, in one byte and in two [MQTT5-2.2.2.2]."""
    known = {bytes.fromhex(one)[0] for one in PROPERTIES}
    for number in {*range(128), 128, 300} - known:
        data = encode_variable_byte_integer(number) + b"\0\0\0\0"
        refused(_send(5, False, _with_properties(3, data)), ReasonCode.MALFORMED_PACKET)


def test_user_properties_hold_any_characters() -> None:
    """Empty names and values, and those beyond ASCII, arrive unchanged [MQTT5-1.5.7-1]."""
    client = MemoryBroker().client("c", 5)
    client.subscribe("t")
    pairs = (("", ""), ("ключ", "値"), ("\ufeff", "\U0001f600"))
    client.publish("t", properties=Properties(user_properties=pairs))
    assert [one.properties.user_properties for one in client.got(p.Publish)] == [pairs]
    assert payloads(client) == []


def test_the_broker_adds_no_user_properties() -> None:
    """No answer has any, even if the request had some: so they never exceed the Maximum Packet Size.

    [MQTT5-3.2.2-20], [MQTT5-3.4.2-3], [MQTT5-3.5.2-3], [MQTT5-3.6.2-3], [MQTT5-3.7.2-3], [MQTT5-3.9.2-2],
    [MQTT5-3.11.2-2], [MQTT5-3.14.2-4].
    """
    own = Properties(user_properties=(("name", "value"),))
    client = Client(MemoryBroker(authorizer=Forbidding("secret")), 5)
    client.send(
        p.Connect("c", 5, properties=own),
        p.Subscribe(1, (p.SubscriptionRequest("secret"),), own),
        p.Unsubscribe(2, ("none",), own),
        p.Publish("secret", b"", 1, packet_identifier=3, properties=own),
        p.Publish("secret", b"", 2, packet_identifier=4, properties=own),
        p.Pubrel(99, 0x92, own),
        p.Pubrec(99, 0, own),
        p.Connect("c", 5),
    )
    answers = client.packets()
    kinds = (p.Connack, p.Suback, p.Unsuback, p.Puback, p.Pubrec, p.Pubcomp, p.Pubrel, p.Disconnect)
    assert tuple(map(type, answers)) == kinds
    for one in answers:
        assert isinstance(one, kinds)
        assert one.properties.user_properties == ()
