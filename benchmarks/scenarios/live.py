"""Live latency during replays: one ping every millisecond, even if earlier ones are still under way. So a stall counts
in full.

A ping passes the broker twice, to another client and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.results import MAX, P50, P99, Result
from benchmarks.scenarios.seeding import ensure

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale


#: How many clients replay at once, in each case.
REPLAYS = (0, 1, 4)


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Measure an idle broker, and one while 1 and 4 clients replay all messages."""
    count = scale.retained[-1]
    ensure(broker, count)
    for replays in REPLAYS:
        with result.case(name(count, replays), [P99, P50, MAX], broker) as case:
            report = generator.run(broker, "live", replays=replays, expect=count, seconds=scale.seconds)
            case.take(report, {P99: "p99_ms", P50: "p50_ms", MAX: "max_ms"})
            if replays:
                case.note(f"{report['replay_rate']:,.0f} retained messages/s meanwhile")


def name(count: int, replays: int) -> str:
    """The name of the case."""
    return f"{replays} replaying {count:,}" if replays else "idle"
