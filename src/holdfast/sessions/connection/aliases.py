"""Topic Aliases [MQTT5-3.3.2.3.4]: numbers in place of Topic Names on one Network Connection, for each direction.

How the Server uses them: the first message of a topic sets an alias, and each further one carries the number alone:

    30 0e | 00 06 abcdef | 00          | hello    as encoded for all subscribers
    30 11 | 00 06 abcdef | 03 23 00 01 | hello    the alias 1 is set
    30 0b | 00 00        | 03 23 00 01 | hello    the alias 1 is used

The packets are rewritten as they are sent. Encodings that several Clients share, and packets that may have to be sent
again on another connection, contain no alias.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from holdfast.wire import ProtocolError, ReasonCode, encode_variable_byte_integer, read_variable_byte_integer

#: the most bytes of Topic Names kept for one Network Connection and direction
MOST_BYTES = 16 << 20

#: the shortest Topic Name, in bytes, that gets an alias: its second message is shorter by the alias
SHORTEST = 6

#: the most bytes that an alias adds to a packet: three of its own, and one more for each of the two lengths
_GROWTH = 5

_LONGEST_PACKET = 5 + 268_435_455


class IncomingAliases:
    """The aliases that a Client has set, at most ``most``."""

    __slots__ = ("_bytes", "_most", "_topics")

    def __init__(self, most: int) -> None:
        self._most = most
        self._topics: dict[int, str] = {}
        self._bytes = 0

    def resolve(self, alias: int, topic: str) -> str:
        """Return the Topic Name of an alias. If ``topic`` is not empty, set the alias to it first."""
        if alias > self._most:
            raise ProtocolError(
                f"the Topic Alias {alias} exceeds the Topic Alias Maximum of {self._most}",
                ReasonCode.TOPIC_ALIAS_INVALID,
            )
        known = self._topics.get(alias)
        if not topic:
            if known is None:
                raise ProtocolError(f"the Topic Alias {alias} has no Topic Name")
            return known
        if topic != known:
            self._bytes += len(topic) - len(known or "")
            if self._bytes > MOST_BYTES:
                raise ProtocolError("the Topic Names with an alias are too long together", ReasonCode.QUOTA_EXCEEDED)
            self._topics[alias] = topic
        return topic

    def forget(self) -> None:
        """Forget all aliases: a packet that was not read to its end may have set any of them."""
        self._topics.clear()
        self._bytes = 0


class OutgoingAliases:
    """The aliases that the Server has set towards a Client, at most ``most``. The least recently used is replaced."""

    __slots__ = ("_bytes", "_free", "_longest", "_most", "_numbers")

    def __init__(self, most: int, maximum_packet_size: int | None) -> None:
        self._most = most
        self._longest = min(maximum_packet_size or _LONGEST_PACKET, _LONGEST_PACKET) - _GROWTH
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._free: list[int] = []
        self._bytes = 0

    def apply(self, packet: bytes) -> bytes:
        """Return an MQTT 5 PUBLISH that uses the alias of its topic, or sets one, or is unchanged."""
        start = 2
        while packet[start - 1] > 127:
            start += 1
        topic_end = start + 2 + (packet[start] << 8 | packet[start + 1])
        topic = packet[start + 2 : topic_end]
        if len(topic) < SHORTEST:
            return packet
        number = self._numbers.get(topic)
        if number is not None:
            self._numbers.move_to_end(topic)
            name = b"\0\0"
        elif packet[0] & 1 or len(packet) > self._longest:
            # A retained message sets no alias: a replay sends each topic once, and would use up all numbers.
            return packet
        else:
            number = self._assign(topic)
            name = packet[start:topic_end]
        properties = topic_end + 2 if packet[0] & 6 else topic_end
        length, position = read_variable_byte_integer(packet, properties)
        head = b"%b%b%b\x23%c%c" % (
            name,
            packet[topic_end:properties],
            encode_variable_byte_integer(length + 3),
            number >> 8,
            number & 255,
        )
        size = encode_variable_byte_integer(len(head) + len(packet) - position)
        return b"".join((packet[:1], size, head, packet[position:]))

    def before(self, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
        """Return a function that gives a PUBLISH its alias and passes it to ``send``."""
        apply = self.apply

        def send_with_alias(packet: bytes) -> None:
            send(apply(packet))

        return send_with_alias

    def _assign(self, topic: bytes) -> int:
        numbers = self._numbers
        self._bytes += len(topic)
        while len(numbers) >= self._most or (numbers and self._bytes > MOST_BYTES):
            forgotten, number = numbers.popitem(last=False)
            self._bytes -= len(forgotten)
            self._free.append(number)
        number = self._free.pop() if self._free else len(numbers) + 1
        numbers[topic] = number
        return number
