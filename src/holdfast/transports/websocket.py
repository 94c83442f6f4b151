"""The layer of WebSocket: between the bytes of the socket, or of TLS, and MQTT's bytes."""

from __future__ import annotations

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.transports.layers import Layer
from holdfast.transports.websocket_frames import Closed, ReceivedFrames, Violation
from holdfast.transports.websocket_opening import NotHTTP, Opening, Refused, RequestHead, answer
from holdfast.wire import ReasonCode

# The layer of WebSocket: between the bytes of the socket, or of TLS, and MQTT's bytes.
#
# How it works. The client sends an HTTP request (:mod:`.websocket_opening`), which the layer answers; from then on both
# sides send frames. The payload of all data frames in one piece of received bytes goes up in one piece. Bytes that come
# from above together go down in one frame. A ping is answered at once, or when all earlier bytes have left: then only
# the last ping gets an answer, so a client that sends pings and reads nothing makes nothing pile up.
#
# Either side may begin the end. Before it closes, the broker waits for the client's Close, because a socket that is
# closed with unread bytes may lose the broker's last ones. The wait is bounded by the socket.


#: of a packet, before its Remaining Length
_FIXED_HEADER = 5
#: messages that may always be received, since a client may join small packets in a message
_SHORTEST_LIMIT = 64 * 1024


class WebSocketLayer(Layer):
    """WebSocket on one connection. ``max_packet_size`` bounds frames and messages too."""

    __slots__ = (
        "_clock",
        "_closing",
        "_frames",
        "_go_on_later",
        "_head",
        "_last",
        "_longest",
        "_opening",
        "_ping",
        "_postponed",
        "_waiting",
    )

    def __init__(self, opening: Opening, max_packet_size: int, clock: IReactorTime) -> None:
        super().__init__()
        self._opening = opening
        self._longest = max(_SHORTEST_LIMIT, _FIXED_HEADER + max_packet_size)
        self._clock = clock
        self._head: RequestHead | None = RequestHead()
        self._frames: ReceivedFrames | None = None
        self._postponed = b""
        self._go_on_later: IDelayedCall | None = None
        self._ping: bytes | None = None  #: that will be answered when everything has left
        self._waiting = False  #: for the layer below to send everything
        self._closing = False  #: the broker has sent Close
        self._last = b""  #: what the client is sent at the end, because of its fault

    # --- received bytes

    def receive(self, data: bytes) -> None:
        """Take bytes from below."""
        if self._go_on_later is not None:  # TLS may bring more, although no more is read
            self._postponed += data
        elif self._head is not None:
            self._open(self._head, data)
        else:
            self._feed(data)

    def _open(self, head: RequestHead, data: bytes) -> None:
        try:
            complete = head.feed(data)
        except NotHTTP as error:
            self._head = None
            self.below.fail("does not speak WebSocket", f"it sent {error}")
            return
        except Refused as refused:
            self._refuse(refused)
            return
        if complete is None:
            return
        request, rest = complete
        try:
            accepted = self._opening.accept(request)
        except Refused as refused:
            self._refuse(refused)
            return
        self._head = None
        self._frames = ReceivedFrames(self._longest)
        self._send(accepted)
        if rest:
            self._feed(rest)

    def _refuse(self, refused: Refused) -> None:
        self._head = None
        self._last = answer(refused)
        self.below.fail("is refused a WebSocket", f"{refused.status}, {refused.explanation}")

    def _feed(self, data: bytes) -> None:
        frames = self._frames
        if frames is None:  # the connection is over
            return
        rest = frames.feed(data)
        payload = frames.take()
        if payload and not self._closing:
            self.above.receive(payload)
            if self._frames is None:  # the connection is over
                return
        if frames.ping is not None:
            self._answer(frames.ping)
            frames.ping = None
        if frames.end is not None:
            self._end(frames.end)
        elif rest:
            self._postponed = rest
            self.below.hold_reading()
            self._go_on_later = self._clock.callLater(0, self._go_on)

    def _go_on(self) -> None:
        """Parse the frames that were left in an earlier turn."""
        data, self._postponed = self._postponed, b""
        self._go_on_later = None
        try:
            self._feed(data)
        except Exception:
            self.below.fail("is closed", "its frames could not be parsed")
            raise
        if self._go_on_later is None:
            self.below.go_on_reading()

    def _answer(self, ping: bytes) -> None:
        if self._closing:
            return
        if self._waiting:
            self._ping = ping
        else:
            self._send(pong(ping))

    # --- sent bytes

    def write(self, data: bytes) -> bool:
        """Send bytes in one frame; return whether all have left this process."""
        sent = self.below.write(binary(data))
        self._waiting = not sent
        return sent

    def _send(self, frame: bytes) -> None:
        self._waiting = not self.below.write(frame)

    def drained(self) -> None:
        """Answer the last ping, and let more bytes come from above."""
        self._waiting = False
        if self._ping is not None:
            ping, self._ping = self._ping, None
            self._answer(ping)
        self.above.drained()

    # --- the end

    def close(self, data: bytes, reason: ReasonCode) -> None:
        """Send these last bytes and Close, and wait for the client's Close."""
        frames = self._frames
        if self._last or frames is None:
            self.below.close(self._last, reason)
            return
        self._closing = True
        self._ping = None
        last = binary(data) if data else b""
        last += close(close_code(reason))
        if frames.end is None:
            self.below.closing()
            self.below.write(last)
        else:  # the client has ended the connection in the same piece of bytes
            self._frames = None
            self.below.close(last, reason)

    def _end(self, end: Violation | Closed) -> None:
        if self._closing:
            self.below.close(b"", ReasonCode.SUCCESS)
        elif isinstance(end, Violation):
            self._last = close(end.code, end.explanation)
            self.below.fail("broke the rules of WebSocket", end.explanation)
        else:
            below = self.below
            self.above.lost()
            below.close(close(end.code), ReasonCode.SUCCESS)

    def lost(self) -> None:
        """Tell the layer above that the connection is over, and forget everything."""
        if self._go_on_later is not None:
            self._go_on_later.cancel()
            self._go_on_later = None
        self._head = self._frames = None
        self._postponed = b""
        super().lost()


