"""The incremental parser: bytes go in as they arrive, Control Packets come out."""

from __future__ import annotations

from holdfast.wire import packets as p
from holdfast.wire.datatypes import read_variable_byte_integer
from holdfast.wire.decoding import decode, decode_publish
from holdfast.wire.errors import ProtocolError, WireError
from holdfast.wire.reasons import ReasonCode

_PUBLISH_FLAGS = range(0x30, 0x40)


class PacketParser:
    """Cuts a byte stream into Control Packets, however it was fragmented.

    ``max_packet_size`` is the largest packet accepted, in bytes with its fixed header; a larger one is refused from
    its fixed header alone, before its body is buffered. ``protocol_version`` is taken from the CONNECT that passes.
    After an error every further call raises the same error.
    """

    __slots__ = (
        "_chunks",
        "_data",
        "_error",
        "_missing",
        "_position",
        "_waiting",
        "max_packet_size",
        "protocol_version",
        "publish_bytes",
    )

    def __init__(self, max_packet_size: int, protocol_version: int | None = None) -> None:
        self.max_packet_size = max_packet_size
        self.protocol_version = protocol_version
        self._data = b""
        self._position = 0
        self._chunks: list[bytes] = []  # what came after _data while a large packet is incomplete
        self._waiting = 0  # bytes in _chunks
        self._missing = 0  # how many bytes must come before looking again makes sense
        self._error: WireError | None = None
        #: bytes of the PUBLISH packets parsed since whoever counts them set it to 0
        self.publish_bytes = 0

    @property
    def buffered(self) -> int:
        """How many bytes are held and not yet parsed."""
        return len(self._data) - self._position + self._waiting

    def receive_data(self, data: bytes) -> None:
        """Store bytes; nothing is parsed yet."""
        if self._position == len(self._data) and not self._chunks:
            self._data = data
            self._position = 0
        else:
            self._chunks.append(data)
            self._waiting += len(data)

    def next_packet(self) -> p.Packet | None:
        """Return the next whole packet, or None when more data is needed.

        Raises :class:`holdfast.wire.MalformedPacket` or :class:`ProtocolError`.
        """
        if self._error is not None:
            raise self._error
        if self._waiting and not self._gather():
            return None
        data = self._data
        position = self._position
        size = len(data)
        if position + 2 > size:
            return None
        first = data[position]
        length = data[position + 1]
        start = position + 2
        version = self.protocol_version
        try:
            if version is None and first >> 4 != 1:  # known from the first byte: nothing of it need be buffered
                raise ProtocolError("the first packet is not CONNECT")  # [MQTT5-3.1.0-1]
            if length > 127:
                try:
                    length, start = read_variable_byte_integer(data, position + 1)
                except IndexError:  # the rest of the Remaining Length has not arrived yet
                    return None
            end = start + length
            if end - position > self.max_packet_size:
                raise ProtocolError(
                    f"the packet has {end - position} bytes, the most accepted is {self.max_packet_size}",
                    ReasonCode.PACKET_TOO_LARGE,
                )
            if end > size:
                self._missing = end - size
                return None
            self._position = end
            if version is not None:
                if first in _PUBLISH_FLAGS:
                    self.publish_bytes += end - position
                    return decode_publish(first, data, start, end, version)
                return decode(first, data, start, end, version)
            packet = decode(first, data, start, end, 4)
        except WireError as error:
            self._error = error
            raise
        if isinstance(packet, p.Connect):
            self.protocol_version = packet.protocol_version
        return packet

    def _gather(self) -> bool:
        """Join what has arrived since; False while it cannot complete the packet at hand."""
        if self._waiting < self._missing:
            return False
        self._data = b"".join((self._data[self._position :], *self._chunks))
        self._position = 0
        self._chunks.clear()
        self._waiting = self._missing = 0
        return True
