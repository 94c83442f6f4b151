"""Received frames: Autobahn parses the handshake and the frames, and this class takes what they contain from it.

How it works. Autobahn checks and unmasks; it neither collects nor sends, logs or counts time here. The payload of data
frames is taken as it comes, so nothing of a frame is stored until its end. MQTT does not care where frames begin: its
Control Packets may be cut and joined in any way [MQTT5-6.0.0-2].

Autobahn copies the bytes that it has not parsed after each frame. A piece of 64 KiB with the shortest frames would take
it a quarter of a second. So it is fed in slices (:data:`SLICE`), and :meth:`feed` stops after :data:`FRAMES_OF_A_TURN`
frames, which take about two milliseconds. The caller goes on in a later turn of the reactor.

Most frames are of one kind, for which checking and unmasking take a few lines (:meth:`_take_whole_frames`). Autobahn
gets all others, and the frames that arrive in parts.

Autobahn copies its options into each protocol, and keeps the request. Here the options are attributes of the class, and
the request is dropped: an idle connection takes a third of the memory.
"""

from __future__ import annotations

from typing import Any

import txaio
from attrs import frozen

txaio.use_twisted()  # Autobahn's protocol needs it before its import; autobahn.twisted would take WAMP and a reactor

from autobahn.websocket.protocol import TrafficStats, WebSocketServerFactory, WebSocketServerProtocol  # noqa: E402

from holdfast.transports.websocket_opening import Opening, Refused  # noqa: E402 - after use_twisted()

#: bytes that Autobahn is given at once, unless they are within one frame
SLICE = 2048

#: frames after which other clients are served
FRAMES_OF_A_TURN = 256

_BINARY = 0x82  # the last frame of a message, which is the only one where no other is open
_MASKED = 0x80
_TWO_BYTES = 126  #: stands for a length in the next two bytes
_SHORTEST_FRAME = 6

_PROTOCOL_ERROR = 1002
_UNSUPPORTED_DATA = 1003
_TOO_BIG = 1009

#: what is kept of a connection after its handshake
_KEPT = (
    "_frames",
    "_longest",
    "_message_size",
    "_opening",
    "_payload",
    "answer",
    "current_frame",
    "data",
    "end",
    "inside_message",
    "ping",
    "state",
)

#: what Autobahn looks at, and what is None of every connection here: no compression, no pings of the broker, no timers
_NONE = (
    "_perMessageCompress",
    "autoPingPending",
    "autoPingTimeoutCall",
    "closeHandshakeTimeoutCall",
    "current_frame",
    "failedByMe",
    "trackedTimings",
    "websocket_version",
)


@frozen
class Violation:
    """The client broke the rules of WebSocket: the close code to send, and the explanation."""

    code: int
    explanation: str


@frozen
class Closed:
    """The client has sent Close, with this code or with none."""

    code: int | None


class _Silence:
    """Autobahn's logger: the broker logs in its own words."""

    def debug(self, *_: object, **__: object) -> None:
        """Log nothing."""

    info = warn = error = debug


def _options() -> Any:
    """Return the options of all connections. The broker checks origins, sizes and times itself."""
    options = WebSocketServerFactory("ws://localhost", server=None)
    options.setProtocolOptions(
        versions=[13], webStatus=False, utf8validateIncoming=False, openHandshakeTimeout=0, closeHandshakeTimeout=0,
        failByDrop=True, allowNullOrigin=True,
    )  # fmt: skip
    return options


_OPTIONS = _options()


