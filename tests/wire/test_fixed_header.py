"""The first byte of a packet, by protocol version."""

from __future__ import annotations

import pytest

from holdfast.wire import PacketParser, Reception, WireError

#: every first byte that a Client may send after CONNECT
PUBLISHES = {0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D}
LATER = PUBLISHES | {0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xE0}


@pytest.mark.parametrize(
    ("version", "right"), [(None, {0x10}), (3, LATER | {0x6A, 0x8A, 0xAA}), (4, LATER), (5, LATER | {0xF0})]
)
def test_every_first_byte_of_a_client_is_judged_alone(version: int | None, right: set[int]) -> None:
    """The parser raises at the first byte exactly if no packet of a Client may begin with it."""
    for first in range(256):
        parser = PacketParser(1 << 20, version, Reception(from_client=True))
        parser.receive_data(bytes((first,)))
        if first in right:
            assert parser.next_packet() is None
            continue
        for _ in range(2):
            with pytest.raises(WireError):
                parser.next_packet()
