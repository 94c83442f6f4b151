"""Acts on the packets of one Client one after the other; later packets wait while an answer is awaited.

How it works. ``receive`` gives bytes to the parser and then acts on every whole packet. An action may call ``hold``,
for example to wait for the authorizer: the loop stops behind that packet, and ``release`` continues it. An example:
the bytes of SUBSCRIBE and PINGREQ arrive together, and the authorizer answers SUBSCRIBE with a Deferred. SUBSCRIBE
calls ``hold``, PINGREQ stays in the parser, and SUBACK and PINGRESP leave in this order after ``release``. One action
takes all consecutive PUBACK packets.

A Client may send thousands of short packets in one piece. After :data:`PACKETS_OF_A_TURN` packets the others have their
turn: the loop holds itself until the next turn of the reactor. Meanwhile the transport is paused even if few bytes
wait, so that the end of the connection is not noticed before the packets that came before it.

A hold may last until a database is back. Then PINGREQ packets that come before all other packets are acted on, so that
the Client does not take the connection for dead (``pings``).

Bytes that arrive during a hold stay in the parser. At :data:`READ_AHEAD` bytes the transport is paused, so that a
Client that does not wait for its answers costs little memory. The broker cannot hear a paused Client, so the time of
the pause does not count against its Keep Alive. The connection then watches whether sent bytes leave.

An action may begin in a call of the transport, of a timer, or of another client's work (a commit that both awaited). So
an unexpected error never leaves this module: ``fail`` ends this one connection.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from holdfast.sessions.connection.link import NO_ACTIONS, Actions, ErrorGuard, INetworkConnection, IRetainedRuns
from holdfast.sessions.connection.outbox import FlushSchedule, Outbox
from holdfast.sessions.counters import Counters
from holdfast.wire import (
    NO_TOPICS,
    KnownTopics,
    PacketParser,
    ProtocolError,
    Reception,
    RetainedRun,
    Routes,
    Run,
    RunTaker,
    Single,
    WireError,
)
from holdfast.wire.packets import Packet, Pingreq, Puback, Pubacks

#: the most bytes read ahead during a hold, and the largest packet accepted from a Client that is not admitted yet
READ_AHEAD = 64 * 1024
#: The option that sets the largest packet of an admitted Client, in messages.
_OPTION = " (mqtt.max_packet_size)"


#: The packets of one Client in one turn of the reactor: most take 5 to 50 microseconds. With a smaller part, fewer
#: messages and acknowledgements would leave in one piece. Consecutive acknowledgements of a block count as one packet:
#: otherwise the acknowledgements of one subscriber would lag behind the messages of ten publishers.
PACKETS_OF_A_TURN = 500

#: Of a run that is taken as a whole, 16 packets count as one, and its stripes count in addition, 4 as one: each stripe
#: is cut out, answered and encoded by itself, in one to three microseconds.
RUN_DISCOUNT, STRIPE_DISCOUNT = 16, 4

#: the packets for which a step of long work counts, of 200 microseconds
PACKETS_OF_A_STEP = 20

#: the PINGREQ packets of one hold that are acted on: more than come in an hour
_MOST_PINGS = 100


def _take_none(_run: Run | Single | RetainedRun) -> bool:
    """Take no run: the connection is not admitted, or it is over."""
    return False


def _ignore(_error: WireError) -> None:
    """Refuse nothing: the connection is over."""


def _name(packet: Packet) -> str:
    """Return the name of a packet's type."""
    return "PUBACK" if type(packet) is Pubacks else type(packet).__name__.upper()


class _Reading(Enum):
    READY = "waits for bytes or for a release"
    ACTING = "acts on a packet; a release during that time is noticed by the running loop"
    PAUSED = "the transport is not read; only during a hold"
    CLOSED = "acts on nothing any more"


