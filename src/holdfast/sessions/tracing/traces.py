"""The traces that run now, by Client Identifier."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.sessions.connection.client_link import IClientLink
from holdfast.sessions.tracing.trace import Trace
from holdfast.wire.packets import Connect, Packet

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
        self, clock: IReactorTime, now: Callable[[], int], link_of: Callable[[str], IClientLink | None]
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

    def connecting(self, link: IClientLink, packet: Connect) -> None:
        """Note a CONNECT: if its Client is traced, its Network Connection is observed from now on."""
        if packet.client_id not in self._traces:
            return
        trace, _ = self._traces[packet.client_id]
        trace.event("connecting", address=str(link.peer), listener=link.listener)
        observed = _Observed(trace, packet.protocol_version)
        observed.received(packet)
        link.observe(observed)
