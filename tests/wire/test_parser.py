"""What the parser keeps of the bytes that it was given."""

from __future__ import annotations

import sys

import pytest

from holdfast.wire import MalformedPacket, PacketParser, encode
from holdfast.wire import packets as p
from holdfast.wire.parser import KEPT


def _publish(size: int) -> bytes:
    return encode(p.Publish("t", b"x" * size), 5)


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_long_piece_is_given_up_with_its_last_packet(pieces: int) -> None:
    """Otherwise each silent client would hold the memory of the largest packet that it has sent."""
    parser = PacketParser(1 << 20, 5)
    data = _publish(100_000)
    references = sys.getrefcount(data)
    if pieces == 1:
        parser.receive_data(data)
    else:
        parser.receive_data(data[:1000])
        parser.receive_data(data[1000:])
    assert parser.next_packet() is not None
    assert parser.next_packet() is None
    assert parser.held <= KEPT
    assert sys.getrefcount(data) == references


def test_a_parser_goes_on_after_a_long_piece() -> None:
    parser = PacketParser(1 << 20, 5)
    for piece in (_publish(100_000), _publish(3), b"\xc0", b"\x00"):
        parser.receive_data(piece)
        while parser.next_packet() is not None:
            pass
    assert parser.buffered == 0


def test_a_closed_parser_holds_no_bytes() -> None:
    parser = PacketParser(1 << 20, 5)
    parser.receive_data(b"\x00" + b"x" * 100_000)
    with pytest.raises(MalformedPacket):
        parser.next_packet()
    parser.close()
    assert parser.held == 0
