"""The packets that one Network Connection still has to send: joined once per turn, and counted exactly.

How it works. ``send`` only collects a packet and schedules one ``flush`` for the end of the turn, which joins the
collected packets and writes them in one piece. If the transport takes the whole piece, nothing is left in this process.
If not, ``drained`` tells later that the rest has left; packets collected until then form the next piece. So at most
one piece lies in the transport, and ``bytes`` is exact. A replay or a queue of messages pauses at :data:`LOW_WATER`
bytes, and ``on_room`` lets it go on when they have left. One that pauses with fewer bytes calls ``ask_for_room``.

``answers`` counts the part of ``bytes`` that is no PUBLISH, in the collected packets and in the piece. Nobody needs to
look at it while the transport takes every piece at once. From the moment when it does not, ``on_unsent`` is called for
the piece and for each later packet: the connection then decides whether too much waits. For a PUBLISH it is called as
soon as more than ``max_bytes`` or ``max_messages`` wait behind the piece. If one turn collects more than that, or
:data:`LOW_WATER` bytes, the packets are written early: only packets that the transport does not take count, and many
publishers with much in one turn fill no memory. After messages of a replay it is called at the end of the turn: the
connection must not end in the middle of a slice.

Writing may fail unexpectedly, in a turn that serves many connections. Then ``fail`` ends this one.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from holdfast.scheduling.reactor import turns_of
from holdfast.sessions.connection.link import INetworkConnection
from holdfast.sessions.counters import Counters

#: more bytes or messages than ever wait
UNLIMITED = 1 << 62

#: Replays and queued messages rest while at least this many bytes wait to be sent. As many are sent before the turn
#: ends.
LOW_WATER = 64 * 1024


def _do_nothing() -> None:
    """Do nothing: nobody has asked to be told."""


class Outbox:
    """Collects one connection's packets, and writes all packets of a turn in one piece.

    ``bytes`` and ``messages`` count accepted packets that have not left this process; ``answers`` counts the bytes of
    those that are no PUBLISH. The broker's counters are raised once per piece, so that a single message costs no
    counting.
    """

    __slots__ = (
        "_answers_in_piece",
        "_collected",
        "_counters",
        "_drains",
        "_extra",
        "_fail",
        "_flushes",
        "_network",
        "_other_bytes",
        "_others",
        "_room_wanted",
        "_scheduled",
        "_writing",
        "answers",
        "bytes",
        "max_bytes",
        "max_messages",
        "messages",
        "on_room",
        "on_unsent",
        "waits",
    )

    def __init__(
        self,
        network: INetworkConnection,
        flushes: FlushSchedule,
        counters: Counters,
        fail: Callable[[Failure], None],
        max_bytes: int = UNLIMITED,
        max_messages: int = UNLIMITED,
    ) -> None:
        self._fail = fail
        self.max_bytes = max_bytes
        self.max_messages = max_messages
        self._network = network
        self._flushes = flushes
        self._counters = counters
        self._collected: list[bytes] = []
        # An element may be several packets, or an uncounted packet. Of all elements: the number of packets minus the
        # number of elements; the number of packets that are not messages; the bytes of those packets.
        self._extra = self._others = self._other_bytes = 0
        self._scheduled = False
        self._writing = False
        self._room_wanted = False
        self._answers_in_piece = 0
        self._drains = 0
        self.waits = 0  #: the pieces that the transport did not take at once
        self.bytes = 0
        self.messages = 0
        self.answers = 0
        #: called when the transport has not taken a piece, and for each packet but PUBLISH that has to wait behind it
        self.on_unsent: Callable[[], None] = _do_nothing
        #: called when there is room again: the queued messages and the replays of the admitted Client go on
        self.on_room: Callable[[], None] = _do_nothing

    def write_to(self, network: INetworkConnection) -> None:
        """Write to this transport from now on."""
        self._network = network

    def send_message(self, packet: bytes) -> None:
        """Queue a PUBLISH, and check whether too much waits."""
        # Every message to every client comes this way. So the lines of ``send`` and of ``FlushSchedule.schedule`` are
        # repeated here and in ``send_run``: two calls would cost more than these lines.
        self._collected.append(packet)
        self.bytes += len(packet)
        self.messages += 1
        if not (self._scheduled or self._writing):
            self._scheduled = True
            due = self._flushes.due
            if due:
                due.append(self.flush)
            else:
                self._flushes.schedule(self.flush)
        size = self.bytes
        if size >= LOW_WATER or size > self.max_bytes or self.messages > self.max_messages:
            if not self._writing:
                self.write_early()
            elif size > self.max_bytes or self.messages > self.max_messages:
                self.on_unsent()

    def send_run(self, packets: bytes, count: int) -> bool:
        """Queue ``count`` PUBLISH packets, joined. Returns False, and queues none, if too much would wait."""
        size = self.bytes + len(packets)
        messages = self.messages + count
        if size > self.max_bytes or messages > self.max_messages:
            if self._writing:
                return False
            self.write_early()
            size, messages = len(packets), count
            if self._writing or size > self.max_bytes or messages > self.max_messages:
                return False
        self.bytes = size
        self.messages = messages
        self._extra += count - 1
        self._collected.append(packets)
        if not (self._scheduled or self._writing):  # as in ``send_message``
            self._scheduled = True
            due = self._flushes.due
            if due:
                due.append(self.flush)
            else:
                self._flushes.schedule(self.flush)
        if size >= LOW_WATER and not self._writing:
            self.write_early()
        return True

    def send(self, packets: bytes, count: int = 1) -> None:
        """Queue a packet, or ``count`` of them, joined."""
        if count != 1:
            self._extra += count - 1
        self._collected.append(packets)
        self.bytes += len(packets)
        if not (self._scheduled or self._writing):
            self._scheduled = True
            self._flushes.schedule(self.flush)

    def send_replayed(self, packets: bytes, count: int) -> None:
        """Queue ``count`` PUBLISH packets of a replay, joined."""
        self.messages += count
        self.send(packets, count)
        if self._writing and not self._scheduled:
            self._scheduled = True
            self._flushes.schedule(self._look_again)

    def send_other(self, packet: bytes, count: int = 1) -> None:
        """Queue a packet of any other type, or ``count`` of them, joined."""
        size = len(packet)
        self._others += count
        self._other_bytes += size
        self.answers += size
        self.send(packet, count)
        if self._writing:
            self.on_unsent()

    def send_uncounted(self, packet: bytes) -> None:
        """Queue a PUBLISH, and count its bytes only."""
        self._other_bytes += len(packet)
        self.send(packet, 0)
        if self._writing:
            self.on_unsent()

    def ask_for_room(self) -> None:
        """Call ``on_room`` as soon as all packets collected so far have left, however few they are."""
        self._room_wanted = True
        if not (self._scheduled or self._writing):
            self._scheduled = True
            self._flushes.schedule(self.flush)

    @property
    def is_writing(self) -> bool:
        """Whether the transport has not sent all bytes of the last piece yet."""
        return self._writing

    def progress(self) -> tuple[int, int]:
        """Return a value that changes whenever bytes that had to wait leave this process."""
        return self._drains, self._network.unsent()

    def flush(self) -> None:
        """Write the collected packets, unless the transport still has bytes of the last piece."""
        self._scheduled = False
        collected = self._collected
        if self._writing or not (collected or self._room_wanted):
            return
        try:
            size = self._write()
            if not self._writing and (self._room_wanted or size >= LOW_WATER):  # a replay may have paused because of it
                self._room_wanted = False
                self.on_room()
        except Exception:  # noqa: BLE001 - the connections after this one must still be written
            self._fail(Failure())

    def write_early(self) -> None:
        """Write the collected packets now. ``on_room`` is called at the end of the turn, where they have all left."""
        if self._writing:
            return
        try:
            self._room_wanted |= self._write() >= LOW_WATER
        except Exception:  # noqa: BLE001 - the packet's sender is not to blame
            self._fail(Failure())

    def _write(self) -> int:
        """Write the collected packets, if any, and return their size. ``_writing`` tells whether they have to wait."""
        collected = self._collected
        data = collected[0] if len(collected) == 1 else b"".join(collected)
        size = len(data)
        if size:
            self._count(size)
            collected.clear()
        if not size or self._network.write(data):
            self.bytes = self.messages = self.answers = 0
        else:
            self.bytes = size
            self._answers_in_piece = self.answers
            self._writing = True
            self.waits += 1
            self.on_unsent()
        return size

    def _look_again(self) -> None:
        if self._writing:
            self._scheduled = False
            try:
                self.on_unsent()
            except Exception:  # noqa: BLE001 - the connections after this one must still be written
                self._fail(Failure())
        else:
            self.flush()

    def drained(self) -> None:
        """Note that the transport has sent everything, and give it the next piece."""
        if not self._writing:
            return
        self._writing = False
        self._drains += 1
        self.answers -= self._answers_in_piece
        self.bytes = sum(map(len, self._collected))
        self.messages = len(self._collected) + self._extra - self._others
        self._room_wanted = True
        self.flush()

    def close(self) -> None:
        """Wake and tell nobody any more, and write nothing: the connection is over."""
        self._writing = True
        self.on_room = self.on_unsent = _do_nothing

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


# Decides when the collected packets of all connections are written: at the end of a turn.


_log = Logger()


class FlushSchedule:
    """Runs each scheduled flush once, so that each connection writes all that one turn causes in one piece.

    They run when all clients of a turn of the reactor are read (:class:`holdfast.scheduling.reactor.Turns`). A reactor
    without such turns runs them after each read, or in its next turn.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        #: the scheduled flushes; while there is one, others may be appended without a call of :meth:`schedule`
        self.due: list[Callable[[], None]] = []
        self.rests = False  #: whether the last run has left something
        self._receiving = False
        self._called = False  # whether a call of _next_turn is due
        turns = turns_of(clock)
        self._in_turns = turns is not None
        if turns is not None:
            turns.endings.append(self)

    def begin(self) -> None:
        """Bytes have arrived: flushes scheduled from now on wait for :meth:`end`."""
        self._receiving = True

    def end(self) -> None:
        """The packets have been handled: run the flushes that they caused."""
        self._receiving = False
        if self.due and not self._in_turns:
            self.run()

    def schedule(self, flush: Callable[[], None]) -> None:
        """Run this flush at the end of the present turn."""
        if not (self._in_turns or self.due or self._receiving or self._called):
            self._called = True
            self._clock.callLater(0, self._next_turn)
        self.due.append(flush)

    def _next_turn(self) -> None:
        self._called = False
        self.run()

    def run(self) -> None:
        """Run the scheduled flushes. Those that they schedule run in the next turn."""
        due, self.due = self.due, []
        for flush in due:
            try:
                flush()
            except Exception:  # noqa: BLE001 - the connections after this one must still be written
                _log.failure("writing to a connection failed")
        self.rests = bool(self.due)
