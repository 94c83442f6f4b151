"""One message at a time, to the broker and back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.connection import BenchError, Loop
from benchmarks.loadgen import STALL_SECONDS, clients
from benchmarks.results import P50, P99, Result, percentile

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """The next message is sent when the last one has arrived."""
    with result.case("1 -> 1, QoS 0, W=1", [P50, P99]) as case, Loop() as loop:
        (source,), (target,) = clients(broker, loop, 1, 1, 0)
        times = []
        end = time.perf_counter() + scale.seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            source.allow(1)
            while target.messages < source.allowed:
                if not loop.turn(STALL_SECONDS):
                    raise BenchError("a message was lost")
            times.append(1000 * (time.perf_counter() - begin))
        times.sort()
        case[P50] = percentile(times, 0.5)
        case[P99] = percentile(times, 0.99)
