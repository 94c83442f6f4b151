"""A new subscriber to ``#``: the rate and the completeness of the replay."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.connection import Loop
from benchmarks.loadgen import STALL_SECONDS
from benchmarks.results import RATE, Metric, Result
from benchmarks.scenarios.seeding import ensure
from benchmarks.subscriber import PublishStream

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

FIRST = Metric("first", "ms", False)
MEMORY = Metric("RssAnon", "MiB", False)


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Replay each set with QoS 0 and 1."""
    for count in scale.retained:
        ensure(broker, count)
        for qos in (0, 1):
            with result.case(f"# over {count:,}, QoS {qos}", [RATE, FIRST, MEMORY]) as case:
                size = (count + 1) * broker.wire.publish_size(qos) + 4096
                with case.watched(), Loop() as loop:
                    stream = PublishStream(broker.port, broker.wire, qos, size, keep=True)
                    loop.add(stream)
                    begin = time.perf_counter()
                    stream.start(b"site/#")
                    first = None
                    while stream.messages < count and loop.turn(STALL_SECONDS):
                        if first is None and stream.messages:
                            first = time.perf_counter()
                    end = time.perf_counter()
                    case[RATE] = stream.messages / (end - begin)
                    case[FIRST] = 1000 * ((first or end) - begin)
                    case.lost(count - stream.distinct())
                case[MEMORY] = broker.rss_anon()
