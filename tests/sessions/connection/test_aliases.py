"""Outgoing Topic Aliases: a Client's alias table restores every Topic Name."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sessions.connection.aliases import MOST_BYTES, SHORTEST, IncomingAliases, OutgoingAliases
from holdfast.sessions.limits import Limits
from holdfast.wire import NO_PROPERTIES, PacketParser, Properties, ProtocolError, ReasonCode, encode
from holdfast.wire import packets as p
from tests.doubles import Client, MemoryBroker
from tests.strategies import properties as any_properties

LONG = "a/rather/long/topic/name"


def decoded(data: bytes) -> list[p.Publish]:
    """Return the PUBLISH packets of a stream."""
    parser = PacketParser(1 << 28, 5)
    parser.receive_data(data)
    found = []
    while (packet := parser.next_packet()) is not None:
        assert isinstance(packet, p.Publish)
        found.append(packet)
    return found


class Table:
    """A Client's alias table, kept according to the standard."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._topics: dict[int, str] = {}

    def resolve(self, packet: p.Publish) -> p.Publish:
        """Return a PUBLISH with its Topic Name restored."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet
        assert 1 <= alias <= self._most
        if packet.topic:
            self._topics[alias] = packet.topic
        changed = attrs.evolve(packet.properties, topic_alias=None)
        return attrs.evolve(packet, topic=self._topics[alias], properties=changed)


TOPICS = st.one_of(st.sampled_from([f"topic/{number}" for number in range(8)]), st.text("añ/", min_size=1, max_size=40))


@st.composite
def publishes(draw: st.DrawFn) -> p.Publish:
    """Any PUBLISH that a Server might send, without an alias."""
    qos = draw(st.integers(0, 2))
    carried = attrs.evolve(draw(st.one_of(st.just(NO_PROPERTIES), any_properties(3))), topic_alias=None)
    size = draw(st.sampled_from([0, 1, 50, 110, 115, 120, 125, 130, 16370, 16380, 16390]))
    dup = bool(qos) and draw(st.booleans())
    identifier = draw(st.integers(1, 65535)) if qos else 0
    return p.Publish(draw(TOPICS), b"x" * size, qos, draw(st.booleans()), dup, identifier, carried)


@given(st.lists(publishes(), max_size=30), st.integers(1, 6), st.one_of(st.none(), st.integers(20, 200)))
def test_a_client_reads_the_rewritten_stream_as_the_original(
    packets: list[p.Publish], most: int, maximum: int | None
) -> None:
    """No number above the maximum [MQTT5-3.1.2-26], no packet too large [MQTT5-3.1.2-24], no other change."""
    aliases = OutgoingAliases(most, maximum)
    sent = []
    for packet in packets:
        plain = encode(packet, 5)
        rewritten = aliases.apply(plain)
        assert len(rewritten) <= max(len(plain), maximum or len(rewritten))
        sent.append(rewritten)
    table = Table(most)
    assert [table.resolve(packet) for packet in decoded(b"".join(sent))] == packets


@given(st.lists(st.sampled_from([f"topic/{number}" for number in range(6)]), max_size=60), st.integers(1, 5))
def test_the_least_recently_used_alias_is_reused(topics: list[str], most: int) -> None:
    """A topic is sent by its alias if and only if it is among the ``most`` used last."""
    aliases = OutgoingAliases(most, None)
    recent: list[str] = []
    for topic in topics:
        (packet,) = decoded(aliases.apply(encode(p.Publish(topic, b""), 5)))
        assert packet.topic == ("" if topic in recent else topic)
        assert packet.properties.topic_alias is not None
        recent = [*(other for other in recent if other != topic), topic][-most:]


def test_short_topics_are_left_alone() -> None:
    """A Topic Name gets no alias if the second message would not be shorter."""
    aliases = OutgoingAliases(10, None)
    short, long = (encode(p.Publish("t" * size, b""), 5) for size in (SHORTEST - 1, SHORTEST))
    for _ in range(3):
        assert aliases.apply(short) == short
    first, second, third = (aliases.apply(long) for _ in range(3))
    assert second == third
    assert len(first) + len(second) <= 2 * len(long)


def test_the_memory_for_topic_names_is_bounded() -> None:
    """Neither direction keeps more than some megabytes of Topic Names, with any number of aliases."""
    count = MOST_BYTES // 65535 + 2
    names = [f"{number:05}".ljust(65535, "x") for number in range(count)]
    aliases = OutgoingAliases(65535, None)
    for name in names:
        aliases.apply(encode(p.Publish(name, b""), 5))
    again = [decoded(aliases.apply(encode(p.Publish(name, b""), 5)))[0] for name in (names[-1], names[0])]
    assert [bool(packet.topic) for packet in again] == [False, True]
    incoming = IncomingAliases(65535)
    for _ in range(3):  # the same again costs nothing
        incoming.resolve(1, names[0])
    for number, name in enumerate(names[:-2]):
        incoming.resolve(number + 1, name)
    incoming.resolve(1, "short")
    incoming.resolve(count, names[-1])
    with pytest.raises(ProtocolError) as refused:
        incoming.resolve(1, names[-2])
    assert refused.value.reason is ReasonCode.QUOTA_EXCEEDED


def client(broker: MemoryBroker, maximum: int | None, size: int | None = None) -> Client:
    """Return a Client with this Topic Alias Maximum, Maximum Packet Size, and a Session."""
    properties = Properties(topic_alias_maximum=maximum, maximum_packet_size=size, session_expiry_interval=100)
    return broker.client("c", 5, clean=False, properties=properties)


def sent(receiver: Client) -> list[tuple[str, int | None]]:
    """Return topic and alias of every PUBLISH that came."""
    return [(packet.topic, packet.properties.topic_alias) for packet in receiver.got(p.Publish)]


@pytest.mark.parametrize(
    ("asked", "allowed", "aliases"),
    [(None, 65535, [None, None]), (0, 65535, [None, None]), (5, 0, [None, None]), (1, 65535, [1, 1]), (9, 1, [1, 1])],
)
def test_aliases_are_used_if_both_sides_allow_them(asked: int | None, allowed: int, aliases: list[int | None]) -> None:
    """The limit is the lesser of Topic Alias Maximum and max_topic_alias_out [MQTT5-3.1.2-26], [MQTT5-3.1.2-27]."""
    broker = MemoryBroker(limits=Limits(max_topic_alias_out=allowed, max_topic_alias=0))
    receiver = client(broker, asked)
    receiver.subscribe("#", qos=1)
    publisher = broker.client("p")
    for qos in (0, 1):
        publisher.publish(LONG, b"x", qos=qos)
    assert sent(receiver) == list(zip([LONG, "" if aliases[0] else LONG], aliases, strict=True))
    publisher.publish("another/topic")
    if aliases[0]:
        assert sent(receiver) == [("another/topic", 1)]


def test_a_new_connection_starts_without_aliases(broker: MemoryBroker, publisher: Client) -> None:
    """Repeated and queued messages are sent with their Topic Name [MQTT5-3.3.2-7]."""
    receiver = client(broker, 10)
    receiver.subscribe("#", qos=2)
    for qos in (1, 1, 2):
        publisher.publish(LONG, b"x", qos=qos)
    assert sent(receiver) == [(LONG, 1), ("", 1), ("", 1)]
    receiver.drop()
    publisher.publish(LONG, b"x", qos=1)
    receiver = client(broker, 10)
    again = [packet for packet in receiver.backlog if isinstance(packet, p.Publish)]
    assert [(packet.topic, packet.dup) for packet in again] == [(LONG, True), ("", True), ("", True), ("", False)]
    receiver.drop()
    receiver = client(broker, None)
    again = [packet for packet in receiver.backlog if isinstance(packet, p.Publish)]
    assert [(packet.topic, packet.dup) for packet in again] == [(LONG, True)] * 4


def test_other_clients_get_the_same_message_without_alias(broker: MemoryBroker, publisher: Client) -> None:
    """The shared encoding stays unchanged."""
    plain = broker.client("plain", 5)
    receiver = client(broker, 10)
    late = broker.client("late", 5)
    for one in (plain, receiver, late):
        one.subscribe("#")
    for _ in range(2):
        publisher.publish(LONG)
    assert sent(receiver) == [(LONG, 1), ("", 1)]
    assert sent(plain) == sent(late) == [(LONG, None), (LONG, None)]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_replay_sets_no_aliases(broker: MemoryBroker, publisher: Client, qos: int) -> None:
    """Each topic of a replay comes once. Live messages keep their aliases."""
    for number in range(20):
        publisher.publish(f"{LONG}/{number}", b"x", qos=1, retain=True)
    receiver = client(broker, 3)
    receiver.subscribe("other/#")
    publisher.publish("other/topic")
    assert sent(receiver) == [("other/topic", 1)]
    receiver.send(p.Subscribe(9, (p.SubscriptionRequest("a/#", qos),)))
    assert sent(receiver) == [(f"{LONG}/{number}", None) for number in sorted(range(20), key=str)]
    publisher.publish("other/topic")
    assert sent(receiver) == [("", 1)]


def test_an_alias_never_makes_a_packet_too_large(broker: MemoryBroker, publisher: Client) -> None:
    """A message that just fits the Client's Maximum Packet Size is sent unchanged [MQTT5-3.1.2-24]."""
    receiver = client(broker, 3, 100)
    receiver.subscribe("#")
    room = 100 - len(encode(p.Publish(LONG, b""), 5))
    for size in (room, room - 4, room - 5, room):
        publisher.publish(LONG, b"x" * size)
    assert sent(receiver) == [(LONG, None), (LONG, None), (LONG, 1), ("", 1)]
    assert broker.counters.messages_dropped_too_large == 0