# The frames that the broker sends: not masked, never compressed, each a whole message [RFC 6455, 5.2].


#: Bytes in one frame. Browsers hand a message over when it is complete, so a long piece is several messages.
LONGEST = 0xFFFF

_BINARY = 0x82
_CLOSE = 0x88
_PONG = 0x8A

_SHORT = 125
_TWO_BYTES = 126

#: the close codes for Reason Codes; all other failures are violations of a policy
_CODES = {
    ReasonCode.UNSPECIFIED_ERROR: 1011,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR: 1011,
    ReasonCode.MALFORMED_PACKET: 1002,
    ReasonCode.PROTOCOL_ERROR: 1002,
    ReasonCode.PACKET_TOO_LARGE: 1009,
    ReasonCode.SERVER_SHUTTING_DOWN: 1001,
    ReasonCode.SERVER_BUSY: 1013,
    ReasonCode.SERVER_UNAVAILABLE: 1013,
}
_FIRST_FAILURE = 0x80
_NORMAL = 1000
_POLICY_VIOLATION = 1008


def close_code(reason: ReasonCode) -> int:
    """Return the close code of RFC 6455 and its registry that tells most of a Reason Code."""
    return _CODES.get(reason, _POLICY_VIOLATION) if reason >= _FIRST_FAILURE else _NORMAL


def binary(data: bytes) -> bytes:
    """Return data as one frame, or as several if it is long."""
    size = len(data)
    if size <= _SHORT:
        return bytes((_BINARY, size)) + data
    if size <= LONGEST:
        return bytes((_BINARY, _TWO_BYTES, size >> 8, size & 0xFF)) + data
    return b"".join(binary(data[start : start + LONGEST]) for start in range(0, size, LONGEST))


def pong(payload: bytes) -> bytes:
    """Return the answer to a ping."""
    return bytes((_PONG, len(payload))) + payload


def close(code: int | None, explanation: str = "") -> bytes:
    """Return a Close frame with this code, or with none. The explanation is cut where it is too long."""
    if code is None:
        return bytes((_CLOSE, 0))
    payload = (code.to_bytes(2, "big") + explanation.encode("ascii", "replace"))[:_SHORT]
    return bytes((_CLOSE, len(payload))) + payload
