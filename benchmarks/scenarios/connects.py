"""Thousands of clients connect at once and stay connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.makes import start
from benchmarks.results import MAX, P99, Metric, Result

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

CONNECTS = Metric("rate", "connects/s", True)
EACH = Metric("each", "KiB", False)
NAME = "a burst of connects"
_WARM_UP = 100


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Use a broker of its own, so that connections do not get memory that other scenarios have left."""
    own = start(broker.name, broker.site)
    try:
        with result.case(NAME, [CONNECTS, P99, MAX, EACH], own) as case:
            generator.run(own, "connects", count=min(_WARM_UP, scale.connects), hold=0)
            own.quiet()
            report = generator.run(own, "connects", count=scale.connects)
            case.take(report, {CONNECTS: "rate", P99: "p99_ms", MAX: "max_ms", EACH: "each_kib"})
            case.note(f"{scale.connects:,} connections")
    finally:
        own.stop()
