"""What one Network Connection still has to send: coalesced per reactor turn, and never more than accounted for."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from zope.interface import Interface

from holdfast.sessions.counters import Counters


class INetworkConnection(Interface):
    """The transport as the Session layer sees it."""

    def write(data: bytes) -> bool:
        """Send bytes. True: all left at once. False: ``Outbox.drained`` is called when the rest has left."""

    def close(data: bytes) -> None:
        """Send these last bytes and close; abort if the peer does not take them in time."""

    def abort() -> None:
        """Close at once, dropping what is unsent."""

    def pause() -> None:
        """Stop reading."""

    def resume() -> None:
        """Read again."""


#: bytes waiting to be sent below which there is room for more retained messages
LOW_WATER = 64 * 1024


class Turns:
    """Runs what was asked for, once each: when what a Client has sent is dealt with, or else in the next turn."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._due: list[Callable[[], None]] = []
        self._receiving = False

    def begin(self) -> None:
        """Bytes have arrived; what is asked for from here on waits for :meth:`end`."""
        self._receiving = True

    def end(self) -> None:
        """The packets that have arrived are dealt with: run what they asked for."""
        self._receiving = False
        if self._due:
            self._run()

    def at_end(self, call: Callable[[], None]) -> None:
        """Call this when all that belongs together has been dealt with."""
        if not (self._due or self._receiving):
            self._clock.callLater(0, self._run)
        self._due.append(call)

    def _run(self) -> None:
        due, self._due = self._due, []
        for call in due:
            call()


class Outbox:
    """Collects one connection's packets and writes what belongs together in one piece.

    ``bytes`` and ``messages`` count what has been accepted here and has not yet left this process. What goes to the
    transport is counted for the whole broker piece by piece, so that a message on its way costs no counting.
    """

    __slots__ = (
        "_chunks",
        "_connection",
        "_counters",
        "_extra",
        "_other_bytes",
        "_others",
        "_scheduled",
        "_turns",
        "_writing",
        "bytes",
        "messages",
        "on_room",
    )

    def __init__(
        self, connection: INetworkConnection, turns: Turns, on_room: Callable[[], None], counters: Counters
    ) -> None:
        self._connection = connection
        self._turns = turns
        self._counters = counters
        self._chunks: list[bytes] = []
        # Of the chunks: how many packets more than chunks are to be counted; how many of those are not messages; and
        # the bytes of all that are not.
        self._extra = self._others = self._other_bytes = 0
        self._scheduled = False
        self._writing = False
        self.bytes = 0
        self.messages = 0
        #: called when there is room again after there was none
        self.on_room = on_room

    def send(self, packets: bytes, count: int = 1) -> None:
        """Queue a PUBLISH, or so many joined."""
        if count != 1:
            self._extra += count - 1
        self._chunks.append(packets)
        self.bytes += len(packets)
        if not (self._scheduled or self._writing):
            self._scheduled = True
            self._turns.at_end(self.flush)

    def send_other(self, packet: bytes) -> None:
        """Queue a packet of any other type."""
        self._others += 1
        self._other_bytes += len(packet)
        self.send(packet)

    def send_uncounted(self, packet: bytes) -> None:
        """Queue a packet that is to be counted as bytes only."""
        self._other_bytes += len(packet)
        self.send(packet, 0)

    def flush(self) -> None:
        """Write what has been collected, unless the transport is still busy with what it has."""
        self._scheduled = False
        if self._writing or not self._chunks:
            return
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self._count(len(data))
        chunks.clear()
        if self._connection.write(data):
            self.bytes = self.messages = 0
            if len(data) >= LOW_WATER:  # so much that a replay may have rested meanwhile
                self.on_room()
        else:
            self.bytes = len(data)
            self._writing = True

    def drained(self) -> None:
        """Take note that the transport has sent everything, and give it the next piece."""
        if not self._writing:
            return
        self._writing = False
        if self._chunks:
            self.bytes = sum(map(len, self._chunks))
            self.messages = len(self._chunks)
            self.flush()
        else:
            self.bytes = self.messages = 0
        if not self._writing:
            self.on_room()

    def take(self, last: bytes) -> bytes:
        """Hand over what has been collected and not yet written, with a last packet (or b""), and forget it."""
        if last:
            self._others += 1
            self._other_bytes += len(last)
            self._chunks.append(last)
        data = b"".join(self._chunks)
        self._count(len(data))
        self._chunks.clear()
        return data

    def _count(self, size: int) -> None:
        """Count the chunks at hand, of so many bytes together: they leave now."""
        counters = self._counters
        packets = len(self._chunks) + self._extra
        counters.packets_sent += packets
        counters.messages_sent += packets - self._others
        counters.bytes_sent += size
        counters.message_bytes_sent += size - self._other_bytes
        self._extra = self._others = self._other_bytes = 0
