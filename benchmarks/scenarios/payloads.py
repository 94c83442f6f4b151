"""Messages of 20 bytes to 100 KB: the cost of a byte beside the cost of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import generator
from benchmarks.brokers import Broker
from benchmarks.makes import start
from benchmarks.results import RATE, Result
from benchmarks.scenarios.flow import flow

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

SIZES = (20, 300, 1_000, 10_000, 100_000)
WRITES, REPLAY, FANOUT = "retained writes", "replay", "fan-out 1 -> 20"
#: of each size: so many messages, and no more than so many bytes of payload
_MOST_MESSAGES, _MOST_BYTES = 50_000, 100_000_000
_SUBSCRIBERS = 20


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Use a broker of its own for each size: it retains some messages, replays them, and sends live ones."""
    for size in SIZES:
        own = start(broker.name, broker.site)
        try:
            count = min(_MOST_MESSAGES, _MOST_BYTES // size)
            with result.case(name(WRITES, size), [RATE], own) as case:
                report = generator.run(own, "seed", count=count, messages=count, window=1000, payload=size)
                case.take(report, {RATE: "rate"})
            with result.case(name(REPLAY, size), [RATE], own) as case:
                case.take(generator.run(own, "replay", expect=count), {RATE: "rate"})
            inflight = max(1, min(1000, _MOST_BYTES // 10 // size // _SUBSCRIBERS))
            flow(own, result, scale, name(FANOUT, size), subscribers=_SUBSCRIBERS, inflight=inflight, payload=size)
        finally:
            own.stop()


def name(kind: str, size: int) -> str:
    """The name of the case with payloads of this size."""
    return f"{kind}, {size:,} bytes"