class PacketOrder:
    """The received packets of one Client.

    ``actions`` has the packet types that the Client may send now; any other type is a Protocol Error. ``reception`` has
    the rules for all packets. ``refuse`` is called when the Client breaks the rules, and ``fail`` after an unexpected
    error.
    """

    __slots__ = (
        "_charged",
        "_clock",
        "_counters",
        "_fail",
        "_flushes",
        "_heard_at",
        "_holds",
        "_is_unread",
        "_network",
        "_parser",
        "_pings",
        "_refuse",
        "_state",
        "_take_retained_run",
        "_take_run",
        "_taken",
        "actions",
    )

    def __init__(
        self,
        *,
        actions: Actions,
        max_packet_size: int,
        reception: Reception,
        network: INetworkConnection,
        clock: IReactorTime,
        flushes: FlushSchedule,
        counters: Counters,
        refuse: Callable[[WireError], None],
        fail: Callable[[Failure], None],
    ) -> None:
        self.actions = actions
        self._parser = PacketParser(min(READ_AHEAD, max_packet_size), reception=reception)
        self._parser.limit = _OPTION if max_packet_size <= READ_AHEAD else " before a client is admitted"
        self._network = network
        self._clock = clock
        self._flushes = flushes
        self._counters = counters
        self._refuse = refuse
        self._fail = fail
        self._take_run: Callable[[Run | Single], bool] = _take_none
        self._take_retained_run: Callable[[RetainedRun], bool] = _take_none
        self._taken: tuple[dict[int, Routes], RunTaker | None] | None = None  # the runs, while none are taken
        self._state = _Reading.READY
        self._holds = 0
        self._charged = 0  # packets that costly ones count for besides
        self._pings = 0  # how many PINGREQ packets may still be acted on during the hold
        self._is_unread = False  # until the next packet is acted on
        self._heard_at = clock.seconds()

    def receive(self, data: bytes) -> None:
        """Take bytes from the Client, and act on the packets that they complete."""
        if self._state is _Reading.CLOSED:
            return
        self._heard_at = self._clock.seconds()
        self._counters.bytes_received += len(data)
        if self._holds:
            self._parser.receive_data(data)
            self._act_on_pings()
            self._pause_if_full()
            return
        single = self._parser.single(data)
        if single is not None and self._takes_single(single):
            return
        self._parser.receive_data(data)
        self._flushes.begin()
        try:
            self._act()
        finally:
            self._flushes.end()

    def take_runs(self, known: KnownTopics, take: Callable[[Run | Single], bool]) -> None:
        """Take runs of the known topics from now on. If ``take`` refuses a run (False), its packets come one by one."""
        if self._state is _Reading.CLOSED:
            return
        self._take_run = take
        if self._taken is None:
            self._parser.known = known.routes
        else:
            self._taken = known.routes, self._taken[1]

    def take_retained_runs(self, taker: IRetainedRuns) -> None:
        """Take retained runs from now on."""
        if self._state is _Reading.CLOSED:
            return
        self._take_retained_run = taker.take
        if self._taken is None:
            self._parser.retained_taker = taker
        else:
            self._taken = self._taken[0], taker

    def take_singly(self, singly: bool) -> None:
        """Take every packet by itself from now on; False: take runs again."""
        if self._state is _Reading.CLOSED or singly is (self._taken is not None):
            return
        parser = self._parser
        if self._taken is None:
            self._taken = parser.known, parser.retained_taker
            parser.known, parser.retained_taker = NO_TOPICS, None
        else:
            parser.known, parser.retained_taker = self._taken
            self._taken = None

    def hold(self, reads: bool = True, pings: bool = False) -> None:
        """Act on no further packet until :meth:`release` has been called as often.

        Without ``reads`` the transport is not read meanwhile: then the end of the connection is noticed only after all
        packets that came before it. With ``pings``, PINGREQ packets that come next are acted on.
        """
        self._holds += 1
        if pings:
            self._pings = _MOST_PINGS
            self._act_on_pings()
        if not reads:
            self._is_unread = True
            self._pause_if_full(0)  # while a packet is acted on, the running loop does it

    def release(self) -> None:
        """Act on the packets that waited, in their order."""
        self._holds -= 1
        if self._holds:
            return
        self._is_unread = False
        self._pings = 0
        if self._state is _Reading.PAUSED:
            self._state = _Reading.READY
            self._heard_at = self._clock.seconds()
            try:
                self._network.resume()
            except Exception:  # noqa: BLE001 - the caller's work is not to blame
                self._fail(Failure())
        self._act()

    def charge(self, packets: int) -> None:
        """Let the packet that is acted on count for so many more."""
        self._charged += packets

    def accept_packets_up_to(self, size: int) -> None:
        """Accept larger packets from now on, since the Client is admitted."""
        self._parser.max_packet_size = size
        self._parser.limit = _OPTION

    @property
    def is_paused(self) -> bool:
        """Whether the broker does not read the transport now, so that it cannot hear the Client."""
        return self._state is _Reading.PAUSED

    def silence(self) -> float:
        """Return for how many seconds nothing has come from the Client; 0 while the transport is paused."""
        return 0.0 if self.is_paused else self._clock.seconds() - self._heard_at

    def close(self) -> None:
        """Act on nothing any more, and let go of everything that refers to the connection."""
        self._state = _Reading.CLOSED
        self._parser.close()
        self._taken = None
        self.actions = NO_ACTIONS
        self._take_run = self._take_retained_run = _take_none
        self._refuse = _ignore

    def _act(self) -> None:
        if self._state is not _Reading.READY:
            return
        self._state = _Reading.ACTING
        parser = self._parser
        next_run = parser.next_run
        rest = False
        saved = 0  # packets of runs and stretches that do not count for the part
        try:
            while not self._holds and self._state is _Reading.ACTING:  # an action may hold, or close the connection
                left = PACKETS_OF_A_TURN + saved - self._charged - parser.packets
                if left <= 0:
                    rest = True
                    self.hold()
                    self._clock.callLater(0, self._go_on)
                    return
                packet = next_run(left)
                if packet is None:
                    return
                if isinstance(packet, Run):
                    if not self._take_run(packet):
                        parser.take_back(packet)
                    elif not packet.taken_apart:
                        cost = 1 + packet.count // RUN_DISCOUNT + packet.stripes // STRIPE_DISCOUNT
                        saved += max(0, packet.count - cost)
                    continue
                if isinstance(packet, RetainedRun):
                    if not self._take_retained_run(packet):
                        parser.take_back(packet)
                    continue
                action = self.actions[type(packet)]
                if action is None:
                    raise ProtocolError(f"{_name(packet)} is out of place")
                action(packet)
                if type(packet) is Pubacks:
                    saved += packet.count - max(1, packet.steps)
        except WireError as error:
            self._refuse(error)
        except Exception:  # noqa: BLE001 - it concerns this connection only
            self._fail(Failure())
        finally:
            if self._state is _Reading.ACTING:
                self._state = _Reading.READY
                if self._holds:
                    self._pause_if_full(0 if rest or self._is_unread else READ_AHEAD)
            # Counted once for each piece of bytes: counting every packet would cost more.
            counters = self._counters
            counters.packets_received += parser.packets
            counters.message_bytes_received += parser.publish_bytes
            parser.packets = parser.publish_bytes = self._charged = 0
        self._act_on_pings()

    def _takes_single(self, single: Single | Puback) -> bool:
        """Act on a packet that came by itself; tell whether that is done."""
        self._state = _Reading.ACTING
        self._flushes.begin()
        counters = self._counters
        try:
            if type(single) is Single:
                if not self._take_run(single):
                    return False
                counters.message_bytes_received += single.end
            else:
                action = self.actions[Puback]
                if action is None:
                    raise ProtocolError("PUBACK is out of place")
                action(single)
        except WireError as error:
            self._refuse(error)
        except Exception:  # noqa: BLE001 - it concerns this connection only
            self._fail(Failure())
        finally:
            # As at the end of ``_act``: a call of a common method would cost a twentieth of what the packet costs.
            if self._state is _Reading.ACTING:
                self._state = _Reading.READY
                if self._holds and self._is_unread:
                    self._pause_if_full(0)
            self._charged = 0  # it has had its part of this turn for itself
            self._flushes.end()
        counters.packets_received += 1
        return True

    def _act_on_pings(self) -> None:
        """Act on the PINGREQ packets that come before all others, in a hold with ``pings``."""
        try:
            while self._pings and self._state is _Reading.READY and self._parser.take_pingreq():
                self._pings -= 1
                self._counters.packets_received += 1
                action = self.actions[Pingreq]
                if action is not None:
                    action(Pingreq())
        except Exception:  # noqa: BLE001 - it concerns this connection only
            self._fail(Failure())

    def _go_on(self) -> None:
        """Act on the next part."""
        self._flushes.begin()
        try:
            self.release()
        finally:
            self._flushes.end()

    def _pause_if_full(self, size: int = READ_AHEAD) -> None:
        if self._state is _Reading.READY and self._parser.buffered >= size:
            self._state = _Reading.PAUSED
            self._network.pause()


