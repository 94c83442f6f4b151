"""The broker's clock, deadlines, and periodic jobs. First: deadlines by key, of which many may be due at one moment.

How it works. Keys are kept by the tenth of a second in which they are due, so ten thousand keys of one moment share one
timer. When it fires, they form a line, and :mod:`holdfast.scheduling.long_work` takes them from it, some each turn.
Until its turn comes, a key can still be taken out of the line. A timer of the reactor for each key would call all of
them in one turn.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import ceil
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IReadDescriptor
from twisted.logger import Logger
from zope.interface import implementer

from holdfast.scheduling.long_work import LongWork
from holdfast.watch.log import LastingFailure, client_text

# The broker's clock: the time of day, and the seconds that timers count.
#
# How it works. The broker reads the machine's clock at its start and counts on with a monotonic clock. Timers use these
# seconds for as long as the process lives. The time of day follows when somebody sets the machine's clock, as NTP does
# some seconds after the start of a computer that has no clock of its own:
#
#     the machine's clock was set           the time of day
#     forward                               jumps; by 1 s or more, once the stored times of expiry are moved
#     back by 5 s or less                   stands still for so long
#     back by more                          goes on, and the alarm ``clock_went_back`` tells it
#
# So the time of day never goes back, and neither do revisions nor the times of the history. Messages are stored with
# the time of day at which they expire. Those of this process are given new times before the time of day jumps: they
# have the rest of their lifetime. Those of an earlier process keep their times: its clock was right.
#
# NTP also makes the machine's clock a little faster or slower. It does the same to the monotonic clock, so that this
# changes no difference between them.


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


#: deadlines are met up to a tenth of a second late
_PER_SECOND = 10


class Deadlines:
    """Calls ``act`` for each key when it is due. ``act`` works in steps, like all long work.

    Keys are texts of clients, such as Client Identifiers. An act that fails is logged with the ``name``, and keeps no
    other key from its turn.
    """

    _log = Logger()

    def __init__(self, name: str, clock: IReactorTime, work: LongWork, act: Callable[[str], Iterator[int]]) -> None:
        self._name = name
        self._clock = clock
        self._work = work
        self._act = act
        self._moments: dict[str, int] = {}
        self._keys: dict[int, dict[str, None]] = {}
        self._order: list[int] = []  # a heap of the moments in ``_keys``, and of some that are not there any more
        self._timer: IDelayedCall | None = None
        self._due: OrderedDict[str, None] = OrderedDict()
        self._working = False

    def set(self, key: str, delay: float) -> None:
        """Let a key be due after ``delay`` seconds, at once if that is 0. An older deadline of the key is forgotten."""
        self.discard(key)
        if delay <= 0:
            self._due[key] = None
            self._begin()
            return
        # Rounded to milliseconds first: else an error of 1e-7 seconds would cost a tenth of a second.
        moment = ceil(round((self._clock.seconds() + delay) * 1000) * _PER_SECOND / 1000)
        self._moments[key] = moment
        keys = self._keys.get(moment)
        if keys is None:
            keys = self._keys[moment] = {}
            heappush(self._order, moment)
            self._set_timer()
        keys[key] = None

    def discard(self, key: str) -> bool:
        """Forget the deadline of a key. Return False if it has none."""
        if key in self._due:
            del self._due[key]
            return True
        moment = self._moments.pop(key, None)
        if moment is None:
            return False
        keys = self._keys[moment]
        del keys[key]
        if not keys:
            del self._keys[moment]
            if len(self._order) > 2 * len(self._keys) + 100:
                self._order = sorted(self._keys)
        return True

    def hurry(self, key: str) -> None:
        """Let a key that has a deadline be due now."""
        if key in self._moments:
            self.set(key, 0)

    def left(self, key: str) -> float | None:
        """Return the seconds until a key is due; None if it has no deadline, or is in the line already."""
        moment = self._moments.get(key)
        return None if moment is None else max(0.0, moment / _PER_SECOND - self._clock.seconds())

    def is_due(self, key: str) -> bool:
        """Tell whether the key is in the line of those that are due."""
        return key in self._due

    def stop(self) -> None:
        """Forget all deadlines."""
        self._moments.clear()
        self._keys.clear()
        self._order.clear()
        self._due.clear()
        self._set_timer()

    def __len__(self) -> int:
        return len(self._moments) + len(self._due)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._order:
            delay = max(0.0, self._order[0] / _PER_SECOND - self._clock.seconds())
            self._timer = self._clock.callLater(delay, self._fired)

    def _fired(self) -> None:
        self._timer = None
        now = round(self._clock.seconds() * 1000) * _PER_SECOND / 1000
        while self._order and self._order[0] <= now:
            for key in self._keys.pop(heappop(self._order), {}):
                del self._moments[key]
                self._due[key] = None
        self._set_timer()
        self._begin()

    def _begin(self) -> None:
        if self._due and not self._working:
            self._working = True
            self._work.do(self, self._steps())

    def _steps(self) -> Iterator[int]:
        while self._due:
            yield 1
            if not self._due:  # the last one was taken out of the line meanwhile
                break
            key, _ = self._due.popitem(last=False)
            try:
                yield from self._act(key)
            except Exception:  # noqa: BLE001 - the others must have their turn
                self._log.failure("{name}: failed for {key}", name=self._name, key=client_text(key))
        self._working = False


# Periodic jobs: every one survives a run that fails, says so once, and goes on.
#
# Twisted's ``LoopingCall`` ends for ever when its function fails once. A broker runs for months, and one failed run (no
# free file descriptor, a database that is away) must not end a job until the next restart. So jobs use this class.


class PeriodicJob:
    """Runs ``run`` every ``interval`` seconds while it is started. ``run`` may answer with a Deferred.

    A run begins only after the run before it has ended; runs that are missed meanwhile are left out. The first failure
    in a row is logged, and the first success after it; ``name`` and ``foreseen`` are those of :class:`LastingFailure`.
    """

    def __init__(
        self,
        run: Callable[[], object],
        *,
        name: str,
        interval: float,
        clock: IReactorTime,
        foreseen: tuple[type[Exception], ...] = (),
    ) -> None:
        self._run = run
        #: seconds from the beginning of a run to that of the next one
        self.interval = interval
        self._clock = clock
        self._failure = LastingFailure(name, f"and is tried again every {interval:g} s", foreseen)
        self._running = False
        self._is_busy = False  # a run is under way
        self._delay: float | None = None  # of the run after it; None: as the interval tells
        self._next: IDelayedCall | None = None

    def start(self, delay: float = 0) -> None:
        """Begin to run, for the first time after ``delay`` seconds, counted from the end of a run that is under way."""
        self.stop()
        self._running = True
        if self._is_busy:
            self._delay = delay
        else:
            self._next = self._clock.callLater(delay, self._attempt)

    def stop(self) -> None:
        """Begin no further run. A run may stop its own job."""
        self._running = False
        self._delay = None
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def hurry(self) -> None:
        """Let the next run begin at once, or as soon as the present one has ended; nothing if the job is stopped."""
        if self._next is not None:
            self._next.reset(0)
        elif self._running:
            self._delay = 0

    def _attempt(self) -> None:
        self._next = None
        self._is_busy = True
        begun = self._clock.seconds()
        run = maybeDeferred(self._run).addCallbacks(lambda _: self._failure.succeeded(), self._failure.failed)
        run.addCallback(lambda _: self._ended(begun))

    def _ended(self, begun: float) -> None:
        self._is_busy = False
        delay, self._delay = self._delay, None
        if self._running:
            if delay is None:
                passed = self._clock.seconds() - begun
                delay = self.interval - passed % self.interval
            self._next = self._clock.callLater(delay, self._attempt)
