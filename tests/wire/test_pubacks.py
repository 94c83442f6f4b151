"""PUBACK packets that are read and written together mean the same as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire import PacketParser, WireError, encode
from holdfast.wire import packets as p
from holdfast.wire.encoding import pubacks, stretch_end

PUBACK = st.integers(0, 65535).map(lambda identifier: b"\x40\x02" + identifier.to_bytes(2, "big"))
OTHERS = st.sampled_from(
    (
        b"\xc0\x00",  # PINGREQ
        b"\x40\x03\x00\x07\x10",  # PUBACK with a Reason Code: well-formed in MQTT 5
        b"\x40\x04\x00\x07\x10\x00",
        b"\x40\x82\x00\x00\x07",  # a Remaining Length of two bytes
        b"\x50\x02\x00\x07",  # PUBREC
        b"\x41\x02\x00\x07",  # reserved flags
        b"\x30\x06\x00\x01\x40\x40\x02\x00",  # PUBLISH that looks like PUBACK inside
        b"\x40",
    )
)
#: identifiers that look like the beginning of a packet are the hard ones
TRICKY = st.sampled_from((0, 1, 0x40, 0x0240, 0x4002, 0x4040, 0x0202, 0xFFFF)).map(
    lambda identifier: b"\x40\x02" + identifier.to_bytes(2, "big")
)
STREAMS = st.lists(st.one_of(TRICKY, PUBACK, TRICKY, OTHERS), max_size=40).map(b"".join)


def one_by_one(packet: p.Packet) -> list[p.Packet]:
    """Return the packets that a stretch stands for."""
    if not isinstance(packet, p.Pubacks):
        return [packet]
    joined = packet.packets
    assert len(joined) > 4
    return [p.Puback(int.from_bytes(joined[at + 2 : at + 4], "big")) for at in range(0, len(joined), 4)]


def parsed(pieces: list[bytes], version: int, most: int) -> tuple[list[p.Packet], str, int]:
    """Return the packets of a stream, its error if any, and how many packets the parser has counted."""
    parser = PacketParser(1 << 20, version)
    packets: list[p.Packet] = []
    try:
        for piece in pieces:
            parser.receive_data(piece)
            while (packet := parser.next_packet(most)) is not None:
                packets += one_by_one(packet)
    except WireError as error:
        return packets, str(error), parser.packets
    return packets, "", parser.packets


@given(STREAMS, st.lists(st.integers(0, 160), max_size=5), st.sampled_from((3, 4, 5)), st.integers(2, 30))
def test_a_stream_means_the_same_with_stretches(stream: bytes, cuts: list[int], version: int, most: int) -> None:
    ends = sorted(min(cut, len(stream)) for cut in cuts)
    pieces = [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]
    assert parsed(pieces, version, most) == parsed([stream], version, 1)


@pytest.mark.parametrize("most", [1, 2, 7, 100])
def test_a_stretch_has_no_more_packets_than_asked_for(most: int) -> None:
    parser = PacketParser(1 << 20, 4)
    parser.receive_data(pubacks(1, 100) + b"\xc0\x00")
    sizes = []
    while (packet := parser.next_packet(most)) is not None:
        sizes.append(len(one_by_one(packet)))
    assert max(sizes) == most
    assert sum(sizes) == parser.packets == 101


def test_all_identifiers_are_written_as_single_packets_are() -> None:
    assert pubacks(1, 65535) == b"".join(encode(p.Puback(identifier), 5) for identifier in range(1, 65536))


@given(STREAMS, st.integers(0, 8), st.integers(1, 50))
def test_a_stretch_ends_before_the_first_other_packet(stream: bytes, start: int, most: int) -> None:
    end = start
    while (
        end + 4 <= len(stream)
        and stream[end : end + 2] == b"\x40\x02"
        and stream[end + 2 : end + 4] != b"\0\0"
        and end < start + 4 * most
    ):
        end += 4
    assert stretch_end(stream, start, most) == end
