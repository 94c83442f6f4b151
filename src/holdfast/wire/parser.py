r"""The incremental parser: the bytes of a connection go in, Control Packets come out.

How it works
============

The transport delivers bytes in arbitrary pieces. A PUBLISH of 300 bytes can arrive like this:

    receive_data(b"\x30")              next_packet() -> None: a fixed header has at least two bytes
    receive_data(b"\xa9\x02...")       100 bytes; None: 199 bytes are missing
    receive_data(100 bytes)            None at once: the parser does not look at the bytes
    receive_data(150 bytes)            next_packet() -> the PUBLISH; 51 bytes of the next packet stay buffered

The parser holds one ``bytes`` object with a position, and a list of the pieces that have arrived since. The pieces are
joined once, when enough bytes for the packet have arrived. So a packet of 1 MiB in pieces of 1 KiB is copied once, and
not a thousand times. If all bytes are parsed, which is the usual case, the next piece is used without a copy.

A Client that receives much acknowledges much: thousands of PUBACK packets in one piece. If the caller asks for several
packets at once, the parser returns consecutive PUBACKs as one :class:`~holdfast.wire.packets.Pubacks`.

Invariants: the packets do not depend on the division into pieces. The parser never buffers more than one packet of the
maximum size and one piece. An error is final: after it, the boundaries between packets are unknown.

:meth:`PacketParser.next_run` also finds runs of PUBLISH packets of the ``known`` topics (:class:`holdfast.wire.Run`).
With a :class:`RunTaker` it finds retained runs too (:class:`holdfast.wire.RetainedRun`). The owner may give a run back
with :meth:`PacketParser.take_back`. Then its packets come one by one.

Left out: a buffer of type ``bytearray``. Each packet's payload would have to be copied out of it twice.
"""

from __future__ import annotations

from holdfast.wire import packets as p
from holdfast.wire.datatypes import EVERYTHING, ProtocolError, Reception, WireError, read_variable_byte_integer
from holdfast.wire.decoding import decode, decode_publish
from holdfast.wire.encoding import stretch_end
from holdfast.wire.packets import PUBLISHES, check_first_byte
from holdfast.wire.reasons import ReasonCode
from holdfast.wire.runs import (
    RETAINED_FIRST_BYTES,
    RetainedRun,
    Routes,
    Run,
    RunTaker,
    Single,
    find_retained_run,
    find_run,
    find_single,
)

#: A piece of at most so many bytes may stay in memory after its last packet is parsed, until the next piece comes.
#: A longer one is given up at once: a silent Client must not hold the memory of the largest packet it has sent.
KEPT = 4096

_PINGREQ = b"\xc0\x00"

#: no PUBLISH packets form runs
NO_TOPICS: dict[int, Routes] = {}


