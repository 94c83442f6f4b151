"""A Client that does not read its answers is not read either, and loses its connection if nothing drains.

How it works. Every packet may cost an answer, and an answer may be longer than its packet. So a Client that sends and
never reads would fill the memory of the broker. Say it sends PINGREQ without end, and its socket is full:

    64 KiB of PINGRESP wait     hold: the Client's packets wait too, first in the broker, then in its own process
    it reads, all of it drains  release
    nothing drains for 30 s     the connection ends

PUBLISH packets do not count: a fan-out to a slow Client must not stop the broker from reading the acknowledgements that
this fan-out needs. Their bound is ``force_shutdown``.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.sessions.connection.error_guard import ErrorGuard
from holdfast.sessions.connection.outbox import Outbox
from holdfast.sessions.connection.packet_order import PacketOrder

#: above so many bytes of unsent answers a Client is not read
MOST_ANSWERS = 64 * 1024
#: seconds in which some of the unsent bytes must leave
PATIENCE = 30.0


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
        self._patience = PATIENCE
        self._holding = False
        self._timer: IDelayedCall | None = None

    def wait_at_most(self, seconds: float) -> None:
        """Let a hold last no longer than this without any progress (0: the default)."""
        self._patience = min(PATIENCE, seconds or PATIENCE)

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
