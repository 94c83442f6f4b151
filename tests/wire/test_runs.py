"""Runs of PUBLISH packets: they are the same packets as without runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire import KnownTopics, PacketParser, RetainedRun, Run, Single, TopicPool, WireError, encode
from holdfast.wire import packets as p
from holdfast.wire.runs import LONGEST_RUN
from tests.strategies import fragments, packets

VERSIONS = [3, 4, 5]
TOPICS = ["a", "a/b", "b", "é/" + "x" * 200]


def known(*topics: str) -> KnownTopics:
    """Return topics that are known for QoS 0 and 1. Those that begin alike have the same route."""
    found = KnownTopics(TopicPool())
    for topic in topics:
        for qos in (0, 1):
            found.add(qos, topic.encode(), ord(topic[0]))
    return found


def publishes(qos: int = 0, **changes: Any) -> st.SearchStrategy[p.Publish]:
    """PUBLISH packets of few topics and lengths, so that many of them form runs."""
    return st.builds(
        p.Publish,
        st.sampled_from(TOPICS),
        st.binary(max_size=3) | st.binary(min_size=120, max_size=130),
        st.just(qos),
        packet_identifier=st.integers(1, 65535) if qos else st.just(0),
        **changes,
    )


@st.composite
def streams(draw: st.DrawFn, version: int) -> bytes:
    """Bytes of a Client: repeated PUBLISH packets, other packets, and sometimes a wrong byte."""
    parts = draw(
        st.lists(
            st.tuples(
                publishes(0) | publishes(1) | publishes(1, dup=st.just(True)) | packets(version), st.integers(1, 4)
            )
        )
    )
    stream = b"".join(encode(packet, version) * times for packet, times in parts)
    if stream and draw(st.booleans()):
        place = draw(st.integers(0, len(stream) - 1))
        stream = stream[:place] + bytes((draw(st.sampled_from([0, 1, 0x30, 0x32, 0x80, 0xFF])),)) + stream[place + 1 :]
    return stream


def parsed(parser: PacketParser, piece: bytes, runs: bool = True) -> Iterator[p.Packet | Run | RetainedRun | str]:
    """Yield the packets and runs that a piece completes, or the error in it."""
    parser.receive_data(piece)
    while True:
        try:
            packet = parser.next_run() if runs else parser.next_packet()
        except WireError as error:
            yield str(error)
            return
        if packet is None:
            return
        yield packet


def shown(packet: Any) -> Any:
    """Return what of a packet can be compared: the entries of SUBSCRIBE and UNSUBSCRIBE are decoded later."""
    return packet if isinstance(packet, p.Publish | str) else type(packet)


def taken_apart(packet: p.Packet | Run | RetainedRun | str) -> list[Any]:
    return list(packet.publishes()) if isinstance(packet, Run) else [packet]


@given(st.data(), st.sampled_from(VERSIONS))
def test_runs_are_the_same_packets(data: st.DataObject, version: int) -> None:
    """Any bytes, cut anywhere: the same packets, the same error, the same count of bytes."""
    stream = data.draw(streams(version))
    plain, parser = PacketParser(200, version), PacketParser(200, version)
    parser.known = known(*data.draw(st.lists(st.sampled_from(TOPICS)))).routes
    for piece in fragments(stream, data.draw(st.lists(st.integers(0, 4000), max_size=4))):
        expected = list(parsed(plain, piece, runs=False))
        found = [single for packet in parsed(parser, piece) for single in taken_apart(packet)]
        assert [shown(one) for one in found] == [shown(one) for one in expected]
        assert (parser.publish_bytes, parser.buffered) == (plain.publish_bytes, plain.buffered)


@given(st.data(), st.sampled_from(VERSIONS), st.sampled_from([4, 30, 200]))
def test_a_packet_that_comes_by_itself_is_the_same_packet(data: st.DataObject, version: int, largest: int) -> None:
    """Whatever bytes come: either they are one whole PUBLISH of a known topic, or the parser takes them as usual."""
    plain, parser = PacketParser(largest, version), PacketParser(largest, version)
    parser.known = known(*data.draw(st.lists(st.sampled_from(TOPICS)))).routes
    alone = publishes(0) | st.builds(p.Puback, st.integers(1, 65535))
    for piece in data.draw(st.lists(streams(version) | alone.map(lambda one: encode(one, version)))):
        single = parser.single(piece)
        if single is None:
            parser.receive_data(piece)
        elif isinstance(single, p.Puback):
            assert list(parsed(plain, piece, runs=False)) == [single]
            continue
        else:
            (expected,) = parsed(plain, piece, runs=False)
            assert single.publishes() == [expected]
            assert (single.count, single.end, single.route) == (1, len(piece), ord(single.publishes()[0].topic[0]))
            continue
        found = [shown(one) for packet in parsed(parser, b"") for one in taken_apart(packet)]
        assert found == [shown(one) for one in parsed(plain, piece, runs=False)]


def test_only_the_whole_of_what_has_come_is_a_packet_by_itself() -> None:
    parser = PacketParser(1 << 20, 4)
    message = encode(p.Publish("a", b"1"), 4)
    assert parser.single(message) is None, "no topic is known"
    parser.known = known("a").routes
    assert parser.single(message) is not None
    assert parser.single(message + message) is None
    parser.receive_data(message[:3])
    assert parser.single(message[3:]) is None
    assert parser.single(message) is None, "these bytes are the middle of a packet"
    parser.receive_data(message[3:])
    assert isinstance(parser.next_run(), Run)
    assert parser.single(message) is not None
    for wrong in (b"\x40\2\0\0", b"\x40\1\0\1", b"\x41\2\0\1"):
        assert parser.single(wrong) is None
    assert PacketParser(1 << 20).single(b"\x40\2\0\1") is None, "CONNECT has not come"


@given(publishes() | publishes(1), st.sampled_from(VERSIONS), st.sampled_from(VERSIONS), st.integers(1, 65535))
def test_a_packet_by_itself_is_encoded_for_its_receivers(
    message: p.Publish, version: int, other: int, identifier: int
) -> None:
    parser = PacketParser(1 << 20, version)
    parser.known = known(*TOPICS).routes
    single = parser.single(encode(message, version))
    assert isinstance(single, Single)
    for qos in range(message.qos + 1):
        for used in (identifier, identifier % 65535 + 1):
            expected = encode(
                p.Publish(message.topic, message.payload, qos, packet_identifier=used if qos else 0), other
            )
            assert single.packets(other == 5, qos, used) == expected
            assert len(expected) <= single.longest
    if message.qos:
        for reason in (0, 0x10):
            answer = encode(p.Puback(message.packet_identifier, reason), 5 if reason else 4)
            assert single.acknowledgements(reason) == answer


def run_of(messages: list[p.Publish], version: int) -> Run:
    parser = PacketParser(1 << 20, version)
    parser.known = {first: dict.fromkeys((topic.encode() for topic in TOPICS), 7) for first in (0x30, 0x32)}
    parser.receive_data(b"".join(encode(message, version) for message in messages))
    run = parser.next_run()
    assert isinstance(run, Run)
    assert (run.count, run.route, run.qos) == (len(messages), 7, messages[0].qos)
    return run


@given(
    st.lists(publishes(), min_size=1) | st.lists(publishes(1), min_size=2),
    st.sampled_from(VERSIONS),
    st.sampled_from(VERSIONS),
    st.integers(1, 65000),
)
def test_a_run_is_encoded_for_its_receivers(messages: list[p.Publish], version: int, other: int, first: int) -> None:
    run = run_of(messages, version)
    for qos in range(messages[0].qos + 1):
        expected = [
            encode(p.Publish(one.topic, one.payload, qos, packet_identifier=first + number if qos else 0), other)
            for number, one in enumerate(messages)
        ]
        packets = run.packets(other == 5, qos, first)
        assert packets == b"".join(expected)
        assert packets is run.packets(other == 5, qos, first)
        assert max(map(len, expected)) <= run.longest


@given(st.lists(publishes(1), min_size=2), st.sampled_from(VERSIONS), st.sampled_from(VERSIONS), st.data())
def test_a_run_that_waits_leaves_in_parts(
    messages: list[p.Publish], version: int, other: int, data: st.DataObject
) -> None:
    kept = run_of(messages, version).kept(other == 5)
    assert kept.count == len(messages)
    left = list(messages)
    while left:
        assert list(kept.messages()) == [(one.topic, one.payload) for one in left]
        assert kept.content == sum(len(one.topic.encode()) + len(one.payload) for one in left)
        count, first = data.draw(st.integers(1, len(left))), data.draw(st.integers(1, 60_000))
        expected = [
            encode(p.Publish(one.topic, one.payload, 1, packet_identifier=first + place), other)
            for place, one in enumerate(left[:count])
        ]
        assert kept.first(count, first) == b"".join(expected)
        assert kept.longest >= max(map(len, expected))
        kept.drop(count)
        del left[:count]
        assert kept.count == len(left)


@given(st.lists(publishes(1), min_size=2), st.sampled_from([0, 0x10]))
def test_the_acknowledgements_of_a_run(messages: list[p.Publish], reason: int) -> None:
    expected = [encode(p.Puback(one.packet_identifier, reason), 5) for one in messages]
    assert run_of(messages, 5).acknowledgements(reason) == b"".join(expected)


def test_a_packet_with_qos_1_alone_is_no_run() -> None:
    parser = PacketParser(1 << 20, 4)
    parser.known = known("a").routes
    one = encode(p.Publish("a", b"", 1, packet_identifier=1), 4)
    assert all(isinstance(packet, p.Publish) for packet in parsed(parser, one))
    assert [type(packet) for packet in parsed(parser, one + b"\xc0\0")] == [p.Publish, p.Pingreq]


def test_a_run_that_is_given_back_comes_packet_by_packet() -> None:
    message = encode(p.Publish("a", b"1"), 4)
    parser = PacketParser(1 << 20, 4)
    parser.known = known("a").routes
    parser.receive_data(3 * message + message[:2])
    run = parser.next_run()
    assert isinstance(run, Run)
    parser.take_back(run)
    assert parser.publish_bytes == 0
    singles = [parser.next_run() for _ in range(3)]
    assert all(isinstance(single, p.Publish) for single in singles)
    assert parser.next_run() is None
    parser.receive_data(message[2:])
    assert isinstance(parser.next_run(), Run)


def test_a_run_has_a_bounded_number_of_packets() -> None:
    parser = PacketParser(1 << 20, 4)
    parser.known = known("a").routes
    parser.receive_data((LONGEST_RUN + 1) * encode(p.Publish("a", b""), 4))
    assert [run.count for run in parsed(parser, b"") if isinstance(run, Run)] == [LONGEST_RUN, 1]


@pytest.mark.parametrize("length", [1, 500])
def test_the_known_topics_of_a_client_are_bounded(length: int) -> None:
    topics = KnownTopics(TopicPool(0))
    sizes = []
    for number in range(1000):
        topics.add(number & 1, str(number).encode() * length, 1)
        sizes.append(sum(len(topic) + 150 for routes in topics.routes.values() for topic in routes))
    assert 0 < max(sizes) <= 64 * 1024


def test_a_receiver_holds_no_more_than_its_packets() -> None:
    """A run in the middle of a long piece must not keep the piece in memory."""
    messages = [p.Publish("a", b"1"), p.Publish("a/b", b"2")]
    piece = b"".join(encode(message, 4) for message in (*messages, p.Publish("unknown", b"x" * 60_000)))
    parser = PacketParser(1 << 20, 4)
    parser.known = known("a", "a/b").routes
    parser.receive_data(piece)
    run = parser.next_run()
    assert isinstance(run, Run)
    references = sys.getrefcount(piece)
    packets = run.packets(False, 0)
    assert packets == b"".join(encode(message, 4) for message in messages)
    assert sys.getrefcount(piece) == references
