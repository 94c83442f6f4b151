"""The scenarios, by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.brokers import Broker
from benchmarks.results import Result
from benchmarks.scenarios import fanin, fanout, hostile, latency, memory, pingpong, replay, seed, start


@dataclass(frozen=True)
class Scale:
    """The amount of work of each scenario."""

    retained: tuple[int, ...]
    seconds: float
    messages: int
    starts: int = 3
    attack: float = 1.0  #: the size of each attack


FULL = Scale((100_000, 1_000_000), 5.0, 300_000)
QUICK = Scale((100_000,), 2.0, 100_000, attack=0.2)

Run = Callable[[Broker, Result, Scale], None]

SCENARIOS: dict[str, Run] = {
    "fanin": fanin.run,  # the scenarios without retained messages come first
    "fanout": fanout.run,
    "pingpong": pingpong.run,
    "seed": seed.run,
    "replay": replay.run,
    "latency": latency.run,
    "memory": memory.run,
    "start": start.run,
    "hostile": hostile.run,
}
