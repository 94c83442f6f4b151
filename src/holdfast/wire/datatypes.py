"""The data representations of MQTT [MQTT5-1.5], the rules of a receiver, and the errors in a peer's bytes."""

from __future__ import annotations

import re

from attrs import frozen

from holdfast.wire.properties import Properties
from holdfast.wire.reasons import ReasonCode

# The rules of one receiver for the packets of its peer, beyond those of the standard.


_UNLIMITED = 1 << 62


@frozen
class Reception:
    """The rules of one receiver. The default accepts everything that the standard allows, from Clients and Servers.

    ``max_user_properties`` is the most User Properties of one packet or Will Message. ``max_properties_bytes`` is the
    longest Property Length, without Authentication Data. ``control_characters`` tells whether control characters and
    non-characters are accepted [MQTT5-1.5.4]. ``from_client`` refuses packets that only a Server may send.
    """

    max_user_properties: int = _UNLIMITED
    max_properties_bytes: int = _UNLIMITED
    control_characters: bool = True
    from_client: bool = False


EVERYTHING = Reception()

MAXIMUM_VARIABLE_BYTE_INTEGER = 268_435_455


def encode_variable_byte_integer(value: int) -> bytes:
    """Encode 0..268,435,455 in the fewest bytes [MQTT5-1.5.5-1]. Raises ValueError outside that range."""
    if 0 <= value < 128:
        return bytes((value,))
    if not 0 <= value <= MAXIMUM_VARIABLE_BYTE_INTEGER:
        raise ValueError(f"{value} does not fit a Variable Byte Integer (0..{MAXIMUM_VARIABLE_BYTE_INTEGER})")
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_variable_byte_integer(data: bytes, position: int) -> tuple[int, int]:
    """Read the Variable Byte Integer at ``position``; return its value and the position after it.

    Raises :class:`MalformedPacket` for more than four bytes and for more bytes than the value needs [MQTT5-1.5.5-1],
    IndexError if the data ends before the integer does.
    """
    value = data[position]
    if value < 128:
        return value, position + 1
    value &= 127
    for shift in (7, 14, 21):
        position += 1
        byte = data[position]
        value |= (byte & 127) << shift
        if byte < 128:
            if not byte:
                raise MalformedPacket("a Variable Byte Integer uses the fewest bytes")
            return value, position + 1
    raise MalformedPacket("a Variable Byte Integer has at most four bytes")


def encode_binary(value: bytes) -> bytes:
    """Encode Binary Data with its two-byte length. Raises ValueError over 65,535 bytes."""
    if len(value) > 65535:
        raise ValueError(f"{len(value)} bytes do not fit a field of at most 65535")
    return len(value).to_bytes(2, "big") + value


def encode_string(value: str) -> bytes:
    """Encode a UTF-8 Encoded String. Raises ValueError for U+0000, surrogates, or over 65,535 bytes."""
    if "\0" in value:
        raise ValueError("a string contains no U+0000")
    return encode_binary(value.encode())


class Cursor:
    """Reads the fields of a packet's body one after the other. Every read checks the bounds.

    ``reception`` has the rules of the receiver.
    """

    __slots__ = ("data", "end", "position", "reception")

    def __init__(self, data: bytes, position: int, end: int, reception: Reception = EVERYTHING) -> None:
        self.reception = reception
        self.data = data
        self.position = position
        self.end = end

    def remaining(self) -> int:
        """Return the number of bytes that are not read yet."""
        return self.end - self.position

    def take(self, length: int) -> bytes:
        """Return the next ``length`` bytes."""
        start = self.position
        stop = start + length
        if stop > self.end:
            raise MalformedPacket("the packet ends inside a field")
        self.position = stop
        return self.data[start:stop]

    def byte(self) -> int:
        """Read one byte."""
        if self.position >= self.end:
            raise MalformedPacket("the packet ends inside a field")
        value = self.data[self.position]
        self.position += 1
        return value

    def two_byte_integer(self) -> int:
        """Read a Two Byte Integer."""
        return int.from_bytes(self.take(2), "big")

    def four_byte_integer(self) -> int:
        """Read a Four Byte Integer."""
        return int.from_bytes(self.take(4), "big")

    def variable_byte_integer(self) -> int:
        """Read a Variable Byte Integer of at most four bytes, in its shortest form [MQTT5-1.5.5-1]."""
        try:
            value, position = read_variable_byte_integer(self.data, self.position)
        except IndexError:
            raise MalformedPacket("the packet ends inside a field") from None
        if position > self.end:  # the data can be longer than the part that this cursor reads
            raise MalformedPacket("the packet ends inside a field")
        self.position = position
        return value

    def binary(self) -> bytes:
        """Read Binary Data."""
        return self.take(self.two_byte_integer())

    def string(self) -> str:
        """Read a UTF-8 Encoded String without surrogates and U+0000 [MQTT5-1.5.4-1], [MQTT5-1.5.4-2]."""
        try:
            value = self.binary().decode()
        except UnicodeDecodeError:
            raise MalformedPacket("a string is not well-formed UTF-8") from None
        if "\0" in value:
            raise MalformedPacket("a string contains U+0000")
        return value

    def name(self, field: str) -> str:
        """Read a UTF-8 Encoded String that names something. ``field`` is its term in the standard.

        Raises :class:`MalformedPacket` for control characters and non-characters if the receiver refuses them.
        """
        value = self.string()
        check_characters(value, field, self.reception)
        return value


def check_characters(value: str, field: str, reception: Reception) -> None:
    """Raise :class:`MalformedPacket` for a control character that the receiver refuses [MQTT5-1.5.4]."""
    if not reception.control_characters:
        refused = control_character(value)
        if refused is not None:
            raise MalformedPacket(f"{field} contains {refused}")


# The errors in a peer's bytes: malformed packets and protocol errors [MQTT5-1.2], and excessive properties.


class WireError(Exception):
    """The peer broke the rules. ``reason`` is the Reason Code of the answer.

    If the packet is a CONNECT, ``protocol_version`` is its protocol level and ``connect_properties`` are its
    properties. Both are None if the error came before them.
    """

    default_reason = ReasonCode.UNSPECIFIED_ERROR

    def __init__(self, message: str, reason: ReasonCode | None = None, protocol_version: int | None = None) -> None:
        super().__init__(message)
        self.reason = self.default_reason if reason is None else reason
        self.protocol_version = protocol_version
        self.connect_properties: Properties | None = None


class MalformedPacket(WireError):
    """The bytes cannot be parsed according to the standard [MQTT5-1.2]."""

    default_reason = ReasonCode.MALFORMED_PACKET


class ProtocolError(WireError):
    """The packet can be parsed but breaks another rule of the standard [MQTT5-1.2]."""

    default_reason = ReasonCode.PROTOCOL_ERROR


class ExcessiveProperties(WireError):
    """The packet has more properties than the receiver accepts. Where the packet ends is known all the same."""

    default_reason = ReasonCode.QUOTA_EXCEEDED


# Control characters and non-characters, which a UTF-8 Encoded String should not include [MQTT5-1.5.4].


_CONTROL = re.compile(
    "[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17))
    + "]"
)


def control_character(text: str) -> str | None:
    """Return the first control character or non-character of a text as ``U+001B``, None if it has none.

    Control characters are U+0001 to U+001F and U+007F to U+009F; non-characters are U+FDD0 to U+FDEF and the last two
    of each plane.
    """
    if text.isprintable():  # all of them are unprintable: usual texts cost one call
        return None
    found = _CONTROL.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"
