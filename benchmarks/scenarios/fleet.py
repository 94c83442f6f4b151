"""A day of a fleet: thousands of connected devices, each with a message now and then, and six subscribers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.makes import start
from benchmarks.results import P50, P99, P999, RATE, Metric, Result

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

SIZES = (1_000, 10_000)
EACH = Metric("each", "KiB", False)
MEMORY = Metric("memory", "MiB", False)


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Use a broker of its own for each size, so that connections do not get memory that others have left."""
    for size in SIZES:
        own = start(broker.name, broker.site)
        try:
            with result.case(name(size), [RATE, P50, P99, P999, EACH, MEMORY], own) as case:
                # Those of 1000 send more often, so that there is something to measure.
                longest = 60 * size / SIZES[-1]
                report = generator.run(own, "fleet", count=size, seconds=5 * scale.seconds, period=longest)
                case.take(report, {RATE: "rate", P50: "p50_ms", P99: "p99_ms", P999: "p999_ms", EACH: "each_kib"})
                case[MEMORY] = report["memory_kib"] / 1024
        finally:
            own.stop()


def name(size: int) -> str:
    """The name of the case with so many devices."""
    return f"{size:,} devices, 6 subscribers"