# A Client that does not read its answers is not read either, and loses its connection if nothing drains.
#
# How it works. Every packet may cost an answer, and an answer may be longer than its packet. So a Client that sends and
# never reads would fill the memory of the broker. Say it sends PINGREQ without end, and its socket is full:
#
#     64 KiB of PINGRESP wait     hold: the Client's packets wait too, first in the broker, then in its own process
#     it reads, all of it drains  release
#     nothing drains for 30 s     the connection ends
#
# PUBLISH packets do not count: a fan-out to a slow Client must not stop the broker from reading the acknowledgements
# that this fan-out needs. Their bound is ``force_shutdown``.


#: above so many bytes of unsent answers a Client is not read
MOST_ANSWERS = 64 * 1024
#: seconds in which some of the unsent bytes must leave
ANSWERS_PATIENCE = 30.0


def _tell_none() -> None:
    """End no connection: it is over."""


class DrainWatch:
    """Tells whether anything leaves this process, from one look to the next."""

    __slots__ = ("_outbox", "_seen")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._seen: tuple[int, int] | None = None

    def is_stuck(self) -> bool:
        """Tell whether bytes wait and none of them has left since the last look."""
        before, self._seen = self._seen, self._outbox.progress()
        return bool(self._outbox.bytes) and before == self._seen


