"""One message at a time, to the broker and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.results import P50, P99, RATE, Result
from benchmarks.scenarios.flow import flow

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale

NAME = "1 -> 1, QoS 0, one under way"


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """The next message is sent when the last one has arrived."""
    flow(broker, result, scale, NAME, {RATE: "rate", P50: "p50_ms", P99: "p99_ms"}, inflight=1)