class PacketParser:
    """Cuts a byte stream into Control Packets.

    ``max_packet_size`` is the size of the largest accepted packet, in bytes with its fixed header. A larger packet is
    refused when its fixed header has arrived, a wrong type or wrong flags with the first byte: before the body is
    buffered. ``limit`` tells in messages where that size comes from. The first CONNECT sets ``protocol_version``. After
    an error, every further call raises the same error.
    """

    __slots__ = (
        "_data",
        "_error",
        "_missing",
        "_pieces",
        "_position",
        "_reception",
        "_single_until",
        "_waiting",
        "known",
        "limit",
        "max_packet_size",
        "packets",
        "protocol_version",
        "publish_bytes",
        "retained_taker",
    )

    def __init__(
        self, max_packet_size: int, protocol_version: int | None = None, reception: Reception = EVERYTHING
    ) -> None:
        self._reception = reception
        self.max_packet_size = max_packet_size
        self.limit = ""
        self.protocol_version = protocol_version
        self._data = b""
        self._position = 0
        self._pieces: list[bytes] = []  # the pieces after _data, while a packet is incomplete
        self._waiting = 0  # bytes in _pieces
        self._missing = 0  # bytes that have to arrive before the packet is complete
        self._error: WireError | None = None
        self._single_until = 0  # before this position in _data, packets come one by one
        #: the routes of topics whose PUBLISH packets may form runs, by first byte (see :class:`KnownTopics`)
        self.known: dict[int, Routes] = NO_TOPICS
        #: who takes retained runs; without it, there are none
        self.retained_taker: RunTaker | None = None
        #: packets parsed so far; the owner counts them and sets this to 0
        self.packets = 0
        #: bytes of the PUBLISH packets parsed so far; the owner counts them and sets this to 0
        self.publish_bytes = 0

    @property
    def buffered(self) -> int:
        """The number of bytes that are not parsed yet."""
        return len(self._data) - self._position + self._waiting

    @property
    def held(self) -> int:
        """The number of bytes in memory, parsed or not."""
        return len(self._data) + self._waiting

    def receive_data(self, data: bytes) -> None:
        """Buffer bytes. :meth:`next_packet` parses them."""
        if self._position == len(self._data) and not self._pieces:
            self._data = data
            self._position = self._single_until = 0
        else:
            self._pieces.append(data)
            self._waiting += len(data)

    def single(self, data: bytes) -> Single | p.Puback | None:
        """Return the packet that these bytes, the next ones, are as a whole, if it is one of the most frequent.

        That is a PUBLISH of a known topic, and a PUBACK without properties. It is parsed then, and the owner counts it.
        For all other bytes call :meth:`receive_data`.
        """
        if self._position != len(self._data) or self._pieces or self._error is not None:
            return None
        if len(data) == 4 and data[0] == 0x40:
            identifier = data[2] << 8 | data[3]
            if data[1] == 2 and identifier and self.protocol_version is not None:
                return p.Puback(identifier)
        elif self.known:
            return find_single(data, self.known, self.protocol_version == 5, self.max_packet_size)
        return None

    def next_run(self, most: int = 1) -> p.Packet | Run | RetainedRun | None:
        """Return the next run of packets, or the next whole packet if no run begins there: see :meth:`next_packet`."""
        taker = self.retained_taker
        if (self.known or taker) and self._error is None and (not self._waiting or self._join_pieces()):
            data = self._data
            position = self._position
            if self._single_until <= position < len(data):
                routes = self.known.get(data[position])
                v5 = self.protocol_version == 5
                run: Run | RetainedRun | None
                if routes:
                    run = find_run(data, position, routes, v5, self.max_packet_size)
                    if run is not None:
                        self._position = run.end
                        self.packets += run.count
                        self.publish_bytes += run.end - position
                        return run
                elif taker is not None and data[position] in RETAINED_FIRST_BYTES:
                    run = find_retained_run(data, position, most, v5, self.max_packet_size, taker)
                    if run is not None:
                        self._position = run.end
                        self.packets += run.count
                        self.publish_bytes += run.end - position
                        return run
        return self.next_packet(most)

    def next_packet(self, most: int = 1) -> p.Packet | None:
        """Return the next whole packet, or None if more bytes are needed.

        Returns up to ``most`` consecutive PUBACK packets together.
        Raises :class:`holdfast.wire.MalformedPacket` or :class:`ProtocolError`.
        """
        if self._error is not None:
            raise self._error
        if self._waiting and not self._join_pieces():
            return None
        data = self._data
        position = self._position
        size = len(data)
        if position + 2 > size:
            if position < size:
                self._check(data[position])
            elif size > KEPT:
                self._data, self._position = b"", 0
            return None
        first = data[position]
        length = data[position + 1]
        start = position + 2
        version = self.protocol_version
        try:
            if length > 127:
                try:
                    length, start = read_variable_byte_integer(data, position + 1)
                except IndexError:  # the rest of the Remaining Length has not arrived yet
                    self._check(first)
                    return None
            end = start + length
            if end - position > self.max_packet_size:
                self._check(first)
                raise ProtocolError(
                    f"the packet has {end - position} bytes, the most accepted is {self.max_packet_size}{self.limit}",
                    ReasonCode.PACKET_TOO_LARGE,
                )
            if end > size:
                self._check(first)
                self._missing = end - size
                return None
            self._position = end
            packet: p.Packet
            if version is None:
                packet = decode(first, data, start, end, None, self._reception)
                if isinstance(packet, p.Connect):
                    self.protocol_version = packet.protocol_version
            elif first in PUBLISHES:
                self.publish_bytes += end - position
                packet = decode_publish(first, data, start, end, version, self._reception)
            elif first == 0x40 and (last := stretch_end(data, position, most)) > end:
                self._position = last
                self.packets += (last - position) // 4
                return p.Pubacks(data[position:last])
            else:
                packet = decode(first, data, start, end, version, self._reception)
        except WireError as error:
            self._error = error
            raise
        self.packets += 1
        return packet

    def take_pingreq(self) -> bool:
        """Parse the next packet if it is a whole PINGREQ; tell whether it is. The owner counts it."""
        if self._error is not None:
            return False
        # Pieces are joined only behind fewer than two bytes: so the cost of many calls stays small.
        if self._waiting and len(self._data) - self._position < len(_PINGREQ) and not self._join_pieces():
            return False
        if not self._data.startswith(_PINGREQ, self._position):
            return False
        self._position += len(_PINGREQ)
        return True

    def take_back(self, run: Run | RetainedRun) -> None:
        """Parse the run that :meth:`next_run` has just returned once more, one packet at a time."""
        self._position = run.start
        self._single_until = run.end
        self.packets -= run.count
        self.publish_bytes -= run.end - run.start

    def close(self) -> None:
        """Forget all bytes: the connection is over. Call nothing else after this."""
        self.known = NO_TOPICS
        self.retained_taker = None
        # The error has a traceback, which refers to this parser and its bytes.
        self._data, self._pieces, self._waiting, self._error = b"", [], 0, None

    def _check(self, first: int) -> None:
        """Refuse an incomplete packet that is wrong by its first byte."""
        try:
            check_first_byte(first, self.protocol_version, self._reception.from_client)
        except WireError as error:
            self._error = error
            raise

    def _join_pieces(self) -> bool:
        """Join the pieces; False if they cannot complete the packet yet."""
        if self._waiting < self._missing:
            return False
        self._data = b"".join((self._data[self._position :], *self._pieces))
        self._position = self._single_until = 0
        self._pieces.clear()
        self._waiting = self._missing = 0
        return True
