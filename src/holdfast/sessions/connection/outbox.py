"""The packets that one Network Connection still has to send: joined once per turn, and counted exactly.

How it works. ``send`` only collects a packet and schedules one ``flush`` for the end of the turn, which joins the
collected packets and writes them in one piece. If the transport takes the whole piece, nothing is left in this process.
If not, ``drained`` tells later that the rest has left; packets collected until then form the next piece. So at most
one piece lies in the transport, and ``bytes`` is exact. A replay pauses at :data:`LOW_WATER` bytes, and ``on_room``
wakes it when they have left.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.sessions.connection.flush_schedule import FlushSchedule
from holdfast.sessions.connection.network import INetworkConnection
from holdfast.sessions.counters import Counters

#: replays rest while at least this many bytes wait to be sent
LOW_WATER = 64 * 1024


def _do_nothing() -> None:
    """Wake no replay: no Client is admitted yet."""


class Outbox:
    """Collects one connection's packets, and writes all packets of a turn in one piece.

    ``bytes`` and ``messages`` count accepted packets that have not left this process. The broker's counters are
    raised once per piece, so that a single message costs no counting.
    """

    __slots__ = (
        "_collected",
        "_counters",
        "_extra",
        "_flushes",
        "_network",
        "_other_bytes",
        "_others",
        "_scheduled",
        "_writing",
        "bytes",
        "messages",
        "on_room",
    )

    def __init__(self, network: INetworkConnection, flushes: FlushSchedule, counters: Counters) -> None:
        self._network = network
        self._flushes = flushes
        self._counters = counters
        self._collected: list[bytes] = []
        # An element may be several packets, or an uncounted packet. Of all elements: the number of packets minus the
        # number of elements; the number of packets that are not messages; the bytes of those packets.
        self._extra = self._others = self._other_bytes = 0
        self._scheduled = False
        self._writing = False
        self.bytes = 0
        self.messages = 0
        #: called when there is room again: wakes the replays of the admitted Client
        self.on_room: Callable[[], None] = _do_nothing

    def send(self, packets: bytes, count: int = 1) -> None:
        """Queue a PUBLISH, or ``count`` of them, joined."""
        if count != 1:
            self._extra += count - 1
        self._collected.append(packets)
        self.bytes += len(packets)
        if not (self._scheduled or self._writing):
            self._scheduled = True
            self._flushes.schedule(self.flush)

    def send_other(self, packet: bytes) -> None:
        """Queue a packet of any other type."""
        self._others += 1
        self._other_bytes += len(packet)
        self.send(packet)

    def send_uncounted(self, packet: bytes) -> None:
        """Queue a packet, and count its bytes only."""
        self._other_bytes += len(packet)
        self.send(packet, 0)

    def flush(self) -> None:
        """Write the collected packets, unless the transport still has bytes of the last piece."""
        self._scheduled = False
        if self._writing or not self._collected:
            return
        collected = self._collected
        data = collected[0] if len(collected) == 1 else b"".join(collected)
        self._count(len(data))
        collected.clear()
        if self._network.write(data):
            self.bytes = self.messages = 0
            if len(data) >= LOW_WATER:  # a replay may have paused because of them
                self.on_room()
        else:
            self.bytes = len(data)
            self._writing = True

    def drained(self) -> None:
        """Note that the transport has sent everything, and give it the next piece."""
        if not self._writing:
            return
        self._writing = False
        if self._collected:
            self.bytes = sum(map(len, self._collected))
            self.messages = len(self._collected)
            self.flush()
        else:
            self.bytes = self.messages = 0
        if not self._writing:
            self.on_room()

    def take(self, last: bytes) -> bytes:
        """Return the collected packets, followed by a last packet (or b""), and forget them."""
        if last:
            self._others += 1
            self._other_bytes += len(last)
            self._collected.append(last)
        data = b"".join(self._collected)
        self._count(len(data))
        self._collected.clear()
        return data

    def _count(self, size: int) -> None:
        """Count the collected packets, which have this size together and leave now."""
        counters = self._counters
        packets = len(self._collected) + self._extra
        counters.packets_sent += packets
        counters.messages_sent += packets - self._others
        counters.bytes_sent += size
        counters.message_bytes_sent += size - self._other_bytes
        self._extra = self._others = self._other_bytes = 0
