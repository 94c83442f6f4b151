"""Retained messages published with QoS 1: how fast are they acknowledged? Holdfast's are on disk by then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.brokers import Broker
from benchmarks.results import RATE, Result
from benchmarks.scenarios.seeding import retain

if TYPE_CHECKING:
    from benchmarks.scenarios import Scale


def run(broker: Broker, result: Result, scale: Scale) -> None:
    """Publish the smallest set of retained messages twice: new topics, then their updates."""
    count = scale.retained[0]
    for window in (1000, 10_000):
        with result.case(f"QoS 1, window {window}, {count:,} topics", [RATE]) as case, case.watched():
            flow = retain(broker, 0, count, window)
            broker.retained = max(broker.retained, count)
            case[RATE] = flow.rate
            case.lost(flow.lost)
