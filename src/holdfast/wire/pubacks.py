"""PUBACK packets without a Reason Code, one behind the other: read and written together.

How it works. Such a packet has four bytes, and only the last two differ. All 65535 of them, in the order of their
Packet Identifiers, are one constant of 256 KiB. So the acknowledgements of consecutive messages are a part of it, and
one comparison of bytes recognizes them:

    pubacks(7, 3)                                    40 02 00 07  40 02 00 08  40 02 00 09
    stretch_end(b"@\\2\\0\\7@\\2\\0\\x08\\xc0\\0", 0, 100)   8: two packets, then PINGREQ

The plain twin is the parser without stretches: one :class:`~holdfast.wire.packets.Puback` for each packet.
"""

from __future__ import annotations

from functools import cache

#: the high and the low bytes of all Packet Identifiers, in their order
HIGH = b"".join(bytes((high,)) * 256 for high in range(256))
LOW = bytes(range(256)) * 256

#: the first bytes of a PUBACK without a Reason Code: its type, and the Remaining Length
_TYPE, _LENGTH = b"\x40", b"\x02"
_ZERO = b"\x40\x02\x00\x00"


@cache
def _all() -> bytes:
    """Return the packets for the identifiers 0 to 65535. Made when the first one is needed."""
    packets = bytearray(_ZERO) * 65536
    packets[2::4] = HIGH
    packets[3::4] = LOW
    return bytes(packets)


def pubacks(first: int, count: int) -> bytes:
    """Return the PUBACK packets for ``count`` Packet Identifiers from ``first`` on."""
    return _all()[4 * first : 4 * (first + count)]


def stretch_end(data: bytes, start: int, most: int) -> int:
    """Return where the PUBACK packets end that begin at ``start``: whole ones of four bytes, ``most`` at most.

    A packet with the Packet Identifier 0 ends the stretch, since it is malformed.
    """
    count = min(most, (len(data) - start) // 4)
    end = start + 4 * count
    for offset, byte in enumerate((_TYPE, _LENGTH)):
        column = data[start + offset : end : 4]
        end = start + 4 * (len(column) - len(column.lstrip(byte)))
    # These bytes are found at the start of a packet only: at every other place, a type or a length would differ.
    zero = data.find(_ZERO, start, end)
    return end if zero < 0 else zero
