"""Received frames: their headers are checked, and their payload is taken.

How it works. The payload of data frames is taken as it comes, so nothing of a usual frame is stored until its end. MQTT
does not care where frames begin: its Control Packets may be cut and joined in any way [MQTT5-6.0.0-2].

Most frames are of one kind, for which a few lines suffice (:meth:`ReceivedFrames._take_usual`). All others go to the
parser of the library ``websockets``: first the header, then the payload as it arrives. Between the two, the length of
the message is compared with the limit. The parser is made for such a frame and forgotten after it:

    82 85 ...         a whole binary frame       taken here
    82 ff ...         a long binary frame        taken here, in parts
    89 80 ...         a ping                     given to a new parser, which ends with it
    02 fe 40 00 ...   the first of several       given to a new parser, as each of the others

A piece of received bytes may have ten thousand frames. :meth:`ReceivedFrames.feed` stops after
:data:`FRAMES_OF_A_TURN` of them, which take about two milliseconds, and the caller goes on in a later turn.

The library is used without its connections: only its parser of frames, its mask in C and its parser of the handshake.
Tried and left out: wsproto, whose mask in Python takes forty times as long, and doubles the cost of long messages.
"""

from __future__ import annotations

from collections.abc import Generator

from attrs import frozen
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.streams import StreamReader

try:
    from websockets.speedups import apply_mask
except ImportError:  # no wheel for this system: the same in Python
    from websockets.utils import apply_mask

#: frames after which other clients are served
FRAMES_OF_A_TURN = 256

_BINARY = 0x82  # the last frame of a message, which is the only one where no other is open
_MASKED = 0x80
_LAST = 0x80  #: of a message of several frames
_CONTROL = 0x08
_OPCODE = 0x0F
_TWO_BYTES, _EIGHT_BYTES = 126, 127  #: stand for a length in the next bytes
_SHORTEST_FRAME, _LONGEST_HEADER = 6, 14


@frozen
class Violation:
    """The client broke the rules of WebSocket: the close code to send, and the explanation."""

    code: int
    explanation: str


@frozen
class Closed:
    """The client has sent Close, with this code or with none."""

    code: int | None


