"""The broker's clock: the time of day, and the seconds that timers count.

How it works. The broker reads the machine's clock at its start and counts on with a monotonic clock. Timers use these
seconds for as long as the process lives. The time of day follows when somebody sets the machine's clock, as NTP does
some seconds after the start of a computer that has no clock of its own:

    the machine's clock was set           the time of day
    forward                               jumps; by 1 s or more, once the stored times of expiry are moved
    back by 5 s or less                   stands still for so long
    back by more                          goes on, and the alarm ``clock_went_back`` tells it

So the time of day never goes back, and neither do revisions nor the times of the history. Messages are stored with the
time of day at which they expire. Those of this process are given new times before the time of day jumps: they have the
rest of their lifetime. Those of an earlier process keep their times: its clock was right.

NTP also makes the machine's clock a little faster or slower. It does the same to the monotonic clock, so that this
changes no difference between them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from zope.interface import implementer

from holdfast.scheduling.periodic import PeriodicJob

#: The clock of Linux that also counts while the machine sleeps, if there is one.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: The clocks cannot be read at one moment: how often this is tried.
_READINGS = 3
#: milliseconds: smaller differences are not followed
_LEAST = 10
#: milliseconds: for so long the time of day may stand still
MOST_STANDSTILL = 5000
#: milliseconds: times of expiry are not moved by less, since lifetimes are whole seconds; nor is anybody told of less
_WHOLE = 1000
#: seconds between two looks, where the system does not tell that its clock was set
_INTERVAL = 1.0

#: of timerfd_create(2) and timerfd_settime(2)
_ABSOLUTE, _CANCEL_ON_SET = 1, 2
#: seconds since the epoch: a timer that never ends
_NEVER = 1 << 40


def _monotonic_ns() -> int:
    return time.clock_gettime_ns(_MONOTONIC)


class BrokerClock:
    """The time of day that follows the machine's clock, and steady seconds.

    ``wall`` and ``monotonic`` return nanoseconds, ``wall`` since the epoch.
    """

    def __init__(self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = _monotonic_ns) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._origin = self._offset = self._difference()
        self._least = 0
        #: the time at the start, in milliseconds since the epoch
        self.begun = self.now()

    def now(self) -> int:
        """Return the time of day in milliseconds since the epoch. It never goes back."""
        now = (self._offset + self._monotonic()) // 1_000_000
        return now if now > self._least else self._least  # asked for each message: "max" costs half as much again

    def seconds(self) -> float:
        """Return steady seconds, which setting the machine's clock does not change. They begin at the time of day."""
        return (self._origin + self._monotonic()) / 1_000_000_000

    def behind(self) -> int:
        """Return by how many milliseconds the time of day is behind the machine's clock; negative: before it."""
        return round((self._difference() - self._offset) / 1_000_000)

    def advance(self, milliseconds: int) -> None:
        """Let the time of day jump forward."""
        self._offset += milliseconds * 1_000_000

    def stand_still(self, milliseconds: int) -> None:
        """Let the time of day stand still for so long."""
        self._least = self.now()
        self._offset -= milliseconds * 1_000_000

    def _difference(self) -> int:
        """Return by how much the machine's clock is ahead of the monotonic one: as read in the shortest time."""
        readings = []
        for _ in range(_READINGS):
            before = self._monotonic()
            wall = self._wall()
            took = self._monotonic() - before
            readings.append((took, wall - before - took // 2))
        return min(readings)[1]


class ClockWatch(Service):
    """Lets the broker's clock follow the machine's.

    ``moves`` moves what is stored before a jump of the clock, and ``moved`` moves what is held in memory in the turn of
    the jump. ``tell`` is told of each step in milliseconds, negative for a standstill, and of the result of ``moves``.
    """

    _log = Logger()

    def __init__(
        self,
        clock: BrokerClock,
        reactor: Any,
        *,
        moves: Callable[[int], Deferred[Any]],
        moved: Callable[[int], None],
        tell: Callable[[int, Any], None],
        notices: Callable[[Callable[[], None]], ClockNotices | None] | None = None,
    ) -> None:
        """``notices`` stands in for the notices of the system in tests; it returns None for a system without any."""
        self._clock = clock
        self._reactor = reactor
        self._moves = moves
        self._moved = moved
        self._tell = tell
        self._open = notices or clock_notices
        self._notices: ClockNotices | None = None
        self._comparing = PeriodicJob(self.look, name="comparing the clocks", interval=_INTERVAL, clock=reactor)
        self._is_moving = False

    def startService(self) -> None:
        """Look now, and whenever the clock is set."""
        Service.startService(self)
        self._notices = self._open(self.look)
        if self._notices is None:
            self._comparing.start()
        else:
            self._reactor.addReader(self._notices)
            self.look()

    def stopService(self) -> None:
        """Follow the machine's clock no more."""
        Service.stopService(self)
        self._comparing.stop()
        if self._notices is not None:
            self._reactor.removeReader(self._notices)
            self._notices.close()
            self._notices = None

    def look(self) -> None:
        """Follow the machine's clock if it was set."""
        behind = self._clock.behind()
        if self._is_moving or not self.running or abs(behind) < _LEAST or behind < -MOST_STANDSTILL:
            return
        if behind < _WHOLE:
            if behind > 0:
                self._clock.advance(behind)
            else:
                self._clock.stand_still(-behind)
                if behind <= -_WHOLE:
                    self._tell(behind, None)
            return
        self._is_moving = True
        self._moves(behind).addCallback(self._jump, behind).addErrback(self._failed)

    def _jump(self, result: Any, step: int) -> None:
        self._is_moving = False
        self._clock.advance(step)
        self._moved(step)
        self._tell(step, result)
        self.look()  # it may have been set again meanwhile

    def _failed(self, failure: Any) -> None:
        self._is_moving = False
        self._log.failure("the machine's clock was set, and the broker cannot follow it", failure)


@implementer(IReadDescriptor)
class ClockNotices:
    """Calls ``look`` whenever the file of a timer can be read: Linux cancels the timer when its clock is set."""

    def __init__(self, file: int, look: Callable[[], None]) -> None:
        self._file = file
        self._look = look

    def fileno(self) -> int:
        """Return the file, -1 if it is closed."""
        return self._file

    def doRead(self) -> None:
        """Take the notice, and look."""
        try:
            os.read(self._file, 8)
        except OSError as error:
            if error.errno not in (errno.ECANCELED, errno.EAGAIN):
                raise
        self._look()

    def connectionLost(self, _reason: object) -> None:
        """Close the file: the reactor ends, or cannot watch it."""
        self.close()

    def logPrefix(self) -> str:
        """Name this reader in Twisted's log."""
        return "the machine's clock"

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


class _Timer(ctypes.Structure):
    """``struct itimerspec``, with times of ``time_t`` and ``long``."""

    _fields_ = (("interval", ctypes.c_long * 2), ("first", ctypes.c_long * 2))


def clock_notices(look: Callable[[], None]) -> ClockNotices | None:
    """Return notices of the system's clock being set; None if the system gives none.

    Python 3.11 has no ``os.timerfd_create``.
    """
    if not sys.platform.startswith("linux") or ctypes.sizeof(ctypes.c_void_p) < 8:  # 32 bits: time_t may be longer
        return None
    system = ctypes.CDLL(None, use_errno=True)
    try:
        file: int = system.timerfd_create(time.CLOCK_REALTIME, os.O_NONBLOCK | os.O_CLOEXEC)
    except AttributeError:  # a C library without it
        return None
    if file < 0:
        return None
    timer = _Timer((0, 0), (_NEVER, 0))
    if system.timerfd_settime(file, _ABSOLUTE | _CANCEL_ON_SET, ctypes.byref(timer), None) < 0:
        os.close(file)
        return None
    return ClockNotices(file, look)