class ReceivedFrames(WebSocketServerProtocol):
    """The parser of one connection. A data frame, and a message of several, may have ``longest`` bytes.

    ``answer`` is the answer to the handshake, ``ping`` the payload of the last ping if one has come, and ``end`` the
    reason for which nothing is parsed any more.
    """

    log = _Silence()
    factory = _OPTIONS
    peer = ""
    locals().update({name: getattr(_OPTIONS, name) for name in WebSocketServerProtocol.CONFIG_ATTRS})
    CONFIG_ATTRS: list[str] = []  # nothing is copied
    locals().update(dict.fromkeys(_NONE))
    trafficStats = TrafficStats()

    def __init__(self, opening: Opening, longest: int) -> None:
        super().__init__()
        self._opening = opening
        self._longest = longest
        self._payload: list[bytes] = []
        self._frames = 0
        self._message_size = 0
        self.answer = b""
        self.ping: bytes | None = None
        self.end: Refused | Violation | Closed | None = None
        self._connectionMade()

    def open(self, head: bytes) -> None:
        """Parse a whole request, up to its empty line. Sets ``answer`` or ``end``."""
        self._dataReceived(head)
        state = self.__dict__
        self.__dict__ = {name: state[name] for name in _KEPT if name in state}

    def feed(self, data: bytes) -> bytes:
        """Parse frames; return the bytes that are left after :data:`FRAMES_OF_A_TURN` of them."""
        self._frames = 0
        start = 0
        while start < len(data) and self.end is None and self._frames < FRAMES_OF_A_TURN:
            if not self._is_within:
                start = self._take_whole_frames(data, start)
                if start == len(data) or self._frames >= FRAMES_OF_A_TURN:
                    break
            stop = start + self._step()
            self._dataReceived(data[start:stop])
            start = stop
        return data[start:] if self.end is None else b""

    def take(self) -> bytes:
        """Return the payload of data frames since the last call."""
        payload = self._payload
        if not payload:
            return b""
        data = payload[0] if len(payload) == 1 else b"".join(payload)
        payload.clear()
        return data

    def _take_whole_frames(self, data: bytes, start: int) -> int:
        """Take the payload of the usual frames from this position on; return the position of the first other one.

        These are masked, binary, a whole message each, of at most 65,535 bytes, and complete in these bytes. Everything
        else is left to Autobahn, which would take ten times as long for these.
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
            elif not 0 <= size < _TWO_BYTES:
                break
            after = head + 4 + size
            if after > end:
                break
            if size:
                mask = (data[head : head + 4] * (size // 4 + 1))[:size]
                number = int.from_bytes(data[head + 4 : after]) ^ int.from_bytes(mask)
                self._payload.append(number.to_bytes(size))
            self._frames += 1
            start = after
        return start

    @property
    def _is_within(self) -> bool:
        """Whether Autobahn has the beginning of a frame, or of a message of several."""
        return bool(self.data) or self.inside_message or self.current_frame is not None

    def _step(self) -> int:
        """Return how many bytes Autobahn is given: what its frame still needs, or byte by byte the rest of a header."""
        frame: Any = self.current_frame
        if frame is not None:
            return max(1, int(frame.length - self.current_frame_masker.pointer()))
        return 1 if self.data else SLICE

    def _stop(self, end: Refused | Violation | Closed) -> None:
        if self.end is None:
            self.end = end
        self.state = WebSocketServerProtocol.STATE_CLOSED

    # --- Autobahn's calls: the handshake

    def _parseExtensionsHeader(self, _header: str, removeQuotes: bool = True) -> list[object]:
        """Accept no extension: no compression, so a small frame never becomes a large message."""
        return []

    def onConnect(self, request: Any) -> str | None:
        """Judge a request of the right form."""
        try:
            return self._opening.judge(self.http_request_uri, self.http_headers, request.protocols)
        except Refused as refused:
            self._stop(Refused(refused.status, refused.explanation))
            return None

    def succeedHandshake(self, res: str | None) -> None:
        """Answer the request, unless it is refused."""
        if self.end is None:
            super().succeedHandshake(res)

    def failHandshake(self, reason: str, code: int = 400, responseHeaders: object = None) -> None:
        """Refuse a request of the wrong form."""
        self._stop(Refused(code, reason))

    def sendData(self, data: bytes, sync: bool = False, chopsize: int | None = None) -> None:
        """Keep the answer to the handshake. Autobahn sends nothing else here."""
        self.answer += data

    def _onOpen(self) -> None:
        """Do nothing: the caller knows."""

    # --- Autobahn's calls: frames

    def onFrameBegin(self) -> None:
        """Count the frame."""
        self._frames += 1
        super().onFrameBegin()

    def _onMessageBegin(self, isBinary: bool) -> None:
        self._message_size = 0
        if not isBinary:  # [MQTT5-6.0.0-1]
            self._stop(Violation(_UNSUPPORTED_DATA, "a text frame; MQTT takes binary frames"))

    def _onMessageFrameBegin(self, length: int) -> None:
        self._message_size += length
        if self._message_size > self._longest:
            self._stop(Violation(_TOO_BIG, f"a message of more than {self._longest} bytes (mqtt.max_packet_size)"))

    def _onMessageFrameData(self, payload: bytes) -> None:
        if payload and self.end is None:
            self._payload.append(payload)

    def _onMessageFrameEnd(self) -> None:
        """Do nothing: the payload is taken already."""

    def _onMessageEnd(self) -> None:
        """Do nothing: the payload is taken already."""

    def _onPing(self, payload: bytes) -> None:
        """Note the last ping: only that one needs an answer [RFC 6455, 5.5.3]."""
        self.ping = payload

    def _onPong(self, payload: bytes) -> None:
        """Do nothing: the broker sends no pings."""

    def _fail_connection(self, code: int = _PROTOCOL_ERROR, reason: str = "") -> None:
        self._stop(Violation(code, reason))

    def sendCloseFrame(self, code: int | None = None, reasonUtf8: bytes | None = None, isReply: bool = False) -> None:
        """Send nothing: the layer answers."""

    def dropConnection(self, abort: bool = False) -> None:
        """Note that a valid Close has come."""
        self._stop(Closed(self.remoteCloseCode))
