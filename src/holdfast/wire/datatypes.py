"""The data representations of MQTT [MQTT5-1.5]: integers, strings, binary data."""

from __future__ import annotations

from holdfast.wire.characters import control_character
from holdfast.wire.errors import MalformedPacket
from holdfast.wire.reception import EVERYTHING, Reception

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
