"""Rewritten packets of a replay equal packets that are encoded anew."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sessions.delivery.replayed_packets import (
    message_expiry_interval,
    numbered,
    packets_of,
    rewritten,
    subscription_identifier,
    topic_of,
)
from holdfast.wire import NO_PROPERTIES, PacketParser, Properties, encode
from holdfast.wire.packets import Publish

TOPICS = st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=200)
MESSAGES = st.builds(
    Publish,
    topic=TOPICS,
    payload=st.binary(max_size=300),
    qos=st.just(0),
    retain=st.just(True),
    properties=st.builds(Properties, content_type=st.none() | st.text("abc", max_size=200)),
)
SECONDS = st.none() | st.integers(1, 2**32 - 1)


def parsed(data: bytes, version: int) -> list[Publish]:
    parser = PacketParser(1 << 28, version)
    parser.receive_data(data)
    found = []
    while (packet := parser.next_packet()) is not None:
        assert isinstance(packet, Publish)
        found.append(packet)
    return found


@given(st.lists(MESSAGES, max_size=5), st.sampled_from([4, 5]))
def test_joined_packets_are_found_again(messages: list[Publish], version: int) -> None:
    packets = [encode(message, version) for message in messages]
    joined = b"".join(packets)
    found = list(packets_of(joined))
    assert [joined[start:end] for start, _, _, end in found] == packets
    assert [topic_of(joined, packet) for packet in found] == [message.topic for message in messages]


@given(MESSAGES, st.integers(0, 2), st.integers(1, 65535), st.none() | st.integers(1, 268_435_455), SECONDS)
def test_a_rewritten_mqtt_5_packet_says_the_same(
    message: Publish, qos: int, packet_identifier: int, identifier: int | None, seconds: int | None
) -> None:
    properties = b"" if identifier is None else subscription_identifier(identifier)
    if seconds is not None:
        properties += message_expiry_interval(seconds)
    joined = encode(message, 5)
    (packet,) = packets_of(joined)
    (found,) = parsed(rewritten(joined, packet, qos, packet_identifier, properties), 5)
    expected = attrs.evolve(
        message.properties,
        subscription_identifiers=() if identifier is None else (identifier,),
        message_expiry_interval=seconds,
    )
    assert found == attrs.evolve(
        message, qos=qos, packet_identifier=packet_identifier if qos else 0, properties=expected
    )


@given(MESSAGES, st.integers(0, 2))
def test_a_rewritten_mqtt_3_packet_gets_qos_and_packet_identifier(message: Publish, qos: int) -> None:
    joined = encode(message, 4)
    (packet,) = packets_of(joined)
    expected = attrs.evolve(message, qos=qos, packet_identifier=9 if qos else 0, properties=NO_PROPERTIES)
    assert rewritten(joined, packet, qos, 9, b"") == encode(expected, 4)


LONG = st.integers(120, 20_000).map(lambda size: Publish("a", b"x" * size, 0, retain=True))


@given(st.lists(MESSAGES | LONG, min_size=1, max_size=8), st.sampled_from([4, 5]), st.integers(1, 65_000))
def test_packets_numbered_together_are_those_rewritten_one_by_one(
    messages: list[Publish], version: int, first: int
) -> None:
    joined = b"".join(encode(message, version) for message in messages)
    one_by_one = [rewritten(joined, packet, 1, first + number, b"") for number, packet in enumerate(packets_of(joined))]
    assert numbered(joined, len(messages), first) == b"".join(one_by_one)
