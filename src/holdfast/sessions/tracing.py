"""Traces: the packets of one Client as JSON objects, for the operator who asked for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from attrs import NOTHING, Factory, fields, has
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.core.units import date_of
from holdfast.sessions.connection.connection import Connection
from holdfast.wire import PacketParser, WireError
from holdfast.wire.packets import Connect, Packet, Pubacks
from holdfast.wire.reasons import ReasonCode

# Packets as JSON objects, with the standard's field names: without passwords, and with the beginning of payloads.


#: what is written for a secret that is there
HIDDEN = "***"
_SECRETS = frozenset({"password", "authentication_data"})
#: the most entries of a list: Topic Filters, Reason Codes, User Properties
MOST_ENTRIES = 100
#: the most characters of a text, such as a topic
LONGEST_TEXT = 1000


def record_of(packet: Packet, payload_bytes: int) -> dict[str, Any]:
    """Return a packet as a JSON object, with so many bytes of each payload.

    Fields with their usual value are left out.
    """
    name = type(packet).__name__.upper()
    if isinstance(packet, Pubacks):
        return {"packet": "PUBACK", "count": packet.count}
    return {"packet": name, **_fields(packet, payload_bytes)}


@lru_cache(maxsize=64)
def _usual(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names of the fields, and their usual values."""
    return tuple(
        (each.name, each.default.factory() if isinstance(each.default, Factory) else each.default)  # type: ignore[arg-type]  # attrs types it as a function
        for each in fields(kind)
    )


def _fields(value: Any, payload_bytes: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, usual in _usual(cast("Any", type(value))):
        content = getattr(value, name)
        if usual is not NOTHING and content == usual:
            continue
        if name in _SECRETS:
            shown[name] = HIDDEN
        elif name == "payload":
            shown["size"] = len(content)
            if payload_bytes:
                shown["payload"] = content[:payload_bytes].decode("utf-8", "backslashreplace")
        elif name == "reason_code":
            shown[name] = _reason(content)
        else:
            shown[name] = _plain(content, payload_bytes)
    return shown


def _plain(value: Any, payload_bytes: int) -> Any:
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[:payload_bytes]).hex()
    if has(type(value)):
        return _fields(value, payload_bytes)
    if isinstance(value, Mapping):
        return {str(name): _plain(each, payload_bytes) for name, each in list(value.items())[:MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [_plain(each, payload_bytes) for each in value[:MOST_ENTRIES]]
    return str(value)[:LONGEST_TEXT]


def _reason(code: int) -> str:
    """Return a Reason Code as the standard writes it, such as 0x87, with its name if it has one."""
    try:
        return f"0x{code:02x} {ReasonCode(code).name}"
    except ValueError:
        return f"0x{code:02x}"


# One trace: the packets of one Client, as lines that somebody fetches.
#
# How it works. Each packet becomes a line of JSON in a bounded buffer. :meth:`Trace.more` hands out what is there, or
# waits. A Client may send and get far more than somebody can read: beyond :data:`MOST_A_SECOND` packets in one second,
# and while the buffer is full, packets are only counted, and the next line tells how many were left out.


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
        line: dict[str, Any] = {"time": date_of(self._now()), "event": event}
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


# The traces that run now, by Client Identifier.


#: the traces that may run at the same time
MOST_TRACES = 8


class CannotTrace(Exception):
    """This trace cannot begin now. The text says why."""


class _Observed:
    """Writes what one Network Connection does to the trace of its Client."""

    def __init__(self, trace: Trace, protocol_version: int) -> None:
        self._trace = trace
        self._protocol_version = protocol_version

    def received(self, packet: Packet) -> None:
        """Write a packet of the Client."""
        self._trace.received(packet)

    def sent(self, packets: bytes) -> None:
        """Write packets for the Client."""
        self._trace.protocol_version = self._protocol_version
        self._trace.sent(packets)

    def ended(self, why: str) -> None:
        """Write the end of the Network Connection."""
        self._trace.event("disconnected", reason=why)


class Traces:
    """Begins and ends traces. ``link_of`` returns the Network Connection of a Client, None if it has none."""

    def __init__(
        self, clock: IReactorTime, now: Callable[[], int], link_of: Callable[[str], Connection | None]
    ) -> None:
        self._clock = clock
        self._now = now
        self._link_of = link_of
        self._traces: dict[str, tuple[Trace, IDelayedCall]] = {}

    def begin(self, client_id: str, seconds: float, payload_bytes: int) -> Trace:
        """Trace a Client for so many seconds, whether it is connected or not. Raises CannotTrace."""
        if client_id in self._traces:
            raise CannotTrace("this client is traced already")
        if len(self._traces) >= MOST_TRACES:
            raise CannotTrace(f"{MOST_TRACES} clients are traced already")
        trace = Trace(self._clock, self._now, payload_bytes)
        self._traces[client_id] = trace, self._clock.callLater(seconds, self.end, client_id, trace)
        link = self._link_of(client_id)
        if link is None:
            trace.event("waiting", reason="the client is not connected")
        else:
            trace.event("connected", address=str(link.peer), listener=link.listener)
            link.observe(_Observed(trace, link.protocol_version))
        return trace

    def end(self, client_id: str, trace: Trace) -> None:
        """End a trace, if it is not over."""
        running, timer = self._traces.get(client_id, (None, None))
        if running is not trace:
            return
        del self._traces[client_id]
        if timer is not None and timer.active():
            timer.cancel()
        link = self._link_of(client_id)
        if link is not None:
            link.observe(None)
        trace.end()

    def connecting(self, link: Connection, packet: Connect) -> None:
        """Note a CONNECT: if its Client is traced, its Network Connection is observed from now on."""
        if packet.client_id not in self._traces:
            return
        trace, _ = self._traces[packet.client_id]
        trace.event("connecting", address=str(link.peer), listener=link.listener)
        observed = _Observed(trace, packet.protocol_version)
        observed.received(packet)
        link.observe(observed)
