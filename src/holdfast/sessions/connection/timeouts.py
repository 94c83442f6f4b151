"""The time limits of one Network Connection: until its Client is admitted, and from then on the Keep Alive.

How it works. One timer serves both limits, since a cancelled timer stays in memory until it is due. It is not restarted
for each packet: when it fires, it looks how long ago the last bytes came, and waits for the rest. An example with a
Keep Alive of 10 s, and 1.5 as its multiplier:

    0 s     a Client connects; the timer is set to 15 s, within which it must be admitted
    1 s     CONNACK is sent; the timer is set to 15 s from now
    9 s     PINGREQ; the timer stays
    16 s    the timer fires: the last bytes came 7 s ago, so it is set to 8 s
    24 s    the timer fires: 15 s of silence end the connection

The broker cannot hear a Client that it does not read. Such a Client is silent if nothing that it was sent leaves.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from holdfast.sessions.connection.link import ErrorGuard
from holdfast.sessions.connection.outbox import Outbox
from holdfast.sessions.connection.packet_order import DrainWatch, PacketOrder


def _tell_none() -> None:
    """End no connection: it is over."""


def _note_none(_seconds: float) -> None:
    """End no connection: it is over."""


class Timeouts:
    """The timer of one connection.

    ``on_late`` ends a connection whose Client was not admitted in time, ``on_silence`` one that was silent for so many
    seconds. Both are called within ``guard``.
    """

    __slots__ = (
        "_clock",
        "_drain",
        "_guard",
        "_on_late",
        "_on_silence",
        "_order",
        "_outbox",
        "_timer",
        "longest_silence",
    )

    def __init__(
        self,
        *,
        clock: IReactorTime,
        order: PacketOrder,
        outbox: Outbox,
        guard: ErrorGuard,
        idle_timeout: float,
        on_late: Callable[[], None],
        on_silence: Callable[[float], None],
    ) -> None:
        self._clock = clock
        self._order = order
        self._outbox = outbox
        self._guard = guard
        self._on_late = on_late
        self._on_silence = on_silence
        self._drain: DrainWatch | None = None  # made with the first look, since most Clients are always read
        #: the seconds of silence that end the connection of an admitted Client, 0 for no limit
        self.longest_silence = 0.0
        self._timer: IDelayedCall | None = clock.callLater(idle_timeout, self._time_is_up)

    def admitted(self, longest_silence: float) -> None:
        """Note that the Client is admitted. From now on so many seconds of silence end the connection; 0: none do."""
        self.longest_silence = longest_silence
        if not longest_silence:
            self._cancel()
        elif self._timer is not None:
            self._timer.reset(longest_silence)

    def answer_after(self, seconds: float, answer: Callable[[], None]) -> None:
        """Call ``answer`` after so many seconds, in place of the limit for admission. It is called within the guard."""
        if self._timer is not None:
            self._on_late = answer
            self._timer.reset(seconds)

    def close(self) -> None:
        """Watch no longer: the connection is over."""
        self._cancel()
        self._on_late = _tell_none
        self._on_silence = _note_none

    def _time_is_up(self) -> None:
        self._timer = None
        with self._guard:
            if self.longest_silence:
                self._check_silence()
            else:
                self._on_late()

    def _check_silence(self) -> None:
        silence = self._order.silence()
        if silence < self.longest_silence and not (self._order.is_paused and self._is_stuck()):
            self._timer = self._clock.callLater(self.longest_silence - silence, self._time_is_up)
        else:
            self._on_silence(silence or self.longest_silence)

    def _is_stuck(self) -> bool:
        """Tell whether bytes wait and none of them has left since the last look."""
        if self._drain is None:
            self._drain = DrainWatch(self._outbox)
        return self._drain.is_stuck()

    def _cancel(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
