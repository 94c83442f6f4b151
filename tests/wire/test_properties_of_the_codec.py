"""Properties that hold for every packet and every byte stream."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire import (
    MalformedPacket,
    PacketParser,
    ProtocolError,
    encode,
    encode_variable_byte_integer,
    read_variable_byte_integer,
)
from holdfast.wire import packets as p
from tests.strategies import fragments, packets

VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])
LIMIT = 1 << 28


def parse(parser: PacketParser) -> list[p.Packet]:
    found = []
    while (packet := parser.next_packet()) is not None:
        found.append(packet)
    return found


@VERSIONS
@given(st.data())
def test_decoding_is_the_inverse_of_encoding(version: int, data: st.DataObject) -> None:
    """decode(encode(p)) == p."""
    packet = data.draw(packets(version))
    parser = PacketParser(LIMIT, version)
    parser.receive_data(encode(packet, version))
    assert parse(parser) == [packet]
    assert parser.buffered == 0


@VERSIONS
@given(st.data())
def test_fragmentation_changes_nothing(version: int, data: st.DataObject) -> None:
    """The packets do not depend on the cuts of the byte stream."""
    sent = data.draw(st.lists(packets(version), min_size=1, max_size=5))
    stream = b"".join(encode(packet, version) for packet in sent)
    parser = PacketParser(LIMIT, version)
    found = []
    for piece in fragments(stream, data.draw(st.lists(st.integers(0, 1 << 16), max_size=20))):
        parser.receive_data(piece)
        found += parse(parser)
    assert found == sent


@VERSIONS
def test_every_single_cut_and_every_byte_alone(version: int) -> None:
    """A fixed stream gives the same packets for every cut, in single bytes, and if it is parsed at the end."""
    sent: list[p.Packet] = [
        p.Publish("a/b", b"x" * 200, 1, True, False, 7),
        p.Pingreq(),
        p.Subscribe(9, (p.SubscriptionRequest("#", 1),)),
        p.Publish("t", b""),
    ]
    stream = b"".join(encode(packet, version) for packet in sent)
    for cut in range(len(stream) + 1):
        for ask in (True, False):
            parser = PacketParser(LIMIT, version)
            parser.receive_data(stream[:cut])
            found = parse(parser) if ask else []
            parser.receive_data(stream[cut:])
            assert found + parse(parser) == sent
    parser = PacketParser(LIMIT, version)
    found = []
    for byte in stream:
        parser.receive_data(bytes((byte,)))
        found += parse(parser)
    assert found == sent


@given(st.sampled_from([None, 3, 4, 5]), st.lists(st.binary(max_size=60), max_size=5))
def test_arbitrary_bytes_raise_only_the_two_errors(version: int | None, pieces: list[bytes]) -> None:
    """For any bytes, the parser raises only MalformedPacket and ProtocolError, and then raises the same error again."""
    parser = PacketParser(1000, version)
    try:
        for piece in pieces:
            parser.receive_data(piece)
            parse(parser)
    except (MalformedPacket, ProtocolError) as error:
        with pytest.raises(type(error)):
            parser.next_packet()


@VERSIONS
@given(st.data())
def test_damaged_packets_raise_only_the_two_errors(version: int, data: st.DataObject) -> None:
    """A valid packet with some changed bytes leads to a packet, None, or one of the two errors."""
    stream = bytearray(encode(data.draw(packets(version)), version))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    parser = PacketParser(LIMIT, version)
    parser.receive_data(bytes(stream))
    with contextlib.suppress(MalformedPacket, ProtocolError):
        parse(parser)


@given(st.integers(0, 268_435_455), st.binary(max_size=5), st.binary(max_size=5))
def test_an_integer_is_read_at_its_position(value: int, before: bytes, after: bytes) -> None:
    """The reader returns the value and the position after it, with any bytes around the integer."""
    encoded = encode_variable_byte_integer(value)
    end = len(before) + len(encoded)
    assert read_variable_byte_integer(before + encoded + after, len(before)) == (value, end)


@pytest.mark.parametrize("data", [b"\x80\0", b"\xff\x80\0", b"\x80\x80\x80\x80", b"\xff\xff\xff\xff\x7f"])
def test_a_longer_form_of_an_integer_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedPacket):
        read_variable_byte_integer(data, 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff"])
def test_an_incomplete_integer_is_an_index_error(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_variable_byte_integer(data, 0)
