"""A new subscriber to ``#``: the rate and the completeness of the replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.results import RATE, Metric, Result
from benchmarks.scenarios.seeding import ensure

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

FIRST = Metric("first", "ms", False)


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Replay the largest set with QoS 0 and 1."""
    count = scale.retained[-1]
    ensure(broker, count)
    for qos in (0, 1):
        with result.case(name(count, qos), [RATE, FIRST], broker) as case:
            report = generator.run(broker, "replay", expect=count, qos=qos)
            case.take(report, {RATE: "rate", FIRST: "first_ms"})


def name(count: int, qos: int) -> str:
    """The name of the case."""
    return f"# over {count:,}, QoS {qos}"
