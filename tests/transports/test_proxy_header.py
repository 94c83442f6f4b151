"""The header of the PROXY protocol: who the client is, and what is no header."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.transports.proxy_header import LONGEST, InvalidProxyHeader, ProxyHeader

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V4 = IPv4Address("192.0.2.1").packed + IPv4Address("192.0.2.9").packed + b"\x15\xb3\x07\x5b"
V6 = IPv6Address("2001:db8::1").packed + IPv6Address("2001:db8::9").packed + b"\x15\xb3\x07\x5b"
MAPPED = IPv6Address("::ffff:192.0.2.1").packed + IPv6Address("::1").packed + b"\x15\xb3\x07\x5b"


def binary(command: int, kind: int, block: bytes) -> bytes:
    """A header of version 2."""
    return SIGNATURE + bytes((command, kind)) + len(block).to_bytes(2, "big") + block


#: headers, and the client that each names
VALID = [
    (b"PROXY TCP4 192.0.2.1 192.0.2.9 5555 1883\r\n", "192.0.2.1:5555"),
    (b"PROXY TCP6 2001:db8::1 2001:db8::9 5555 1883\r\n", "[2001:db8::1]:5555"),
    (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 5555 1883\r\n", "192.0.2.1:5555"),
    (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", "255.255.255.255:65535"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN " + b"f" * 91 + b"\r\n", None),
    (binary(0x21, 0x11, V4), "192.0.2.1:5555"),
    (binary(0x21, 0x11, V4 + b"\x04\0\x02xy"), "192.0.2.1:5555"),  # with a further field
    (binary(0x21, 0x21, V6), "[2001:db8::1]:5555"),
    (binary(0x21, 0x21, MAPPED), "192.0.2.1:5555"),
    (binary(0x21, 0x31, b"/run/client".ljust(216, b"\0")), "unix"),
    (binary(0x21, 0x00, b""), None),
    (binary(0x21, 0x00, b"skipped"), None),
    (binary(0x20, 0x00, b""), None),
    (binary(0x20, 0xFF, b"anything"), None),  # LOCAL: the rest means nothing
    (binary(0x21, 0x11, V4 + bytes(LONGEST - 16 - len(V4))), "192.0.2.1:5555"),
]

INVALID = [
    (b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0", "does not begin with the PROXY protocol"),
    (b"GET / HTTP/1.1\r\n\r\n", "does not begin"),
    (b"PROXY" + b"x", "does not begin"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.9 5555\r\n", "has not the form"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.9 5555 1883 6\r\n", "has not the form"),
    (b"PROXY TCP5 192.0.2.1 192.0.2.9 5555 1883\r\n", "has not the form"),
    (b"PROXY \r\n", "has not the form"),
    (b"PROXY TCP4 2001:db8::1 2001:db8::9 5555 1883\r\n", "no two addresses of TCP4"),
    (b"PROXY TCP6 192.0.2.1 192.0.2.9 5555 1883\r\n", "no two addresses of TCP6"),
    (b"PROXY TCP6 fe80::1%\x1b[2J fe80::2 5555 1883\r\n", "no two addresses of TCP6"),
    (b"PROXY TCP4 192.0.2.01 192.0.2.9 5555 1883\r\n", "no two addresses"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.9 65536 1883\r\n", "a port is not a number"),
    (b"PROXY TCP4 192.0.2.1 192.0.2.9 5555 -1\r\n", "a port is not a number"),
    (b"PROXY UNKNOWN " + b"f" * 92 + b"\r\n", "longer than 107 bytes"),
    (b"PROXY TCP4 " + b"1" * 200, "longer than 107 bytes"),
    (binary(0x11, 0x11, V4), "version and command are 0x11"),
    (binary(0x22, 0x11, V4), "version and command are 0x22"),
    (binary(0x21, 0x41, V4), "family and transport are 0x41"),
    (binary(0x21, 0x13, V4), "family and transport are 0x13"),
    (binary(0x21, 0x11, V4[:-1]), "have 11 bytes instead of 12"),
    (binary(0x21, 0x21, V4), "have 12 bytes instead of 36"),
    (binary(0x21, 0x31, V6), "have 36 bytes instead of 216"),
    (SIGNATURE + b"\x21\x11\xff\xff", "has 65551 bytes"),
]


@pytest.mark.parametrize(("header", "client"), VALID)
def test_a_header_names_the_client_or_nobody(header: bytes, client: str | None) -> None:
    reader = ProxyHeader()
    assert reader.feed(header + b"the client's") == b"the client's"
    assert client == (None if reader.client is None else str(reader.client))
    assert reader.client is None or not reader.client.is_local


@pytest.mark.parametrize(("header", "client"), VALID[:-1])
def test_a_header_may_arrive_byte_by_byte(header: bytes, client: str | None) -> None:
    reader = ProxyHeader()
    for position in range(len(header) - 1):
        assert reader.feed(header[position : position + 1]) is None
    assert reader.feed(header[-1:]) == b""
    assert client == (None if reader.client is None else str(reader.client))


@pytest.mark.parametrize(("data", "reason"), INVALID)
def test_other_bytes_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidProxyHeader) as caught:
        ProxyHeader().feed(data)
    assert reason in str(caught.value)


def test_a_connection_without_a_header_is_refused_at_its_first_byte() -> None:
    with pytest.raises(InvalidProxyHeader):
        ProxyHeader().feed(b"\x10")


@given(st.lists(st.binary(max_size=40), max_size=8), st.sampled_from([b"", SIGNATURE, SIGNATURE + b"\x21", b"PROXY "]))
def test_any_bytes_are_read_or_refused(pieces: list[bytes], start: bytes) -> None:
    reader = ProxyHeader()
    try:
        for piece in [start, *pieces]:
            if reader.feed(piece) is not None:
                break
    except InvalidProxyHeader:
        pass
