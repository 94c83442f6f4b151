"""Alarms begin and end with hysteresis, are told to subscribers, and past ones are few."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.task import Clock
from twisted.logger import LogEvent

from holdfast.broker.alarm_conditions import AlarmWatch
from holdfast.watch.alarms import Alarm, Alarms, Condition, Growth, Severity
from holdfast.watch.log import LastingFailure
from tests.logs import logged


class World:
    """One number, and the alarms about it."""

    def __init__(self, begins: float, ends: float, begins_after: int = 1, ends_after: int = 1) -> None:
        self.clock = Clock()
        self.value: float | None = None
        self.alarms = Alarms(lambda: round(1000 * self.clock.seconds()), size_limit=3, validity_period=100)
        self.told: list[tuple[str, bool]] = []
        self.alarms.subscribe(lambda alarm: self.told.append((alarm.message, alarm.is_active)))
        condition = Condition(
            name="full", severity=Severity.CRITICAL, meaning="Full.", remedy="Make room",
            measure=self.measured, begins=begins, ends=ends, tell=lambda value: f"It is {value:g}",
            begins_after=begins_after, ends_after=ends_after,
        )  # fmt: skip
        self.watch = AlarmWatch(self.alarms, [condition], self.clock)

    def measured(self) -> float | None:
        return self.value

    def see(self, *values: float | None) -> list[bool]:
        """Look at these values, and return after each whether the alarm is active."""
        active = []
        for value in values:
            self.value = value
            self.watch.look()
            active.append(self.alarms.is_active("full"))
        return active


def test_a_rising_number_begins_and_ends_the_alarm_at_different_limits() -> None:
    world = World(begins=10, ends=5)
    assert world.see(9, 10, 6, 12, 5, 9) == [False, True, True, True, False, False]
    assert world.told == [("It is 10. Make room", True), ("It is 12. Make room", False)]


def test_a_falling_number_does_too() -> None:
    world = World(begins=10, ends=12)
    assert world.see(11, 10, 11, 12, 11) == [False, True, True, False, False]


def test_looks_in_a_row_are_needed() -> None:
    world = World(begins=10, ends=5, begins_after=3, ends_after=2)
    assert world.see(10, 10, 9, 10, 10, 10, 1, 6, 1, 1) == [False] * 5 + [True] * 4 + [False]


def test_a_number_that_is_not_known_changes_nothing() -> None:
    world = World(begins=10, ends=5)
    assert world.see(None, 10, None, 5, None) == [False, True, True, False, False]


def test_a_condition_that_fails_is_logged_once_and_spares_the_others(logged_failures: list[LogEvent]) -> None:
    world = World(begins=10, ends=5)
    broken = Condition(
        name="broken", severity=Severity.WARNING, meaning="", remedy="", measure=lambda: 1 / 0, begins=1, ends=0,
        tell=str,
    )  # fmt: skip
    watch = AlarmWatch(world.alarms, [broken, *world.watch.conditions], world.clock)
    world.value = 11
    with logged(LastingFailure) as lines:
        watch.look()
        watch.look()
    assert [alarm.name for alarm in world.alarms.active] == ["full"]
    assert len(lines) == 1
    logged_failures.clear()
    assert watch.states() == {("broken",): 0.0, ("full",): 1.0}


def test_it_looks_each_second_while_it_runs() -> None:
    world = World(begins=10, ends=5)
    world.value = 10
    world.watch.startService()
    world.clock.advance(1)
    assert world.alarms.is_active("full")
    world.watch.stopService()
    assert not world.clock.getDelayedCalls()


def test_past_alarms_are_bounded_in_number_and_in_time() -> None:
    world = World(begins=10, ends=5)
    for _ in range(5):
        world.see(10, 5)
        world.clock.advance(30)
    assert [alarm.activated_at for alarm in world.alarms.past] == [120_000, 90_000, 60_000]
    world.clock.advance(60)
    assert [alarm.activated_at for alarm in world.alarms.past] == [120_000]
    assert world.alarms.clear_past() == 3
    assert not world.alarms.past


def test_an_active_alarm_has_the_present_numbers_and_its_first_time() -> None:
    world = World(begins=10, ends=5)
    world.see(10)
    world.clock.advance(7)
    world.see(33)
    (alarm,) = world.alarms.active
    assert (alarm.activated_at, alarm.message) == (0, "It is 33. Make room")
    assert world.told == [("It is 10. Make room", True)]


def test_a_subscriber_that_fails_spares_the_others(logged_failures: list[LogEvent]) -> None:
    """And one that leaves, also twice, hears nothing more."""
    world = World(begins=10, ends=5)
    heard: list[Alarm] = []

    def fails(alarm: Alarm) -> None:
        raise ValueError(alarm.name)

    world.alarms.subscribe(fails)
    leave: Callable[[], None] = world.alarms.subscribe(heard.append)
    with logged(Alarms) as lines:
        world.see(10)
        leave()
        leave()
        world.see(5)
    assert [alarm.is_active for alarm in heard] == [True]
    assert len(lines) == 4  # it begins, it ends, and each time one subscriber fails
    logged_failures.clear()


def test_growth_is_that_of_the_last_looks() -> None:
    totals: list[float | None] = [100, 101, 103, None, 106, 110, 0, 4]
    seen = iter(totals)
    growth = Growth(lambda: next(seen), looks=3)
    assert [growth() for _ in totals] == [0, 1, 3, None, 6, 9, 0, 4]