class ReceivedFrames:
    """The frames of one connection. A data frame, and a message of several, may have ``longest`` bytes.

    ``ping`` is the payload of the last ping if one has come [RFC 6455, 5.5.3], and ``end`` the reason for which nothing
    is parsed any more.
    """

    __slots__ = (
        "_frames",
        "_head",
        "_left",
        "_longest",
        "_mask",
        "_message_size",
        "_parser",
        "_payload",
        "_within",
        "end",
        "ping",
    )

    def __init__(self, longest: int) -> None:
        self.ping: bytes | None = None
        self.end: Violation | Closed | None = None
        self._longest = longest
        self._payload: list[bytes] = []
        self._frames = 0  # in this turn
        self._head = b""  # of a frame whose header is not complete
        self._left = 0  # bytes of payload that the present frame still needs
        self._mask = b""  # of this payload, if it is a usual frame
        self._parser: _Parser | None = None  # of another frame, until its end
        self._within = False  # a message of several frames
        self._message_size = 0

    def feed(self, data: bytes) -> bytes:
        """Parse frames; return the bytes that are left after :data:`FRAMES_OF_A_TURN` of them."""
        self._frames = 0
        start = 0
        while start < len(data) and self.end is None and self._frames < FRAMES_OF_A_TURN:
            if self._left:
                start = self._take_more(data, start)
                continue
            if not (self._head or self._within):
                start = self._take_usual(data, start)
                if start == len(data) or self._frames >= FRAMES_OF_A_TURN:
                    break
            start = self._take_header(data, start)
        return data[start:] if self.end is None else b""

    def take(self) -> bytes:
        """Return the payload of data frames since the last call."""
        payload = self._payload
        if not payload:
            return b""
        data = payload[0] if len(payload) == 1 else b"".join(payload)
        payload.clear()
        return data

    def _take_usual(self, data: bytes, start: int) -> int:
        """Take the payload of the usual frames from this position on; return the position of the first other one.

        These are masked, binary and a whole message each, and their header is complete in these bytes. Everything else
        is left to the library, which takes ten times as long for these.
        """
        end = len(data)
        while end - start >= _SHORTEST_FRAME and data[start] == _BINARY and self._frames < FRAMES_OF_A_TURN:
            size = data[start + 1] - _MASKED
            head = start + 2
            if size == _TWO_BYTES:
                size = data[head] << 8 | data[head + 1]
                head += 2
                if size < _TWO_BYTES:
                    break
            elif size == _EIGHT_BYTES:
                size = int.from_bytes(data[head : head + 8])
                head += 8
                if not 0xFFFF < size <= self._longest:
                    break
            elif not 0 <= size < _TWO_BYTES:
                break
            body = head + 4
            if body > end:
                break
            mask, after = data[head:body], body + size
            if size:
                self._payload.append(apply_mask(data[body:after], mask))
            self._frames += 1
            if after > end:
                self._mask, self._left = _turned(mask, end - body), after - end
                return end
            start = after
        return start

    def _take_more(self, data: bytes, start: int) -> int:
        """Take more payload of a frame whose header came before; return the position behind it."""
        part = data[start : start + self._left]
        self._left -= len(part)
        if self._mask:
            self._payload.append(apply_mask(part, self._mask))
            self._mask = _turned(self._mask, len(part)) if self._left else b""
        else:
            self._parse(part)
        return start + len(part)

    def _take_header(self, data: bytes, start: int) -> int:
        """Take the header of a frame, or the part of it that is there; return the position behind it."""
        known = len(self._head)
        head = self._head + data[start : start + _LONGEST_HEADER - known]
        needed = _header_length(head)
        if len(head) < needed:
            self._head = head
            return len(data)
        self._head = b""
        self._frames += 1
        self._left = size = self._size_in(head)
        self._parser = _Parser(self._longest)
        self._parse(head[:needed])
        if self.end is None and not head[0] & _CONTROL:
            self._check_data(Opcode(head[0] & _OPCODE), size)
            self._within = not head[0] & _LAST
        return start + needed - known

    def _size_in(self, head: bytes) -> int:
        """Return the length of a payload. It must be written in as few bytes as possible [RFC 6455, 5.2]."""
        short = head[1] & ~_MASKED
        if short < _TWO_BYTES:
            return short
        two = short == _TWO_BYTES
        size = int.from_bytes(head[2:4] if two else head[2:10])
        if size < _TWO_BYTES or (not two and not 0xFFFF < size < 1 << 63):
            self._break(CloseCode.PROTOCOL_ERROR, "a length of a frame that is not minimal")
        return size

    def _check_data(self, opcode: Opcode, size: int) -> None:
        """Refuse a data frame before its payload comes: text, too much, or a frame of another message."""
        if opcode is Opcode.TEXT:  # [MQTT5-6.0.0-1]
            self._break(CloseCode.UNSUPPORTED_DATA, "a text frame; MQTT takes binary frames")
        elif (opcode is Opcode.CONT) is not self._within:
            self._break(CloseCode.PROTOCOL_ERROR, "a message that begins within another, or a continuation of none")
        self._message_size = size + (self._message_size if self._within else 0)
        if self._message_size > self._longest:
            self._break(CloseCode.MESSAGE_TOO_BIG, _too_big(self._longest))

    def _parse(self, data: bytes) -> None:
        """Give the library a header or some payload, and take the frame if it is complete."""
        assert self._parser is not None
        try:
            frame = self._parser.feed(data)
            if frame is not None and self.end is None:
                self._parser = None
                self._take(frame)
        except ProtocolError as error:
            self._break(CloseCode.PROTOCOL_ERROR, str(error))
        except PayloadTooBig:
            self._break(CloseCode.MESSAGE_TOO_BIG, _too_big(self._longest))
        except UnicodeDecodeError as error:
            self._break(CloseCode.INVALID_DATA, f"the reason in Close is not UTF-8: {error.reason}")

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            code = int(Close.parse(frame.data).code)
            self.end = Closed(None if code == CloseCode.NO_STATUS_RCVD else code)
        elif frame.opcode is Opcode.PING:
            self.ping = bytes(frame.data)
        elif frame.opcode is not Opcode.PONG and frame.data:
            self._payload.append(bytes(frame.data))

    def _break(self, code: CloseCode, explanation: str) -> None:
        if self.end is None:
            self.end = Violation(int(code), explanation)


class _Parser:
    """Parses one frame, whose bytes come in parts. A frame of more than ``longest`` bytes is refused by its header."""

    def __init__(self, longest: int) -> None:
        self._reader = StreamReader()
        self._parsing: Generator[None, None, Frame] = Frame.parse(self._reader.read_exact, mask=True, max_size=longest)

    def feed(self, data: bytes) -> Frame | None:
        """Return the frame once it is complete. Raises the library's ProtocolError and PayloadTooBig."""
        self._reader.feed_data(data)
        try:
            next(self._parsing)
        except StopIteration as done:
            frame: Frame = done.value
            return frame
        return None


def _turned(mask: bytes, size: int) -> bytes:
    """Return the mask of what follows so many bytes."""
    turn = size % 4
    return mask[turn:] + mask[:turn]


def _too_big(longest: int) -> str:
    return f"a message of more than {longest} bytes (mqtt.max_packet_size)"


def _header_length(head: bytes) -> int:
    """Return how many bytes the header of a frame has, as far as its first bytes tell."""
    if len(head) < 2:
        return 2
    size = head[1] & ~_MASKED
    return 2 + (2 if size == _TWO_BYTES else 8 if size == _EIGHT_BYTES else 0) + (4 if head[1] & _MASKED else 0)
