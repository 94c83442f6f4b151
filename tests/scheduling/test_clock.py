"""The broker's clock: steady seconds for timers, and a time of day that follows the machine's and never goes back."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast.scheduling.deadlines import BrokerClock, ClockNotices, ClockWatch, clock_notices

DAY = 86_400_000


class Machine:
    """A machine whose clock the test sets, and whose system tells nobody."""

    def __init__(self) -> None:
        self.reactor = Clock()
        self.ahead = 1_700_000_000_123  #: milliseconds by which its clock is ahead of the reactor's seconds
        self.clock = BrokerClock(lambda: self._monotonic() + self.ahead * 1_000_000, self._monotonic)
        self.moving: list[Deferred[None]] = []
        self.told: list[object] = []
        self.watch = ClockWatch(
            self.clock, self.reactor, moves=self._moves, moved=lambda step: self.told.append(("moved", step)),
            tell=lambda step, _: self.told.append(step), notices=lambda _: None,
        )  # fmt: skip
        self.watch.startService()

    def _monotonic(self) -> int:
        return round(self.reactor.seconds() * 1_000_000_000)

    def _moves(self, step: int) -> Deferred[None]:
        self.told.append(("moves", step))
        self.moving.append(Deferred())
        return self.moving[-1]


def test_a_jump_forward_waits_for_what_is_stored() -> None:
    """The times of expiry are moved first. Then the time of day jumps, and what is in memory moves in the same turn."""
    machine = Machine()
    machine.reactor.advance(20)
    machine.ahead += 3 * DAY
    machine.reactor.advance(1)
    assert machine.told == [("moves", 3 * DAY)]
    machine.reactor.advance(1)
    assert machine.clock.now() == 1_700_000_022_123
    machine.moving.pop().callback(None)
    assert machine.told == [("moves", 3 * DAY), ("moved", 3 * DAY), 3 * DAY]
    assert machine.clock.now() == 1_700_000_022_123 + 3 * DAY
    assert machine.clock.seconds() == 1_700_000_022.123
    machine.reactor.advance(10)
    assert not machine.moving


def test_a_clock_that_is_set_again_meanwhile_is_followed_too() -> None:
    """After the first jump, the rest."""
    machine = Machine()
    machine.ahead += DAY
    machine.reactor.advance(1)
    machine.ahead += 5000
    machine.reactor.advance(1)
    machine.moving.pop().callback(None)
    machine.moving.pop().callback(None)
    assert machine.clock.now() == 1_700_000_007_123 + DAY
    assert [step for step in machine.told if isinstance(step, int)] == [DAY, 5000]


@pytest.mark.parametrize("milliseconds", [-999, -10, 10, 999])
def test_less_than_a_second_is_followed_at_once(milliseconds: int) -> None:
    """It moves no time of expiry, and nobody is told."""
    machine = Machine()
    machine.ahead += milliseconds
    machine.reactor.advance(1)
    machine.reactor.advance(1)
    assert machine.clock.now() == 1_700_000_002_123 + milliseconds
    assert machine.told == []


def test_a_small_step_back_lets_the_time_of_day_stand_still() -> None:
    """It never goes back, and then agrees with the machine's clock again. Timers go on."""
    machine = Machine()
    machine.reactor.advance(20)
    machine.ahead -= 2000
    machine.reactor.advance(1)  # the clocks are compared
    stood = machine.clock.now()
    assert stood == 1_700_000_021_123
    for _ in range(20):
        machine.reactor.advance(0.1)
        assert machine.clock.now() == stood
    machine.reactor.advance(1)
    assert machine.clock.now() == 1_700_000_022_123
    assert machine.clock.behind() == 0
    assert machine.clock.seconds() == 1_700_000_024.123
    assert machine.told == [-2000]


def test_a_large_step_back_is_not_followed() -> None:
    """The time of day goes on, until the machine's clock is right again; the alarm tells of it."""
    machine = Machine()
    machine.ahead -= DAY
    machine.reactor.advance(100)
    assert machine.clock.now() == 1_700_000_100_123
    machine.ahead += DAY
    machine.reactor.advance(1)
    assert machine.clock.now() == 1_700_000_101_123
    assert machine.told == []


@pytest.mark.parametrize("milliseconds", [-9, 9])
def test_what_two_readings_may_differ_by_is_not_followed(milliseconds: int) -> None:
    """Nobody has set the clock then."""
    machine = Machine()
    machine.ahead += milliseconds
    machine.reactor.advance(5)
    assert machine.told == []


def test_an_interrupted_reading_is_not_taken() -> None:
    """The clocks are read several times, and those readings count between which the least time has passed."""
    passed = [0]

    def monotonic() -> int:
        return passed[0]

    def wall() -> int:
        passed[0] += next(delays)
        return 1_700_000_000_000_000_000 + passed[0]

    delays = iter((40_000_000, 2, 7_000_000))
    clock = BrokerClock(wall, monotonic)
    assert abs(clock.now() - 1_700_000_000_047) <= 1


def test_nothing_is_followed_after_the_end() -> None:
    machine = Machine()
    machine.watch.stopService()
    machine.ahead += DAY
    machine.reactor.advance(5)
    assert machine.told == []
    assert not machine.reactor.getDelayedCalls()


class Readers:
    """A reactor that watches files."""

    def __init__(self) -> None:
        self.readers: list[ClockNotices] = []
        self.seconds = Clock().seconds
        self.addReader = self.readers.append
        self.removeReader = self.readers.remove


def test_a_notice_of_the_system_leads_to_a_look_at_once() -> None:
    """Nothing else looks then. The end closes the file."""
    looks: list[int] = []
    ahead = [0]
    clock = BrokerClock(lambda: 1_700_000_000_000_000_000 + ahead[0], lambda: 0)
    reading, writing = os.pipe()
    reactor = Readers()

    def notices(look: Callable[[], None]) -> ClockNotices:
        return ClockNotices(reading, look)

    watch = ClockWatch(
        clock, reactor, moves=lambda _: Deferred(), moved=lambda _: None, tell=lambda step, _: looks.append(step),
        notices=notices,
    )  # fmt: skip
    watch.startService()
    (reader,) = reactor.readers
    ahead[0] = -1_000_000_000
    assert looks == []
    os.write(writing, b"12345678")
    reader.doRead()
    assert looks == [-1000]
    watch.stopService()
    assert reactor.readers == []
    assert reader.fileno() == -1
    os.close(writing)


def test_linux_tells_that_its_clock_was_set() -> None:
    """The timer can be made, and tells nothing while nobody sets the clock. Other systems are asked each second."""
    notices = clock_notices(lambda: None)
    if notices is None:
        assert not sys.platform.startswith("linux") or sys.maxsize < 1 << 32
        return
    assert os.readlink(f"/proc/self/fd/{notices.fileno()}") == "anon_inode:[timerfd]"
    with pytest.raises(BlockingIOError):
        os.read(notices.fileno(), 8)
    notices.close()
    notices.close()  # closed once


def test_by_default_it_agrees_with_the_machine() -> None:
    one = BrokerClock().now()
    assert BrokerClock().now() >= one > 1_700_000_000_000