class UnreadAnswers:
    """The hold on one Client because of the answers that it does not read.

    ``on_stuck`` ends its connection. ``guard`` is entered by the timer: unexpected errors end the connection too.
    """

    __slots__ = ("_clock", "_drain", "_guard", "_holding", "_on_stuck", "_order", "_outbox", "_patience", "_timer")

    def __init__(
        self,
        outbox: Outbox,
        order: PacketOrder,
        clock: IReactorTime,
        on_stuck: Callable[[], None],
        guard: ErrorGuard,
    ) -> None:
        self._guard = guard
        self._outbox = outbox
        self._order = order
        self._clock = clock
        self._on_stuck = on_stuck
        self._drain = DrainWatch(outbox)
        self._patience = ANSWERS_PATIENCE
        self._holding = False
        self._timer: IDelayedCall | None = None

    def wait_at_most(self, seconds: float) -> None:
        """Let a hold last no longer than this without any progress (0: the default)."""
        self._patience = min(ANSWERS_PATIENCE, seconds or ANSWERS_PATIENCE)

    def hold_if_many(self) -> None:
        """Hold the Client if too many of its answers wait."""
        if not self._holding and self._outbox.answers > MOST_ANSWERS:
            self._holding = True
            self._order.hold()
            self._drain.is_stuck()
            self._timer = self._clock.callLater(self._patience, self._check)

    def release_if_few(self) -> None:
        """Read the Client again if enough of its answers have left."""
        if self._holding and self._outbox.answers <= MOST_ANSWERS:
            self.stop()
            self._order.release()

    def stop(self) -> None:
        """Watch no longer."""
        self._holding = False
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def close(self) -> None:
        """Watch no longer, and forget whom to tell: the connection is over."""
        self.stop()
        self._on_stuck = _tell_none

    def _check(self) -> None:
        with self._guard:
            if self._drain.is_stuck():
                self._on_stuck()
            else:
                self._timer = self._clock.callLater(self._patience, self._check)
