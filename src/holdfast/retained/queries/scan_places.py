"""Places for scans that read a whole range: a few at a time, one for each caller, and a bounded line of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from attrs import define, field
from twisted.internet.defer import Deferred

#: The scans that run at a time, and those that wait for a place: of all callers, and of one.
RUNNING = 4
WAITING = 64
WAITING_OF_ONE = 8


class TooManyScans(Exception):
    """Too many scans wait already; the text names their callers."""


@define(eq=False)
class _Scan:
    caller: Hashable
    turn: Deferred[Callable[[], None]] = field(init=False)


class ScanPlaces:
    """Gives places in the order of the calls, but passes over callers that have a place."""

    def __init__(self) -> None:
        self._running: list[_Scan] = []
        self._waiting: deque[_Scan] = deque()

    def take(self, caller: Hashable) -> Deferred[Callable[[], None]]:
        """Wait for a place; the result gives it back. The Deferred can be cancelled. Raises :class:`TooManyScans`."""
        if sum(1 for one in self._waiting if one.caller == caller) >= WAITING_OF_ONE:
            raise TooManyScans(f"{WAITING_OF_ONE} of your scans wait already; let one of them end first")
        if len(self._waiting) >= WAITING:
            raise TooManyScans(f"{WAITING} scans wait already; try again later")
        scan = _Scan(caller)
        scan.turn = Deferred(lambda _: self._waiting.remove(scan))
        self._waiting.append(scan)
        self._next()
        return scan.turn

    def _next(self) -> None:
        """Begin waiting scans as long as there are places."""
        for scan in tuple(self._waiting):
            if len(self._running) >= RUNNING:
                return
            if any(one.caller == scan.caller for one in self._running):
                continue
            self._waiting.remove(scan)
            self._running.append(scan)
            scan.turn.callback(lambda scan=scan: self._leave(scan))  # type: ignore[misc]  # bound in the loop

    def _leave(self, scan: _Scan) -> None:
        self._running.remove(scan)
        self._next()
