"""One trace: the packets of one Client, as lines that somebody fetches.

How it works. Each packet becomes a line of JSON in a bounded buffer. :meth:`Trace.more` hands out what is there, or
waits. A Client may send and get far more than somebody can read: beyond :data:`MOST_A_SECOND` packets in one second,
and while the buffer is full, packets are only counted, and the next line tells how many were left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.sessions.tracing.records import record_of
from holdfast.wire import PacketParser, WireError
from holdfast.wire.packets import Packet

#: the packets that one trace writes in one second
MOST_A_SECOND = 500
#: bytes of lines that wait to be fetched
MOST_BUFFERED = 1 << 20
#: seconds after which a reader gets an empty line if nothing has happened: so it knows that the trace goes on
HEARTBEAT = 15.0
#: larger than any packet
_LARGEST = 1 << 30


class Trace:
    """The lines of one Client's packets. ``now`` returns milliseconds since the epoch."""

    def __init__(self, clock: IReactorTime, now: Callable[[], int], payload_bytes: int) -> None:
        self._clock = clock
        self._now = now
        self._payload_bytes = payload_bytes
        self._lines: list[bytes] = []
        self._buffered = 0
        self._second = -1
        self._written = 0
        self._left_out = 0
        self._left_out_bytes = 0
        self._waiting: Deferred[bytes] | None = None
        self._heartbeat: IDelayedCall | None = None
        self._is_over = False
        #: of the connection, for the packets that are sent to it
        self.protocol_version = 4

    # --- what happens

    def received(self, packet: Packet) -> None:
        """Write a packet that the Client has sent."""
        if self._may_write():
            self._write("received", record_of(packet, self._payload_bytes))
        else:
            self._left_out += 1

    def sent(self, packets: bytes) -> None:
        """Write packets that are sent to the Client."""
        if not self._may_write(0):
            self._left_out_bytes += len(packets)
            return
        parser = PacketParser(_LARGEST, self.protocol_version)
        parser.receive_data(packets)
        try:
            while (packet := parser.next_packet()) is not None:
                if not self._may_write():
                    self._left_out += 1
                    self._left_out_bytes += parser.buffered
                    return
                self._write("sent", record_of(packet, self._payload_bytes))
        except WireError as error:  # the broker sends only what it can read itself, so this would be its own fault
            self._write("sent", {"unreadable": str(error), "size": parser.buffered})

    def event(self, kind: str, **more: Any) -> None:
        """Write a line about the connection itself."""
        self._write(kind, more)

    def _may_write(self, packets: int = 1) -> bool:
        second = int(self._clock.seconds())
        if second != self._second:
            self._second, self._written = second, 0
        if self._is_over or self._written + packets > MOST_A_SECOND or self._written == MOST_A_SECOND:
            return False
        if self._buffered >= MOST_BUFFERED:
            return False
        self._written += packets
        return True

    def _write(self, event: str, more: dict[str, Any]) -> None:
        moment = datetime.fromtimestamp(self._now() / 1000, UTC)
        line: dict[str, Any] = {"time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z", "event": event}
        if self._left_out or self._left_out_bytes:
            line["left_out"], line["left_out_bytes"] = self._left_out, self._left_out_bytes
            self._left_out = self._left_out_bytes = 0
        self._put(json.dumps(line | more).encode() + b"\n")

    def _put(self, line: bytes) -> None:
        if self._is_over:
            return
        self._lines.append(line)
        self._buffered += len(line)
        self._wake()

    # --- the reader

    def more(self) -> Deferred[bytes]:
        """Fire with the next lines, as soon as there are some; with b"" when the trace is over."""
        if self._lines or self._is_over:
            return succeed(self._take())
        self._waiting = Deferred(lambda _: self._stop_waiting())
        self._heartbeat = self._clock.callLater(HEARTBEAT, self._put, b"\n")
        return self._waiting

    def end(self) -> None:
        """Write nothing any more. The reader gets what is there."""
        self._is_over = True
        self._wake()

    def _take(self) -> bytes:
        lines = b"".join(self._lines)
        self._lines.clear()
        self._buffered = 0
        return lines

    def _wake(self) -> None:
        waiting = self._waiting
        if waiting is not None:
            self._stop_waiting()
            waiting.callback(self._take())

    def _stop_waiting(self) -> None:
        self._waiting = None
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None and heartbeat.active():
            heartbeat.cancel()
