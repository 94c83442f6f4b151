"""Retained runs: they have the same messages as the packets one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire import NO_PROPERTIES, PacketParser, RetainedRun, WireError, encode
from holdfast.wire import packets as p
from tests.strategies import fragments, packets


class Taker:
    """Takes some topics, and runs of a few packets."""

    def __init__(self, topics: list[str], most: int) -> None:
        self._topics = topics
        self._most = most

    def most(self, qos: int) -> int:
        return self._most - qos

    def takes(self, topic: str, qos: int) -> bool:
        return topic in self._topics


TOPICS = ["a", "b/c", "é/" + "x" * 200, "$SYS", "#", "a\n", ""]


@st.composite
def streams(draw: st.DrawFn, version: int) -> bytes:
    """Bytes of a Client: mostly PUBLISH with RETAIN 1, and sometimes a wrong byte."""

    def publish(qos: int) -> st.SearchStrategy[bytes]:
        return st.builds(
            p.Publish,
            st.sampled_from(TOPICS[:3] * 3 + TOPICS),
            st.binary(max_size=3) | st.binary(min_size=120, max_size=130),
            st.just(qos),
            st.just(True),
            packet_identifier=st.integers(1, 65535) if qos else st.just(0),
        ).map(lambda packet: encode(packet, version))

    run = st.integers(0, 2).flatmap(lambda qos: st.lists(publish(qos), max_size=6).map(b"".join))
    stream = b"".join(draw(st.lists(run | run | packets(version).map(lambda packet: encode(packet, version)))))
    if stream and draw(st.booleans()):
        place = draw(st.integers(0, len(stream) - 1))
        stream = stream[:place] + bytes((draw(st.sampled_from([0, 1, 0x31, 0x33, 0x80, 0xFF])),)) + stream[place + 1 :]
    return stream


def parsed(parser: PacketParser, piece: bytes, taken_back: bool) -> list[Any]:
    """Return the messages and other packets that a piece completes, and the error in it."""
    parser.receive_data(piece)
    found: list[Any] = []
    while True:
        try:
            packet = parser.next_run(4)
        except WireError as error:
            return [*found, str(error)]
        if packet is None:
            return found
        if isinstance(packet, RetainedRun):
            assert 2 <= packet.count <= 4
            if taken_back:
                parser.take_back(packet)
            else:
                found += [
                    p.Publish(topic, payload, packet.qos, True, False, identifier, NO_PROPERTIES)
                    for topic, payload, identifier in zip(
                        packet.topics, packet.payloads, identifiers(packet), strict=True
                    )
                ]
        else:
            found.append(packet if isinstance(packet, p.Publish) else type(packet))


def identifiers(run: RetainedRun) -> list[int]:
    return [int.from_bytes(one, "big") for one in run.identifiers] or [0] * run.count


@given(st.data(), st.sampled_from([3, 4, 5]), st.booleans())
def test_retained_runs_are_the_same_messages(data: st.DataObject, version: int, taken_back: bool) -> None:
    """Any bytes, cut anywhere: the same messages, the same error, the same counts."""
    stream = data.draw(streams(version))
    plain, parser = PacketParser(250, version), PacketParser(250, version)
    parser.retained_taker = Taker(
        data.draw(st.lists(st.sampled_from(TOPICS), min_size=3)), data.draw(st.integers(0, 9))
    )
    for piece in fragments(stream, data.draw(st.lists(st.integers(0, 4000), max_size=4))):
        assert parsed(parser, piece, taken_back) == parsed(plain, piece, False)
        assert (parser.packets, parser.publish_bytes, parser.buffered) == (
            plain.packets,
            plain.publish_bytes,
            plain.buffered,
        )


@given(st.lists(st.sampled_from(TOPICS[:3]), min_size=2, max_size=9), st.sampled_from([3, 4, 5]))
def test_the_acknowledgements_of_a_retained_run(topics: list[str], version: int) -> None:
    parser = PacketParser(1000, version)
    parser.retained_taker = Taker(TOPICS, 100)
    publishes = [p.Publish(topic, b"1", 1, True, packet_identifier=n) for n, topic in enumerate(topics, 250)]
    parser.receive_data(b"".join(encode(publish, version) for publish in publishes))
    run = parser.next_run(100)
    assert isinstance(run, RetainedRun)
    code = 0x10 if version == 5 else 0
    expected = [p.Puback(publish.packet_identifier, code) for publish in publishes]
    assert run.acknowledgements() == b"".join(encode(answer, version) for answer in expected)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_alone_is_no_run(qos: int) -> None:
    parser = PacketParser(1000, 4)
    parser.retained_taker = Taker(TOPICS, 100)
    retained = encode(p.Publish("a", b"1", qos, True, packet_identifier=7 * qos), 4)
    parser.receive_data(retained + encode(p.Pingreq(), 4))
    assert isinstance(parser.next_run(10), p.Publish)
