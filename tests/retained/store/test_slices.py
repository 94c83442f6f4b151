"""Finding packets in slices, and cutting slices: packets, QoS and expiries stay together."""

from __future__ import annotations

from itertools import pairwise

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retained.store.slices import cut, divide, packets_of, short_slices, without
from holdfast.retained.store.values import Slice
from holdfast.wire.encoding import encode
from holdfast.wire.packets import Publish
from holdfast.wire.properties import Properties
from tests.retained.store.slice_topics import topics_of
from tests.retained.strategies import topics

VERSIONS = st.sampled_from([3, 4, 5])


@st.composite
def made(draw: st.DrawFn) -> tuple[Slice, list[tuple[str, bytes]], int]:
    """A slice, its topics and packets, and the protocol version."""
    version = draw(VERSIONS)
    names = sorted(draw(st.sets(topics, min_size=1, max_size=8)))
    packets = []
    for topic in names:
        payload = b"p" * draw(st.sampled_from([0, 1, 100, 127, 130, 16_500]))
        properties = Properties(content_type="é") if version == 5 else Properties()
        packets.append((topic, encode(Publish(topic, payload, retain=True, properties=properties), version)))
    detailed = draw(st.booleans())
    count = len(packets)
    data = b"".join(packet for _, packet in packets)
    if detailed:
        return Slice(names[-1], count, data, bytes(range(count)), tuple(range(count))), packets, version
    return Slice(names[-1], count, data), packets, version


@given(made())
def test_packets_of_finds_each_packet_and_its_topic(example: tuple[Slice, list[tuple[str, bytes]], int]) -> None:
    one, packets, version = example
    walked = [(topic, one.packets[start:end]) for start, end, topic in packets_of(one, version)]
    assert walked == packets
    assert topics_of(one, version) == [topic for topic, _ in packets]


@given(made(), st.data())
def test_only_the_given_topics_are_removed_from_a_slice(
    example: tuple[Slice, list[tuple[str, bytes]], int], data: st.DataObject
) -> None:
    one, packets, version = example
    dropped = data.draw(st.sets(st.sampled_from([topic for topic, _ in packets])))
    left = without(one, dropped, version)
    numbers = [number for number, (topic, _) in enumerate(packets) if topic not in dropped]
    assert left.packets == b"".join(packets[number][1] for number in numbers)
    assert left.count == len(numbers)
    assert left.last == one.last
    if one.qos:
        assert left.qos == bytes(numbers)
        assert left.expires_at == tuple(numbers)
    else:
        assert (left.qos, left.expires_at) == (b"", ())


@given(made(), st.data())
def test_two_parts_of_a_cut_slice_are_the_whole(
    example: tuple[Slice, list[tuple[str, bytes]], int], data: st.DataObject
) -> None:
    one, packets, version = example
    if one.count == 1:
        return
    count = data.draw(st.integers(1, one.count - 1))
    first, rest = cut(one, count, version)
    assert topics_of(first, version) + topics_of(rest, version) == [topic for topic, _ in packets]
    assert (first.count, rest.count) == (count, one.count - count)
    assert (first.last, rest.last) == (packets[count - 1][0], one.last)
    assert first.packets + rest.packets == one.packets
    assert first.qos + rest.qos == one.qos
    assert first.expires_at + rest.expires_at == one.expires_at


@pytest.mark.parametrize("count", [0, 1, 2, -1])
def test_both_parts_of_a_cut_have_messages(count: int) -> None:
    one = Slice("a", 1, encode(Publish("a", b"", retain=True), 4))
    with pytest.raises(ValueError, match="cannot be cut"):
        cut(one, count, 4)


@given(made(), st.integers(1, 9))
def test_the_parts_of_a_divided_slice_are_the_whole(
    case: tuple[Slice, list[tuple[str, bytes]], int], count: int
) -> None:
    """All but the last have ``count`` messages. Together they are the whole slice, and each has its last topic."""
    whole, _, version = case
    parts = divide(whole, count, version)
    assert sum(part.count for part in parts) == whole.count
    assert {part.count for part in parts[:-1]} <= {count}
    assert 0 < parts[-1].count <= count
    assert b"".join(part.packets for part in parts) == whole.packets
    assert b"".join(part.qos for part in parts) == whole.qos
    assert [one for part in parts for one in part.expires_at] == list(whole.expires_at)
    assert [part.last for part in parts[:-1]] == [topics_of(part, version)[-1] for part in parts[:-1]]
    assert parts[-1].last == whole.last
    assert {part.soonest_expiry for part in parts} == {whole.soonest_expiry}


@given(made(), st.integers(min_value=1, max_value=20_000))
def test_portions_are_as_large_as_possible_and_together_the_whole(
    example: tuple[Slice, list[tuple[str, bytes]], int], most: int
) -> None:
    """Only a single longer message exceeds the bound. The next message never fits into the part before."""
    one, _, version = example
    divided = short_slices(one, most, version)
    assert b"".join(piece.packets for piece in divided) == one.packets
    assert b"".join(piece.qos for piece in divided) == one.qos
    assert sum((piece.expires_at for piece in divided), ()) == one.expires_at
    assert sum(piece.count for piece in divided) == one.count
    assert [piece.last for piece in divided] == [topics_of(piece, version)[-1] for piece in divided]
    for piece, behind in pairwise(divided):
        _, next_end, _ = next(packets_of(behind, version))
        assert len(piece.packets) + next_end > most
    assert all(len(piece.packets) <= most or piece.count == 1 for piece in divided)


@given(made(), st.data())
def test_cursors_stay_with_their_messages(
    example: tuple[Slice, list[tuple[str, bytes]], int], data: st.DataObject
) -> None:
    """Where messages have cursors, ``last`` of each part is its last cursor, and not a topic."""
    one, packets, version = example
    cursors = [f"{number:04x}" for number in range(one.count)]
    one = evolve(one, last=cursors[-1], cursors=cursors)
    size = data.draw(st.integers(1, 20_000))
    parts = [*divide(one, data.draw(st.integers(1, 8)), version), *short_slices(one, size, version)]
    if one.count > 1:
        parts += cut(one, data.draw(st.integers(1, one.count - 1)), version)
    for part in parts:
        assert part.last == part.cursors[-1]
        assert topics_of(part, version) == [packets[int(cursor, 16)][0] for cursor in part.cursors]
    dropped = data.draw(st.sets(st.sampled_from([topic for topic, _ in packets])))
    left = without(one, dropped, version)
    assert topics_of(left, version) == [packets[int(cursor, 16)][0] for cursor in left.cursors]
    assert left.last == one.last
