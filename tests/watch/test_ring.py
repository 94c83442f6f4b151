"""The ring: rates and quantiles of each step, in bounded memory, and the finest level that reaches far enough."""

from __future__ import annotations

from holdfast.watch.metrics import Histogram
from holdfast.watch.ring import Present, Quantile, Rate, Ring

SECOND = 1000


class World:
    """Numbers that grow."""

    def __init__(self) -> None:
        self.total = 0
        self.present: float | None = 1.0
        self.waits = Histogram((0.01, 0.1))
        self.ring = Ring(
            [
                Rate("rate", lambda: self.total),
                Present("present", lambda: self.present),
                Quantile("p99_ms", lambda: self.waits, 0.99),
            ],
            levels=((1, 5), (10, 3)),
        )
        self.now = 0

    def pass_by(self, seconds: int, growth: int = 10) -> None:
        for _ in range(seconds):
            self.total += growth
            self.ring.tick(self.now)
            self.now += SECOND


def test_a_rate_is_the_growth_per_second_of_its_own_step() -> None:
    world = World()
    world.pass_by(11, growth=10)
    world.pass_by(10, growth=30)
    seconds, tens = list(world.ring.latest(5)), list(world.ring.latest(30))
    assert [record["rate"] for record in seconds] == [30.0] * 5
    assert [record["rate"] for record in tens] == [10.0, 30.0]
    assert [record["time_stamp"] for record in tens] == [10 * SECOND, 20 * SECOND]


def test_only_the_newest_records_are_kept() -> None:
    world = World()
    assert world.ring.current() == {"time_stamp": None, "rate": None, "present": None, "p99_ms": None}
    world.pass_by(100)
    assert [record["time_stamp"] for record in world.ring.latest(5)] == [second * SECOND for second in range(95, 100)]
    assert len(list(world.ring.latest(10_000))) == 3
    assert len(list(world.ring.latest(2))) == 2
    assert world.ring.reach == 30


def test_a_quantile_is_of_the_observations_of_its_step_alone() -> None:
    world = World()
    world.pass_by(2)
    world.waits.observe(0.05, 100)
    world.pass_by(1)
    world.pass_by(1)
    last, latest = world.ring.latest(2)
    assert last["p99_ms"] is not None
    assert 10 < last["p99_ms"] <= 100
    assert latest["p99_ms"] is None


def test_a_number_that_is_not_known_is_none() -> None:
    world = World()
    world.present = None
    world.pass_by(2)
    assert world.ring.current()["present"] is None
