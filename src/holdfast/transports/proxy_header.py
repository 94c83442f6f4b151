r"""The header of the PROXY protocol, versions 1 and 2 (haproxy.org/download/3.2/doc/proxy-protocol.txt).

A proxy sends it before the first byte of its client. Version 1 is a line of text, version 2 is binary:

    PROXY TCP4 192.0.2.1 192.0.2.9 5555 1883\r\n
    \r\n\r\n\0\r\nQUIT\n | 21       | 11         | 000c   | c0000201 c0000209 15b3 075b
    signature            | version, | family,    | length | source, destination, their ports;
                         | command  | transport  |        | then fields that are skipped

The header names no client if the proxy speaks for itself, as in health checks (LOCAL), or does not know (UNKNOWN).
It may arrive byte by byte. At most ``LONGEST`` bytes of it are kept.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from holdfast.identity.addresses import Peer, plain

#: The longest header that is accepted, in bytes: room for the certificate of a client among the skipped fields.
LONGEST = 16 << 10

_LONGEST_LINE = 107  # with its end; the standard's limit for version 1
_LINE = b"PROXY "
_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED = len(_SIGNATURE) + 4
_LOCAL, _PROXY = 0x20, 0x21
_TRANSPORTS = 3
_UNIX = 3
#: the bytes of the addresses, by address family: unknown, IPv4, IPv6, UNIX domain sockets
_SIZES = (0, 12, 36, 216)


class InvalidProxyHeader(Exception):
    """The bytes are not a header of the PROXY protocol. The text says why."""


class ProxyHeader:
    """Reads the header of one connection. ``client`` is None until it is complete, and if it names no client."""

    def __init__(self) -> None:
        self._received = b""
        self.client: Peer | None = None

    def feed(self, data: bytes) -> bytes | None:
        """Take received bytes. Return the bytes after the header, or None as long as it is not complete.

        Raises :class:`InvalidProxyHeader`.
        """
        received = self._received = self._received + data
        if received.startswith(_SIGNATURE[: len(received)]):
            return self._binary(received)
        if received.startswith(_LINE[: len(received)]):
            return self._line(received)
        raise InvalidProxyHeader("the connection does not begin with the PROXY protocol")

    def _line(self, received: bytes) -> bytes | None:
        end = received.find(b"\r\n", 0, _LONGEST_LINE)
        if end < 0:
            if len(received) >= _LONGEST_LINE:
                raise InvalidProxyHeader(f"the line is longer than {_LONGEST_LINE} bytes")
            return None
        words = received[:end].decode("latin-1").split(" ")
        if words[1] != "UNKNOWN":  # the rest of such a line means nothing
            self.client = _client_of_line(words)
        return received[end + 2 :]

    def _binary(self, received: bytes) -> bytes | None:
        if len(received) < _FIXED:
            return None
        command, kind = received[len(_SIGNATURE)], received[len(_SIGNATURE) + 1]
        size = int.from_bytes(received[_FIXED - 2 : _FIXED], "big")
        if command not in (_LOCAL, _PROXY):
            raise InvalidProxyHeader(f"version and command are 0x{command:02x}")
        if _FIXED + size > LONGEST:
            raise InvalidProxyHeader(f"the header has {_FIXED + size} bytes, and at most {LONGEST} are read")
        if len(received) < _FIXED + size:
            return None
        if command == _PROXY:
            self.client = _client_of_block(kind, received[_FIXED : _FIXED + size])
        return received[_FIXED + size :]


def _client_of_line(words: list[str]) -> Peer:
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise InvalidProxyHeader("the line has not the form PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT")
    family = IPv4Address if words[1] == "TCP4" else IPv6Address
    try:
        source, _ = (family(text) for text in words[2:4] if "%" not in text)
    except ValueError:
        raise InvalidProxyHeader(f"the line has no two addresses of {words[1]}") from None
    if not all(port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535 for port in words[4:]):
        raise InvalidProxyHeader("a port is not a number from 0 to 65535")
    return Peer(plain(source), int(words[4]), proxied=True)


def _client_of_block(kind: int, block: bytes) -> Peer | None:
    family, transport = kind >> 4, kind & 15
    if family >= len(_SIZES) or transport >= _TRANSPORTS:
        raise InvalidProxyHeader(f"address family and transport are 0x{kind:02x}")
    if len(block) < _SIZES[family]:
        raise InvalidProxyHeader(f"the addresses have {len(block)} bytes instead of {_SIZES[family]}")
    if family == 0:
        return None
    if family == _UNIX:
        return Peer(None, proxied=True)
    source = IPv4Address(block[:4]) if family == 1 else IPv6Address(block[:16])
    ports = _SIZES[family] - 4
    return Peer(plain(source), int.from_bytes(block[ports : ports + 2], "big"), proxied=True)
