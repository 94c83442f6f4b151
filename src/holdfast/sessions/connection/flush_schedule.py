"""Decides when the collected packets of all connections are written: at the end of a turn."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

_log = Logger()


class FlushSchedule:
    """Runs each scheduled flush once: after the packets just received have been handled, or in the next turn.

    Each connection writes all PUBACKs and messages that one read of a socket causes in one piece.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        #: the scheduled flushes; while there is one, others may be appended without a call of :meth:`schedule`
        self.due: list[Callable[[], None]] = []
        self._receiving = False
        self._called = False  # whether a call of _next_turn is due

    def begin(self) -> None:
        """Bytes have arrived: flushes scheduled from now on wait for :meth:`end`."""
        self._receiving = True

    def end(self) -> None:
        """The packets have been handled: run the flushes that they caused."""
        self._receiving = False
        if self.due:
            self._run()

    def schedule(self, flush: Callable[[], None]) -> None:
        """Run this flush at the end of the present turn."""
        if not (self.due or self._receiving or self._called):
            self._called = True
            self._clock.callLater(0, self._next_turn)
        self.due.append(flush)

    def _next_turn(self) -> None:
        self._called = False
        self._run()

    def _run(self) -> None:
        # A flush may schedule others. Those run in the next turn.
        due, self.due = self.due, []
        for flush in due:
            try:
                flush()
            except Exception:  # noqa: BLE001 - the connections after this one must still be written
                _log.failure("writing to a connection failed")
